"""What the reference answers before the first step: the mark that a run is measured from.

Raw scores of a preference model have no origin, so alarms read them against these answers. Each
evaluation prompt gets several answers of the reference; their scores, lengths and spread ride in
the checkpoints, so a resumed run is measured from the same mark.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from workers.ppo.setup import Prompts
from workers.recipes.settings.policy import PPOSettings
from workers.reference import Reference
from workers.rewards.calibrated import calibrate
from workers.rewards.source import RewardSource
from workers.rollouts.answers import answer
from workers.rollouts.sampling import Sampling, derive_seed

HIGH = 0.9  # quantile of the baseline's scores
TEMPERATURE = 1.0  # of a reward model whose calibration is not known


@dataclass(frozen=True, slots=True)
class Baseline:
    """`means` [prompts]: mean raw score of the reference's answers to each evaluation prompt."""

    means: list[float]
    mean: float  # raw score, over all answers
    high: float  # raw score, their 90 % quantile
    length: float  # tokens, mean
    temperature: float = TEMPERATURE  # T of the calibrated score

    def calibrated(self, scores: Sequence[float]) -> list[float]:
        """σ((r − m)/T) of answers to any prompts, against the mean over all prompts."""
        return calibrate(scores, self.mean, self.temperature).tolist()

    def calibrated_by_prompt(self, scores: Sequence[float]) -> list[float]:
        """The same of one answer to each evaluation prompt, against that prompt's own mean."""
        return calibrate(scores, self.means, self.temperature).tolist()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measure_baseline(
    reference: Reference,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Prompts,
    reward: RewardSource,
    settings: PPOSettings,
    *,
    seed: int,
) -> Baseline | None:
    """`baseline_answers` answers to each evaluation prompt, scored; None where none are wanted."""
    draws = settings.baseline_answers
    if draws == 0:
        return None
    sampling = Sampling(
        settings.max_new_tokens,
        temperature=settings.temperature,
        seed=derive_seed(seed, "baseline answers"),
    )
    ids = [row for row in prompts.ids for _ in range(draws)]
    messages = [row for row in prompts.messages for _ in range(draws)]
    with reference.weights() as model:
        answers = answer(model, tokenizer, ids, sampling, batch_size=settings.rollout_chunk)
    scores = np.array(reward.score(messages, [given.text for given in answers]).values)
    return Baseline(
        means=scores.reshape(-1, draws).mean(axis=1).tolist(),
        mean=float(scores.mean()),
        high=float(np.quantile(scores, HIGH)),
        length=float(np.mean([given.tokens for given in answers])),
    )

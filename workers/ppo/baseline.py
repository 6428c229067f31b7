"""What the reference answers before the first step: the mark that a run is measured from.

Raw scores of a preference model have no origin, so alarms read them against these answers. Each
evaluation prompt gets several answers of the reference; their scores, lengths and spread ride in
the checkpoints, so a resumed run is measured from the same mark.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from workers.behaviour.watch import Watch
from workers.config.policy import PPOSettings
from workers.data.snapshot import Messages
from workers.models.reference import Reference
from workers.ppo.first import by_first
from workers.ppo.setup import Prompts
from workers.rewards.afresh import afresh
from workers.rewards.calibrated import calibrate
from workers.rewards.source import RewardSource
from workers.rollouts.answers import answer
from workers.rollouts.sampling import Sampling, derive_seed

HIGH = 0.9  # quantile of the baseline's scores
TEMPERATURE = 1.0  # of a reward model whose calibration is not known
KEPT = 8  # answers that are scored again at every evaluation


@dataclass(frozen=True, slots=True)
class Baseline:
    """`means` [prompts]: mean raw score of the reference's answers to each evaluation prompt."""

    means: list[float]
    mean: float  # raw score, over all answers
    high: float  # raw score, their 90 % quantile
    length: float  # tokens, mean
    temperature: float = TEMPERATURE  # T of the calibrated score
    deviation: float = 0.0  # raw score, over all answers
    kept: list[tuple[Messages, str]] = field(default_factory=list)  # a few, with their prompts
    kept_scores: list[float] = field(default_factory=list)  # theirs, raw, made in one batch
    behaviour: dict[str, float | None] = field(default_factory=dict)  # rates of what they say

    def calibrated(self, scores: Sequence[float]) -> list[float]:
        """σ((r − m)/T) of answers to any prompts, against the mean over all prompts."""
        return calibrate(scores, self.mean, self.temperature).tolist()

    def calibrated_by_prompt(self, scores: Sequence[float]) -> list[float]:
        """The same of one answer to each evaluation prompt, against that prompt's own mean."""
        return calibrate(scores, self.means, self.temperature).tolist()

    def score_kept(self, reward: RewardSource) -> list[float]:
        """Raw scores of the kept answers as the source makes them now, no cache between."""
        prompts, texts = [row[0] for row in self.kept], [row[1] for row in self.kept]
        return afresh(reward).score(prompts, texts).values

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
    watch: Watch | None = None,
) -> Baseline | None:
    """`baseline_answers` answers to each evaluation prompt, scored; None where none are wanted.
    What `watch` counts is counted in them too."""
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
        answers = answer(
            model, tokenizer, ids, sampling, batch_size=settings.rollout_chunk, by_ranks=True
        )
    texts = [given.text for given in answers]
    few = min(KEPT, len(texts))
    kept = [(messages[i], texts[i]) for i in (j * len(texts) // few for j in range(few))]
    behaviour = watch.reference(texts) if watch else {}

    def scored() -> Baseline:
        scores = np.array(reward.score(messages, texts).values)
        found = Baseline(
            means=scores.reshape(-1, draws).mean(axis=1).tolist(),
            mean=float(scores.mean()),
            high=float(np.quantile(scores, HIGH)),
            length=float(np.mean([given.tokens for given in answers])),
            deviation=float(scores.std()),
            kept=kept,
            behaviour=behaviour,
        )
        return replace(found, kept_scores=found.score_kept(reward))

    return by_first(scored)

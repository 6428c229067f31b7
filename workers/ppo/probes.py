"""Questions to the reward whose answer is known, asked again at every evaluation.

The policy has no part in them: what changes here is the reward, or the way it is asked. Canaries
are pairs whose better answer everybody knows; a reward whose sign or labels were swapped prefers
the other one. `reward_data` are pairs that the reward model learned from: right there and wrong on
the canaries, it learned swapped labels; wrong on both, its sign is turned.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from workers.context import (
    RunContext,
)
from workers.contract.events import (
    Fault,
    RecipeError,
)
from workers.data.snapshot import TRAIN, Preference, evaluation_splits, read_preferences
from workers.ppo.baseline import Baseline
from workers.rewards.source import RewardSource
from workers.rollouts.sampling import Sampling, derive_seed
from workers.trainers.samples import choose

MOST_PAIRS = 64
CANARY_PAIRS = "eval/canary_pairs"
ROLES = {"canaries": "eval/canary_accuracy", "reward_data": "eval/reward_data_accuracy"}


@dataclass(frozen=True, slots=True)
class RewardProbes:
    """`pairs` by the metric they give; none of an input that a run does not have."""

    pairs: Mapping[str, Sequence[Preference]] = field(default_factory=dict)

    def figures(
        self, reward: RewardSource, baseline: Baseline | None, *, deviation: float
    ) -> dict[str, float]:
        """`deviation`: of the raw scores so far; 0 before there are any."""
        found = {name: accuracy(reward, pairs) for name, pairs in self.pairs.items()}
        if known := self.pairs.get(ROLES["canaries"]):
            found[CANARY_PAIRS] = float(len(known))
        if baseline is not None and baseline.kept:
            scale = deviation or baseline.deviation
            found["eval/reproducibility"] = changed(reward, baseline, deviation=scale)
        return found


def read_probes(context: RunContext) -> RewardProbes:
    """The same pairs in every attempt of a run."""
    return RewardProbes(
        {
            metric: _chosen(context, role)
            for role, metric in ROLES.items()
            if context.has_input(role)
        }
    )


def accuracy(reward: RewardSource, pairs: Sequence[Preference]) -> float:
    """Share of the pairs whose chosen answer has the higher score, ties ½."""
    prompts = [pair.prompt for pair in pairs]
    chosen = reward.score(prompts, [pair.chosen for pair in pairs]).values
    rejected = reward.score(prompts, [pair.rejected for pair in pairs]).values
    ranked = zip(chosen, rejected, strict=True)
    return sum((c > r) + (c == r) / 2 for c, r in ranked) / len(pairs)


def changed(reward: RewardSource, baseline: Baseline, *, deviation: float) -> float:
    """Largest distance of a kept answer's score, made anew, from its first: in deviations, or raw
    where scores do not vary. The same texts in the same batch, so a source that calculates alike
    gives exactly 0."""
    now = baseline.score_kept(reward)
    away = float(np.abs(np.array(now) - np.array(baseline.kept_scores)).max())
    return away / (deviation or 1.0)


def protocol_number(prompt_ids: Sequence[Sequence[int]], sampling: Sampling) -> float:
    """What names an evaluation protocol: another number, another protocol. 0 … 2³¹ − 1."""
    how = [
        [list(ids) for ids in prompt_ids],
        [sampling.max_new_tokens, sampling.temperature, sampling.top_p, sampling.top_k],
        sampling.seed,
    ]
    digest = hashlib.sha256(json.dumps(how).encode()).digest()
    return float(int.from_bytes(digest[:4], "big") >> 1)


def _chosen(context: RunContext, role: str) -> list[Preference]:
    """At most `MOST_PAIRS`, by seed: held-out rows where there are any. Ties teach nothing."""
    folder = context.input_path(role)
    rows: list[Preference] = []
    for split in evaluation_splits(folder):
        rows += _decided(read_preferences(folder, split))
    rows = rows or _decided(read_preferences(folder, TRAIN))
    if not rows:
        told = f"the input '{role}' has no pair of which one answer is the better"
        raise RecipeError("no_rows", Fault.DATA, told)
    return [rows[i] for i in choose(len(rows), MOST_PAIRS, derive_seed(context.spec.seed, role))]


def _decided(rows: Sequence[Preference]) -> list[Preference]:
    return [row for row in rows if row.chosen != row.rejected and row.confidence > 0.5]

"""What a step of GRPO says about itself. Names, units and estimators: docs/metrics.md."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

import torch
from torch import Tensor

from measures.groups import agreement_within, spread_of
from workers.grpo.rewards import Judged
from workers.ppo.baseline import Baseline
from workers.rl.behaviour import behaviour_figures
from workers.rl.kl import kl_k1, kl_k3
from workers.rl.masked import masked_sum

Figures = dict[str, float | None]


def answer_figures(
    judged: Judged, group_size: int, ids: Tensor, mask: Tensor, baseline: Baseline | None
) -> Figures:
    """Of a batch of answers before its update. ids, mask [B, R]."""
    values = torch.tensor(judged.scores.values)
    count = len(values)
    rewards = judged.grouped(judged.rewards, group_size)
    counts = judged.grouped(judged.counts, group_size)
    spread = spread_of(rewards, counts)
    found: Figures = {
        "objective/scores": float(values.mean()),
        "objective/scores_std": float(values.std()),
        "grpo/within_group_std": spread.within,
        "grpo/between_groups_std": spread.between,
        "grpo/zero_variance_share": spread.silent,
        "response/length": sum(judged.lengths) / count,
        "response/ended_share": sum(judged.ended) / count,
        "reward/truncated_share": judged.scores.truncated / count,
    }
    found |= behaviour_figures(ids, mask)
    if baseline is not None:
        found |= _against(baseline, judged)
    if len(judged.scores.parts) > 1:
        for name, part in judged.scores.parts.items():
            found[f"reward/component/{name}"] = sum(part) / count
    if judged.scores.disagreement is not None:
        found["reward/disagreement"] = sum(judged.scores.disagreement) / count
        found["reward/flagged_share"] = 1 - sum(judged.counts) / count
    if judged.scores.blocked is not None:
        found["reward/blocked_share"] = sum(judged.scores.blocked) / count
    if judged.scores.asked:
        found["reward/cache_hit_rate"] = (judged.scores.cache_hits or 0) / judged.scores.asked
    if judged.checked is not None:
        other = judged.grouped(judged.checked.values, group_size)
        found["grpo/rank_agreement"] = agreement_within(other, rewards).value
    return found


def _against(baseline: Baseline, judged: Judged) -> Figures:
    """The answers beside the reference's before the first step."""
    calibrated = torch.tensor(baseline.calibrated(judged.scores.values))
    count = len(calibrated)
    return {
        "reward/calibrated_mean": float(calibrated.mean()),
        "reward/calibrated_std": float(calibrated.std()),
        "reward/above_baseline_share": sum(v > baseline.high for v in judged.scores.values) / count,
        "response/length_ratio": sum(judged.lengths) / count / baseline.length,
    }


# How the fields of `UpdateSums` are joined that do not add up.
_JOINED = {"clip_low": max, "clip_high": max, "ratio_max": max, "logprob_min": min}


@dataclass(slots=True)
class UpdateSums:
    """Sums over the forward passes of the steps since the last point; tensors [B, R] come in."""

    clip_low: float
    clip_high: float
    answers: int = 0
    tokens: int = 0
    kl: float = 0.0  # nats, of the sequences
    kl_tokens: float = 0.0  # nats, k3
    moved: float = 0.0  # nats, k3 of old and new policy
    entropy: float = 0.0  # nats
    fresh_entropy: float = 0.0  # nats, before the first step on a batch
    fresh_tokens: int = 0
    clipped: int = 0
    advantage: float = 0.0  # of all answers, absolute
    ratio_max: float = 0.0
    logprob_min: float = field(default=0.0)

    def add(
        self,
        logprobs: Tensor,
        old: Tensor,
        ref: Tensor,
        entropy: Tensor,
        advantages: Tensor,
        mask: Tensor,
        *,
        fresh: bool,
    ) -> None:
        """logprobs, old, ref, entropy, mask [B, R], advantages [B]; fresh: the policy is still the
        one that drew the answers."""
        if not mask.any():
            return
        ratio = torch.where(mask.bool(), (logprobs - old).exp(), torch.ones_like(logprobs))
        push = advantages.unsqueeze(1)
        outside = ((ratio < 1 - self.clip_low) & (push < 0)) | (
            (ratio > 1 + self.clip_high) & (push > 0)
        )
        self.answers += len(mask)
        self.tokens += int(mask.sum())
        self.kl += float(masked_sum(kl_k1(old, ref), mask))
        self.kl_tokens += float(masked_sum(kl_k3(old, ref), mask))
        self.moved += float(masked_sum(kl_k3(old, logprobs), mask))
        self.entropy += float(masked_sum(entropy, mask))
        if fresh:
            self.fresh_entropy += float(masked_sum(entropy, mask))
            self.fresh_tokens += int(mask.sum())
        self.clipped += int(masked_sum(outside.long(), mask))
        self.advantage += float(advantages.abs().sum())
        self.ratio_max = max(self.ratio_max, float(ratio.max()))
        least = torch.where(mask.bool(), logprobs, torch.zeros_like(logprobs)).min()
        self.logprob_min = min(self.logprob_min, float(least))

    @classmethod
    def of_all(cls, parts: Sequence["UpdateSums"]) -> "UpdateSums":
        """Those of all ranks together."""
        joined = {}
        for one in fields(cls):
            values = [getattr(part, one.name) for part in parts]
            how = _JOINED.get(one.name, sum)
            joined[one.name] = how(values)
        return cls(**joined)

    def figures(self) -> Figures:
        if not self.tokens:
            return {}
        return {
            "objective/kl": self.kl / self.answers,
            "objective/kl_per_token": self.kl_tokens / self.tokens,
            "objective/entropy_per_token": (
                self.fresh_entropy / self.fresh_tokens if self.fresh_tokens else None
            ),
            "policy/approxkl_avg": self.moved / self.tokens,
            "policy/clipfrac_avg": self.clipped / self.tokens,
            "policy/entropy_avg": self.entropy / self.tokens,
            "policy/ratio_max": self.ratio_max,
            "policy/logprob_min": self.logprob_min,
            "grpo/advantage_abs": self.advantage / self.answers,
        }


def averaged(points: Sequence[Mapping[str, float | None]]) -> Figures:
    """Means over the batches of a window, of each figure over those where it is defined."""
    names = dict.fromkeys(name for point in points for name in point)
    found: Figures = {}
    for name in names:
        defined = [value for point in points if (value := point.get(name)) is not None]
        found[name] = sum(defined) / len(defined) if defined else None
    return found

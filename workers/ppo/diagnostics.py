"""What a step of PPO says about itself, and which part of a step the others wait for.

Names, units and estimators: docs/metrics.md.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from workers.behaviour import behaviour_metrics
from workers.ppo.evaluation import Baseline
from workers.ppo.rollout import Rollout
from workers.rewards.source import Scores, verifier_metrics
from workers.rl.losses import explained_variance, masked_sum, masked_var

MetricValues = dict[str, float | None]


def rollout_metrics(
    rollout: Rollout, normalised: Tensor, rewards: Tensor, returns: Tensor
) -> MetricValues:
    """Metrics of a batch before its update. normalised [B], rewards and returns [B, R]."""
    count, tokens = len(rollout.prompts), float(rollout.mask.sum())
    non_score = masked_sum(rewards, rollout.mask).item() / count - normalised.mean().item()
    entropy = float(masked_sum(rollout.entropy, rollout.mask))
    metrics: MetricValues = {
        "objective/kl": sequence_kl(rollout),
        "objective/kl_per_token": float(masked_sum(rollout.kl("k3"), rollout.mask)) / tokens,
        "objective/entropy": entropy / count,
        "objective/entropy_per_token": entropy / tokens,
        "objective/non_score_reward": non_score,
        "objective/rlhf_reward": non_score + float(normalised.mean()),
        "val/explained_variance": _defined(
            explained_variance(rollout.values, returns, rollout.mask)
        ),
        "val/value_mean": float(masked_sum(rollout.values, rollout.mask)) / tokens,
        "val/value_scale": _scale(rollout.values, returns, rollout.mask),
        "response/length": tokens / count,
        "response/ended_share": float(rollout.responses.ended.float().mean()),
    }
    return metrics | behaviour_metrics(rollout.responses.response_ids, rollout.mask)


def score_metrics(
    scores: Scores, trusted: Tensor, *, mean: float, std: float | None, clip: float
) -> MetricValues:
    """Metrics of a batch's raw scores. trusted [B]; mean and std are the running ones, which the
    clip of normalised scores is a multiple of; None before two answers were trusted."""
    raw = torch.tensor(scores.values)
    count = len(raw)
    metrics: MetricValues = {
        "objective/scores": float(raw.mean()),
        "objective/scores_std": float(raw.std()),
        "objective/scores_running_std": std,
        "reward/outlier_share": float(((raw - mean).abs() > clip * (std or 0.0)).float().mean())
        if std is not None
        else None,
        "reward/truncated_share": scores.truncated / count,
    }
    if len(scores.parts) > 1:
        for name, values in scores.parts.items():
            metrics[f"reward/component/{name}"] = sum(values) / count
    metrics |= verifier_metrics(scores)
    if scores.disagreement is not None:
        metrics["reward/disagreement"] = sum(scores.disagreement) / count
        metrics["reward/flagged_share"] = 1 - float(trusted.float().mean())
    if scores.blocked is not None:
        metrics["reward/blocked_share"] = sum(scores.blocked) / count
    if scores.known is not None:
        metrics["reward/cache_hit_rate"] = sum(scores.known) / count
    return metrics


def baseline_metrics(rollout: Rollout, baseline: Baseline | None) -> MetricValues:
    """The batch against the reference's answers before the first step; nothing without them."""
    if baseline is None or rollout.scores is None:
        return {}
    calibrated = torch.tensor(baseline.calibrated(rollout.scores.values))
    above = sum(value > baseline.high for value in rollout.scores.values)
    return {
        "reward/calibrated_mean": float(calibrated.mean()),
        "reward/calibrated_std": float(calibrated.std()),
        "reward/above_baseline_share": above / len(calibrated),
        "response/length_ratio": float(rollout.responses.lengths.float().mean()) / baseline.length,
    }


def sequence_kl(rollout: Rollout) -> float:
    """Mean over answers of Σ_t (log π − log π_ref), nats per sequence: k1, as TRL reports it."""
    return float(masked_sum(rollout.kl("k1"), rollout.mask)) / len(rollout.prompts)


@dataclass(slots=True)
class StepTimes:
    """Seconds of a step, by what was done. `reward_s` is the source's own time, most of which may
    have passed while answers were drawn; `reward_wait_s` is what the step stood still for."""

    rollout_s: float = 0.0
    reward_s: float = 0.0
    reward_wait_s: float = 0.0
    update_s: float = 0.0

    def metrics(self, *, tokens: int) -> dict[str, float]:
        total = self.rollout_s + self.reward_wait_s + self.update_s
        return {
            "time/rollout_s": self.rollout_s,
            "time/reward_s": self.reward_s,
            "time/reward_wait_s": self.reward_wait_s,
            "time/update_s": self.update_s,
            "time/step_s": total,
            "throughput/response_tokens_per_s": tokens / total,
        }


def _scale(values: Tensor, returns: Tensor, mask: Tensor) -> float | None:
    """Deviation of the values over that of the returns; None when the returns do not vary."""
    over = float(masked_var(returns, mask))
    return math.sqrt(float(masked_var(values, mask)) / over) if over > 0 else None


def _defined(value: Tensor) -> float | None:
    return None if math.isnan(float(value)) else float(value)


SLOW = 0.5  # a part that takes this share of a step is what the others wait for
LEAST_STEPS = 3  # one step alone may have been the first, with everything cold

# What each part is, and what shortens it, the cheapest first.
PARTS: dict[str, tuple[str, str]] = {
    "rollout": (
        "generation",
        "Answer in larger batches (rollout_chunk), shorten max_new_tokens, or sample on a machine "
        "of its own.",
    ),
    "reward": (
        "the reward",
        "Score in larger batches (reward_batch_size), let answers be scored while others are "
        "generated (rollout_chunk), cache scores, or give the reward model its own device.",
    ),
    "update": (
        "the update",
        "Fewer passes over each batch (update_epochs), low-rank adapters (lora_rank), and a larger "
        "token budget (max_tokens_per_batch).",
    ),
    "other": (
        "what is neither generation, reward nor update",
        "Look at evaluations and checkpoints: eval_every, eval_prompts, save_every.",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """`part` is a key of PARTS, or None where no part takes half of a step. Shares are of the whole
    time of the steps looked at and sum to 1; seconds are means per step."""

    part: str | None
    share: float | None
    shares: Mapping[str, float]
    seconds: Mapping[str, float]
    steps: int
    tokens_per_second: float | None
    message: str

    def to_json(self) -> dict[str, object]:
        return {
            "part": self.part,
            "share": self.share,
            "shares": dict(self.shares),
            "seconds": dict(self.seconds),
            "steps": self.steps,
            "tokens_per_second": self.tokens_per_second,
            "message": self.message,
        }


def bottleneck(
    steps: Sequence[Mapping[str, float | None]], *, tokens: Sequence[float] | None = None
) -> Bottleneck:
    """Names the part of a step that the others wait for.

    Each step holds time/rollout_s, time/reward_wait_s, time/update_s and, where measured,
    time/reward_s and time/step_s, in seconds. Scoring that went on while answers were generated
    costs nothing: what counts is reward_wait_s, the time nothing else could be done, and only
    where that is absent reward_s. `tokens`: generated tokens of each step, for the throughput.

    The first of at least four steps is left out, for it warms everything up. A part is named from
    half of the time on.
    """
    looked = list(steps[1:]) if len(steps) > LEAST_STEPS else list(steps)
    kept_tokens = list(tokens or [])[-len(looked) :] if looked else []
    totals = dict.fromkeys(PARTS, 0.0)
    for step in looked:
        for part, seconds in _parts(step).items():
            totals[part] += seconds
    whole = sum(totals.values())
    if not looked or whole <= 0:
        return Bottleneck(
            part=None,
            share=None,
            shares={},
            seconds={},
            steps=len(looked),
            tokens_per_second=None,
            message="No step was timed, so nothing can be said about what waits.",
        )
    shares = {part: seconds / whole for part, seconds in totals.items()}
    longest = max(shares, key=lambda part: shares[part])
    share = shares[longest]
    name, advice = PARTS[longest]
    spread = ", ".join(
        f"{PARTS[part][0]} {100 * shares[part]:.0f} %"
        for part in ("rollout", "reward", "update", "other")
        if part != "other" or shares[part] >= 0.05
    )
    if share >= SLOW:
        said = f"Every step waits for {name}: {100 * share:.0f} % of its time ({spread}). {advice}"
    else:
        said = f"No part holds the others up: {spread} of a step's time."
    return Bottleneck(
        part=longest if share >= SLOW else None,
        share=share if share >= SLOW else None,
        shares=shares,
        seconds={part: seconds / len(looked) for part, seconds in totals.items()},
        steps=len(looked),
        tokens_per_second=sum(kept_tokens) / whole if kept_tokens else None,
        message=said,
    )


def _parts(step: Mapping[str, float | None]) -> dict[str, float]:
    """Seconds of one step by part."""
    rollout = step.get("time/rollout_s") or 0.0
    waited = step.get("time/reward_wait_s")
    reward = (step.get("time/reward_s") if waited is None else waited) or 0.0
    update = step.get("time/update_s") or 0.0
    whole = step.get("time/step_s")
    other = max(0.0, whole - rollout - reward - update) if whole is not None else 0.0
    return {"rollout": rollout, "reward": reward, "update": update, "other": other}

"""What a step of PPO says about itself. Names, units and estimators: docs/metrics.md."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from workers.ppo.baseline import Baseline
from workers.ppo.rollout import Rollout
from workers.rewards.source import Scores
from workers.rl.behaviour import behaviour_figures
from workers.rl.losses import explained_variance
from workers.rl.masked import masked_sum, masked_var

Figures = dict[str, float | None]


def rollout_figures(
    rollout: Rollout, normalised: Tensor, rewards: Tensor, returns: Tensor
) -> Figures:
    """Figures of a batch before its update. normalised [B], rewards and returns [B, R]."""
    count, tokens = len(rollout.prompts), float(rollout.mask.sum())
    non_score = masked_sum(rewards, rollout.mask).item() / count - normalised.mean().item()
    entropy = float(masked_sum(rollout.entropy, rollout.mask))
    figures: Figures = {
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
    return figures | behaviour_figures(rollout.responses.response_ids, rollout.mask)


def score_figures(
    scores: Scores, trusted: Tensor, *, mean: float, std: float | None, clip: float
) -> Figures:
    """Figures of a batch's raw scores. trusted [B]; mean and std are the running ones, which the
    clip of normalised scores is a multiple of; None before two answers were trusted."""
    raw = torch.tensor(scores.values)
    count = len(raw)
    figures: Figures = {
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
            figures[f"reward/component/{name}"] = sum(values) / count
    if scores.disagreement is not None:
        figures["reward/disagreement"] = sum(scores.disagreement) / count
        figures["reward/flagged_share"] = 1 - float(trusted.float().mean())
    if scores.blocked is not None:
        figures["reward/blocked_share"] = sum(scores.blocked) / count
    if scores.known is not None:
        figures["reward/cache_hit_rate"] = sum(scores.known) / count
    return figures


def baseline_figures(rollout: Rollout, baseline: Baseline | None) -> Figures:
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

    def figures(self, *, tokens: int) -> dict[str, float]:
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

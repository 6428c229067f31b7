"""What a step of PPO says about itself. Names, units and estimators: docs/metrics.md."""

import itertools
import math

import torch
from torch import Tensor

from workers.ppo.rollout import Rollout
from workers.rewards.source import Scores
from workers.rl.losses import explained_variance
from workers.rl.masked import masked_sum


def rollout_figures(
    rollout: Rollout, scores: Scores, normalised: Tensor, rewards: Tensor, returns: Tensor
) -> dict[str, float | None]:
    """Figures of a batch before its update. normalised [B], rewards and returns [B, R]."""
    raw = torch.tensor(scores.values)
    count, tokens = len(raw), float(rollout.mask.sum())
    non_score = masked_sum(rewards, rollout.mask).item() / count - normalised.mean().item()
    variance = float(explained_variance(rollout.values, returns, rollout.mask))
    k3 = rollout.kl("k3")
    return {
        "objective/kl": sequence_kl(rollout),
        "objective/kl_per_token": float(masked_sum(k3, rollout.mask)) / tokens,
        "objective/entropy": float(masked_sum(rollout.entropy, rollout.mask)) / count,
        "objective/scores": float(raw.mean()),
        "objective/scores_std": float(raw.std()),
        "objective/non_score_reward": non_score,
        "objective/rlhf_reward": non_score + float(normalised.mean()),
        "val/explained_variance": None if math.isnan(variance) else variance,
        "val/value_mean": float(masked_sum(rollout.values, rollout.mask)) / tokens,
        "response/length": tokens / count,
        "response/ended_share": float(rollout.responses.ended.float().mean()),
        "reward/truncated_share": scores.truncated / count,
    }


def disagreement_figures(scores: Scores, trusted: Tensor) -> dict[str, float]:
    """How much an ensemble disagrees, and the share of answers that teach nothing for it. Nothing
    of a reward that is no ensemble. trusted [B]."""
    if scores.disagreement is None:
        return {}
    return {
        "reward/disagreement": sum(scores.disagreement) / len(scores.disagreement),
        "reward/flagged_share": 1 - float(trusted.float().mean()),
    }


def sequence_kl(rollout: Rollout) -> float:
    """Mean over answers of Σ_t (log π − log π_ref), nats per sequence: k1, as TRL reports it."""
    return float(masked_sum(rollout.kl("k1"), rollout.mask)) / len(rollout.prompts)


def seconds(times: list[float], *, tokens: int) -> dict[str, float]:
    """Where a step's time went; `times` are its four marks."""
    rollout, reward, learning = (after - before for before, after in itertools.pairwise(times))
    total = times[-1] - times[0]
    return {
        "time/rollout_s": rollout,
        "time/reward_s": reward,
        "time/update_s": learning,
        "time/step_s": total,
        "throughput/response_tokens_per_s": tokens / total,
    }

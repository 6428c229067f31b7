"""From a score per response to an advantage per token."""

import torch
from torch import Tensor

from workers.rl.masked import masked_mean


def last_token_index(mask: Tensor) -> Tensor:
    """Index of the last real token of each response: [B, R] -> [B]. −1 for an empty response."""
    positions = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    return (mask.long() * positions).amax(dim=1) - 1


def shaped_rewards(scores: Tensor, kl: Tensor, mask: Tensor, *, kl_coef: float) -> Tensor:
    """Reward of every token: −β·KL, and the response's score on its last real token.

    scores [B], kl [B, R] nats, mask [B, R] -> [B, R]. The score belongs on the last real token
    (the end-of-sequence token when there is one), never after it, where the mask would drop it.
    Source: Ouyang et al. 2022 (InstructGPT), equation 2; Stiennon et al. 2020, section 3.4.
    """
    rewards = torch.where(mask.bool(), -kl_coef * kl, torch.zeros_like(kl))
    last = last_token_index(mask)
    rows = torch.nonzero(last >= 0).squeeze(-1)
    return rewards.index_put((rows, last[rows]), scores[rows].to(rewards.dtype), accumulate=True)


def gae(
    rewards: Tensor, values: Tensor, mask: Tensor, *, gamma: float, lam: float
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation over responses padded on the right.

    rewards, values, mask [B, R] -> (advantages, returns), both [B, R], 0 under the padding.

        δ_t = r_t + γ·V_{t+1} − V_t,    A_t = δ_t + γλ·A_{t+1},    returns = A + V

    Every response ends its episode, truncated ones too: V after the last real token is 0, since
    nothing of the sequence is scored beyond it.
    Source: Schulman et al. 2016, "High-Dimensional Continuous Control Using GAE", equation 16.
    """
    real = mask.to(values.dtype)
    values = torch.where(mask.bool(), values, torch.zeros_like(values))
    rewards = torch.where(mask.bool(), rewards, torch.zeros_like(rewards))
    advantages = torch.zeros_like(values)
    next_value = torch.zeros_like(values[:, 0])
    next_advantage = torch.zeros_like(next_value)
    for t in range(values.shape[1] - 1, -1, -1):
        delta = rewards[:, t] + gamma * next_value - values[:, t]
        next_advantage = (delta + gamma * lam * next_advantage) * real[:, t]
        advantages[:, t] = next_advantage
        next_value = values[:, t]
    return advantages, advantages + values


# Learning from answers that an earlier policy drew.

CORRECTED = 0.01  # a weight further from 1 than this counts as a correction


def importance_weights(
    logprobs: Tensor, drawn_logprobs: Tensor, mask: Tensor, *, cap: float
) -> Tensor:
    """Truncated weights per token: [B, R] × 3 -> [B, R], 1 under the padding.

        w = min(π_old / π_drew, c)

    π_old: the policy as the update finds it (`logprobs`, nats); π_drew: the version that drew the
    answer (`drawn_logprobs`). The policy loss of a token is multiplied by w, a constant, while
    PPO's ratio stays π/π_old: the decoupled objective of Hilton et al. 2022, "Batch size-invariance
    for policy optimization", as Fu et al. 2025, "AReaL", equation 5, use it for stale answers.
    Source of the cap: Espeholt et al. 2018, "IMPALA", the ρ̄ of V-trace. Departures: advantages stay
    those of GAE on the drawn answers, without V-trace's corrected values, and weights are of single
    tokens, not of prefixes.
    """
    ratio = torch.exp((logprobs - drawn_logprobs).clamp(max=80.0))
    return torch.where(mask.bool(), ratio.clamp(max=cap), torch.ones_like(ratio))


def importance_metrics(weights: Tensor, mask: Tensor, *, cap: float) -> dict[str, float]:
    """What the weights [B, R] of a batch look like, by the names of docs/metrics.md."""
    return {
        "rollout/corrected_share": _share((weights - 1).abs() > CORRECTED, mask),
        "rollout/capped_share": _share(weights >= cap, mask),
        "rollout/importance_mean": float(masked_mean(weights, mask)),
    }


def _share(which: Tensor, mask: Tensor) -> float:
    return float(masked_mean(which.to(torch.float32), mask))

"""Learning from answers that an earlier policy drew."""

import torch
from torch import Tensor

from workers.rl.masked import masked_mean

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


def importance_figures(weights: Tensor, mask: Tensor, *, cap: float) -> dict[str, float]:
    """What the weights [B, R] of a batch look like, by the names of docs/metrics.md."""
    return {
        "rollout/corrected_share": _share((weights - 1).abs() > CORRECTED, mask),
        "rollout/capped_share": _share(weights >= cap, mask),
        "rollout/importance_mean": float(masked_mean(weights, mask)),
    }


def _share(which: Tensor, mask: Tensor) -> float:
    return float(masked_mean(which.to(torch.float32), mask))

"""Estimators of KL(π ‖ π_ref) from samples of π, and the exact value from logits.

Source: J. Schulman, "Approximating KL Divergence" (2020), http://joschu.net/blog/kl-approx.html.
With log r = log π_ref(x) − log π(x), x ~ π:

    k1 = −log r            unbiased, high variance, negative on single samples
    k2 = (log r)² / 2      biased, low variance, never negative
    k3 = (r − 1) − log r   unbiased, low variance, never negative

All are per token; a sequence's KL is the sum over its tokens.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

ESTIMATORS = ("k1", "k2", "k3")


def kl_k1(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """[B, R] -> [B, R], nats."""
    return logprobs - ref_logprobs


def kl_k2(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """[B, R] -> [B, R], nats."""
    return 0.5 * (logprobs - ref_logprobs) ** 2


def kl_k3(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """[B, R] -> [B, R], nats. expm1 keeps tiny differences from rounding to below zero."""
    log_ratio = ref_logprobs - logprobs
    return torch.expm1(log_ratio) - log_ratio


def kl_estimate(logprobs: Tensor, ref_logprobs: Tensor, estimator: str) -> Tensor:
    """The estimator by its name, one of `ESTIMATORS`."""
    return {"k1": kl_k1, "k2": kl_k2, "k3": kl_k3}[estimator](logprobs, ref_logprobs)


def kl_exact(logits: Tensor, ref_logits: Tensor) -> Tensor:
    """Σ_v π(v) (log π(v) − log π_ref(v)): [B, R, V] × 2 -> [B, R], nats. Exact per position."""
    log_p = torch.log_softmax(logits, dim=-1)
    log_q = torch.log_softmax(ref_logits, dim=-1)
    return (log_p.exp() * (log_p - log_q)).sum(-1)


# How strongly the policy is held to its reference.


@dataclass
class FixedKL:
    """The coefficient stays what it was."""

    coef: float

    def update(self, kl: float, samples: int) -> None:
        """Nothing follows from `kl` (nats per sequence) over `samples` sequences."""


@dataclass
class AdaptiveKL:
    """The coefficient moves so that the sequence KL approaches `target`.

        β ← β·(1 + clip(KL/target − 1, ±0.2)·n/horizon)

    `target` in nats per sequence, `horizon` in sequences: after one horizon of samples far from
    the target the coefficient has changed by a factor e^±0.2. A horizon far above the planned
    samples never moves; a tenth of them is a good start.
    Source: Ziegler et al. 2019, "Fine-Tuning Language Models from Human Preferences", section
    2.2. (Not to be taken for an early stop of the update, which bounds another KL.)
    """

    coef: float
    target: float
    horizon: float

    def update(self, kl: float, samples: int) -> None:
        """Move by the sequence KL measured over `samples` sequences."""
        error = min(max(kl / self.target - 1.0, -0.2), 0.2)
        self.coef *= 1.0 + error * samples / self.horizon

"""Estimators of KL(π ‖ π_ref) from samples of π, and the exact value from logits.

Source: J. Schulman, "Approximating KL Divergence" (2020), http://joschu.net/blog/kl-approx.html.
With log r = log π_ref(x) − log π(x), x ~ π:

    k1 = −log r            unbiased, high variance, negative on single samples
    k2 = (log r)² / 2      biased, low variance, never negative
    k3 = (r − 1) − log r   unbiased, low variance, never negative

All are per token; a sequence's KL is the sum over its tokens.
"""

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

"""Log-probabilities and entropy from logits."""

import contextlib

import torch
from torch import Tensor

_LEAST = -1e4  # exp of it is 0, and 0 · it is 0, which 0 · −∞ is not


def selective_logprobs(logits: Tensor, token_ids: Tensor, *, temperature: float = 1.0) -> Tensor:
    """log π(token) of the tempered softmax, without building the whole log-softmax.

    logits [B, R, V], token_ids [B, R] -> [B, R], nats. The temperature must be the one that was
    sampled with: a ratio of differently tempered policies is not the ratio of the update.
    """
    scaled = logits / temperature if temperature != 1.0 else logits
    picked = scaled.gather(-1, token_ids.unsqueeze(-1)).squeeze(-1)
    return picked - torch.logsumexp(scaled, dim=-1)


def logprobs_and_entropy(
    logits: Tensor,
    token_ids: Tensor,
    *,
    temperature: float = 1.0,
    entropy_gradient: bool = False,
) -> tuple[Tensor, Tensor]:
    """`selective_logprobs`, and the entropy −Σ p log p at each position, from one log-softmax.

    logits [B, R, V], token_ids [B, R] -> two of [B, R], nats and nats per token. A forbidden token
    (logit −∞) adds nothing to the entropy. The entropy's gradient doubles the cost of the backward
    pass, so only an entropy bonus asks for it.
    """
    log_softmax = torch.log_softmax(logits / temperature if temperature != 1.0 else logits, dim=-1)
    picked = log_softmax.gather(-1, token_ids.unsqueeze(-1)).squeeze(-1)
    with contextlib.nullcontext() if entropy_gradient else torch.no_grad():
        entropy = -(log_softmax.exp() * log_softmax.clamp(min=_LEAST)).sum(-1)
    return picked, entropy

"""Log-probabilities and entropy from logits."""

import torch
from torch import Tensor


def selective_logprobs(logits: Tensor, token_ids: Tensor, *, temperature: float = 1.0) -> Tensor:
    """log π(token) of the tempered softmax, without building the whole log-softmax.

    logits [B, R, V], token_ids [B, R] -> [B, R], nats. The temperature must be the one that was
    sampled with: a ratio of differently tempered policies is not the ratio of the update.
    """
    scaled = logits / temperature if temperature != 1.0 else logits
    picked = scaled.gather(-1, token_ids.unsqueeze(-1)).squeeze(-1)
    return picked - torch.logsumexp(scaled, dim=-1)


def entropy(logits: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Entropy of the tempered next-token distribution: [B, R, V] -> [B, R], nats per token.

    H = logsumexp(z) − Σ softmax(z)·z, with z = logits / temperature. A logit of −∞ (a forbidden
    token) adds nothing.
    """
    scaled = logits / temperature if temperature != 1.0 else logits
    probs = torch.softmax(scaled, dim=-1)
    weighted = torch.where(probs > 0, probs * scaled, torch.zeros_like(scaled))
    return torch.logsumexp(scaled, dim=-1) - weighted.sum(-1)

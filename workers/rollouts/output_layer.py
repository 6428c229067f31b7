"""The output layer, on chosen states only and in chunks.

Logits are the largest tensor of a small model's forward pass: tokens × vocabulary. Nobody needs
them, only the log-probability of one token per row and perhaps the entropy, so they are made for a
chunk of states, read, and thrown away; the backward pass makes them again (Chen et al. 2016,
"Training Deep Nets with Sublinear Memory Cost").
"""

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from workers.rl.logprobs import logprobs_and_entropy, selective_logprobs

_plain: "weakref.WeakKeyDictionary[nn.Module, bool]" = weakref.WeakKeyDictionary()


@contextmanager
def projecting(model: PreTrainedModel, pick: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Inside, the output layer gets `pick(states)`, [K, width], in the place of all [B, L, width].

    The model's logits are then [1, K, V], with whatever the model does to logits after the layer.
    """
    hook = model.get_output_embeddings().register_forward_pre_hook(
        lambda _module, args: (pick(args[0]).unsqueeze(0), *args[1:])
    )
    try:
        yield
    finally:
        hook.remove()


@torch.no_grad()
def is_plain(model: PreTrainedModel) -> bool:
    """Whether the logits are just what the output layer gives: no scale, no soft cap, no cut.

    Asked once per model, by one token with states large enough for any treatment to show. A model
    that treats its logits must project through its own forward pass, in one piece.
    """
    if model not in _plain:
        head = model.get_output_embeddings()
        seen: list[Tensor] = []

        def pick(states: Tensor) -> Tensor:
            generator = torch.Generator().manual_seed(0)
            large = 10 * torch.randn(1, states.shape[-1], generator=generator)
            seen.append(large.to(states.device, states.dtype))
            return seen[0]

        token = torch.zeros(1, 1, dtype=torch.long, device=head.weight.device)
        with projecting(model, pick):
            logits = model(input_ids=token, use_cache=False).logits[0]
        own = head(seen[0])
        _plain[model] = own.shape == logits.shape and torch.allclose(own, logits)
    return _plain[model]


def look(
    logits_of: Callable[[Tensor], Tensor],
    states: Tensor,
    tokens: Tensor,
    *,
    temperature: float,
    chunk: int | None,
    with_entropy: bool,
    entropy_gradient: bool,
) -> tuple[Tensor, Tensor | None]:
    """Log-probability of `tokens` [K] after `states` [K, width], and the entropy there: [K] nats.

    In pieces of `chunk` states (None: all at once), so that no more than chunk × V logits exist.
    """

    def piece(states: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor | None]:
        logits = logits_of(states).float()
        if not with_entropy:
            return selective_logprobs(logits, tokens, temperature=temperature), None
        return logprobs_and_entropy(
            logits, tokens, temperature=temperature, entropy_gradient=entropy_gradient
        )

    if chunk is None or len(states) <= chunk:
        return piece(states, tokens)
    pieces = [
        checkpoint(piece, *pair, use_reentrant=False, preserve_rng_state=False)
        if torch.is_grad_enabled()
        else piece(*pair)
        for pair in zip(states.split(chunk), tokens.split(chunk), strict=True)
    ]
    logprobs = torch.cat([logprob for logprob, _ in pieces])
    return logprobs, torch.cat([entropy for _, entropy in pieces]) if with_entropy else None

"""A group-relative step on several ranks: each draws its share of the answers, all hold the batch.

Answers, rewards, groups and advantages are those of one process on every rank alike, so that what
is decided by them is too. Only the work is shared: ranks draw chunks of answers in turns, and each
computes the gradient of its rows of a forward pass, times the ranks, so that the mean over the
ranks is the step of one process. Where weights or the optimizer are split, who splits them takes
that mean; answers are drawn and looked at with all weights on every rank.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from trl.trainer import grpo_trainer

from workers import ranks


class Alone:
    """An accelerator as TRL would find it in a process of its own, where every rank has all rows:
    nothing is gathered, and no rank takes a slice."""

    num_processes, process_index = 1, 0

    def __init__(self, accelerator: Any) -> None:
        self._accelerator = accelerator

    def __getattr__(self, name: str) -> Any:
        return getattr(self._accelerator, name)

    def gather(self, tensor: Tensor) -> Tensor:
        return tensor

    def reduce(self, tensor: Tensor, reduction: str = "sum") -> Tensor:
        return tensor


@contextmanager
def alone(trainer: Any) -> Iterator[None]:
    """Inside, TRL computes as one process would."""
    if ranks.world() == 1:
        yield
        return
    accelerator, kept = trainer.accelerator, (grpo_trainer.gather, grpo_trainer.gather_object)
    trainer.accelerator = Alone(accelerator)
    grpo_trainer.gather = grpo_trainer.gather_object = _same
    try:
        yield
    finally:
        trainer.accelerator = accelerator
        grpo_trainer.gather, grpo_trainer.gather_object = kept


def _same(value: Any) -> Any:
    return value


def own_rows(inputs: Mapping[str, Any]) -> tuple[dict[str, Any], float, float]:
    """This rank's rows of a forward pass, their share of its rows, and their share of its tokens.
    A rank without any takes one that counts nothing."""
    if ranks.world() == 1:
        return dict(inputs), 1.0, 1.0
    world, rank = ranks.world(), ranks.rank()
    mask: Tensor = inputs["completion_mask"]
    count = len(mask)
    rows = torch.arange(rank, count, world, device=mask.device)
    taken = len(rows)
    if not taken:
        rows = torch.zeros(1, dtype=torch.long, device=mask.device)
    own = {
        name: value[rows] if isinstance(value, Tensor) and value.dim() else value
        for name, value in inputs.items()
    }
    tokens = float(own["completion_mask"].sum()) if taken else 0.0
    return own, taken / count, tokens / max(1.0, float(mask.sum()))


def same_randomness() -> None:
    """torch's own generator as the first rank's: TRL shuffles the batch by it, and a run that goes
    on with more processes than before has a new one on some of them."""
    if ranks.world() > 1:
        torch.set_rng_state(ranks.from_first(torch.get_rng_state()))


@contextmanager
def unlearning(trainer: Any) -> Iterator[None]:
    """Inside, a step in which no answer was better than another is none under DeepSpeed too. That
    steps in the last backward pass, by momentum where there is no gradient, unless the gradient is
    no number; then it leaves weights and moments as they are."""
    accelerator = trainer.accelerator
    backward = accelerator.backward

    def unless_silent(loss: Tensor, **kwargs: Any) -> None:
        if accelerator.sync_gradients and not ranks.any_of(trainer.teaches):
            loss = loss * math.nan
        backward(loss, **kwargs)

    accelerator.backward = unless_silent
    try:
        yield
    finally:
        del accelerator.backward  # the class has its own


@torch.no_grad()
def average_gradients(model: nn.Module) -> None:
    """Over the ranks, all at once. The wrapper that would do so (DistributedDataParallel) does
    nothing where it is not called itself, and answers are looked at through the policy inside."""
    if ranks.world() == 1:
        return
    gradients = [p.grad for p in model.parameters() if p.requires_grad and p.grad is not None]
    if not gradients:
        return
    total = ranks.summed(torch.cat([gradient.flatten() for gradient in gradients]))
    parts = (total / ranks.world()).split([gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))

"""What the ranks of a PPO run add up, and what one of them does for all."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import torch
from torch import Tensor, distributed, nn

from workers import ranks
from workers.contract.events import Fault, RecipeError

BUCKET = 16_000_000  # numbers that travel together


def add_up(tensor: Tensor) -> None:
    """The sum over all ranks in the place of each rank's own, alike to the bit on all of them."""
    if ranks.world() > 1:
        distributed.all_reduce(tensor)


def add_up_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Each parameter's gradient becomes the sum of all ranks'. A parameter without one has none on
    any rank, for all ranks make the same passes."""
    if ranks.world() == 1:
        return
    for bucket in _buckets([p.grad for p in parameters if p.grad is not None]):
        flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
        distributed.all_reduce(flat)
        parts = flat.split([gradient.numel() for gradient in bucket])
        for gradient, part in zip(bucket, parts, strict=True):
            gradient.copy_(part.view_as(gradient))


def _buckets(gradients: list[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    for gradient in gradients:
        if bucket and sum(each.numel() for each in bucket) + gradient.numel() > BUCKET:
            yield bucket
            bucket = []
        bucket.append(gradient)
    if bucket:
        yield bucket


Found = TypeVar("Found")


def by_first(work: Callable[[], Found]) -> Found:
    """What `work` gives on the first rank, on every rank. Where it fails there, it fails everywhere
    and with the same words. Every rank must call it, and `work` may ask nothing of the others."""
    if ranks.world() == 1:
        return work()
    found, failed = None, None
    if ranks.is_first():
        try:
            found = work()
        except Exception as error:
            ranks.from_first((None, _told(error)))
            raise
    found, failed = ranks.from_first((found, None))
    if failed is not None:
        kind, fault, message = failed
        raise RecipeError(kind, Fault(fault), message)
    return found


def _told(error: Exception) -> tuple[str, str, str]:
    if isinstance(error, RecipeError):
        return error.kind, error.fault.value, error.message
    return "bug", Fault.BUG.value, f"the first rank failed: {type(error).__name__}: {error}"

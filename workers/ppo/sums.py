"""Adding up tensors over the ranks of a job."""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, distributed, nn

from workers import ranks

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

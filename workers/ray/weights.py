"""Weights on their way through the object store: shards of bytes, by the names of the tensors.

A shard is one object, so that a large model is neither one allocation nor a thousand, and actors on
one machine read the same memory. Every number type travels, for only its bytes do.
"""

import warnings
from collections.abc import Iterable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

SHARD_BYTES = 256 * 2**20

Packed = tuple[str, tuple[int, ...], NDArray[np.uint8]]  # type, shape, bytes
Shard = dict[str, Packed]


def trained(policy: nn.Module) -> dict[str, Tensor]:
    """What an update may change."""
    return {name: p for name, p in policy.named_parameters() if p.requires_grad}


def fixed(policy: nn.Module) -> dict[str, Tensor]:
    """The rest, buffers included: it is sent once."""
    frozen = {name: p for name, p in policy.named_parameters() if not p.requires_grad}
    return frozen | dict(policy.named_buffers())


def shards(tensors: Mapping[str, Tensor], *, most: int = SHARD_BYTES) -> list[Shard]:
    """In shards of up to `most` bytes, or one tensor where that is larger."""
    found: list[Shard] = []
    size = most
    for name, tensor in tensors.items():
        packed = _pack(tensor)
        if size + packed[2].nbytes > most:
            found.append({})
            size = 0
        found[-1][name] = packed
        size += packed[2].nbytes
    return found


def size_of(tensors: Iterable[Tensor]) -> int:
    """Bytes."""
    return sum(t.numel() * t.element_size() for t in tensors)


@torch.no_grad()
def load(policy: nn.Module, shard: Shard) -> None:
    """Put the tensors of a shard into the model that has them by these names."""
    own = dict(policy.named_parameters()) | dict(policy.named_buffers())
    for name, (kind, shape, raw) in shard.items():
        with warnings.catch_warnings():  # the object store's memory is for reading, as this is
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            flat = torch.from_numpy(raw)
        own[name].copy_(flat.view(getattr(torch, kind)).reshape(shape))


def _pack(tensor: Tensor) -> Packed:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    kind = str(tensor.dtype).removeprefix("torch.")
    return kind, tuple(tensor.shape), flat.view(torch.uint8).numpy()

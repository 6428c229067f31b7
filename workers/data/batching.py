"""Batches of rows of similar length, so that little is padding."""

from collections.abc import Iterator, Sequence

import torch
from torch.utils.data import Sampler

BATCHES_PER_POOL = 8


class LengthGroupedSampler(Sampler[int]):
    """Row indices in which every run of `batch_size` has rows of similar length.

    Rows are shuffled, pooled by `BATCHES_PER_POOL` batches, sorted by length within the pool, and
    the batches shuffled again, so that neither their content nor their order follows the length.
    An incomplete batch comes last. The order depends on seed and epoch alone, so a resumed run
    goes on where it was.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, *, seed: int) -> None:
        self.lengths = torch.as_tensor(list(lengths))
        self.batch_size = batch_size
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.randperm(len(self.lengths), generator=generator)
        batches = [
            batch
            for pool in order.split(self.batch_size * BATCHES_PER_POOL)
            for batch in pool[self.lengths[pool].argsort(stable=True)].split(self.batch_size)
        ]
        rest = [b for b in batches if len(b) < self.batch_size]
        whole = [b for b in batches if len(b) == self.batch_size]
        for i in torch.randperm(len(whole), generator=generator).tolist():
            yield from whole[i].tolist()
        for batch in rest:
            yield from batch.tolist()


def padding_share(lengths: Sequence[int], order: Sequence[int], batch_size: int) -> float:
    """Share of padded positions when rows are batched in `order`: 0–1."""
    real = padded = 0
    for start in range(0, len(order), batch_size):
        batch = [lengths[i] for i in order[start : start + batch_size]]
        real += sum(batch)
        padded += max(batch) * len(batch)
    return 1 - real / padded if padded else 0.0

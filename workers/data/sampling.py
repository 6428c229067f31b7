"""Orders in which training rows come: by length, in strata, or rare groups as often as large ones.

Every order depends on seed and epoch alone, so a resumed run goes on where it was.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence

import torch
from torch.utils.data import Sampler

LENGTH_STRATA = 4


class OrderSampler(Sampler[int]):
    """Row indices as `order(generator)` gives them, anew for every epoch."""

    def __init__(self, order: Callable[[torch.Generator], list[int]], rows: int, *, seed: int):
        self.order = order
        self.rows = rows
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.rows

    def __iter__(self) -> Iterator[int]:
        yield from self.order(torch.Generator().manual_seed(self.seed + self.epoch))


def length_strata(lengths: Sequence[int]) -> list[int]:
    """The quarter of the lengths that each row is in, 0–3; equal lengths share theirs."""
    ordered = sorted(lengths)
    bounds = [ordered[len(ordered) * i // LENGTH_STRATA] for i in range(1, LENGTH_STRATA)]
    return [sum(length >= bound for bound in bounds) for length in lengths]


def stratified_order(strata: Sequence[Hashable], generator: torch.Generator) -> list[int]:
    """Every row once, so that any stretch of the order holds about its share of every stratum.

    Rows of a stratum are shuffled and spread evenly over the epoch from a random start (systematic
    sampling; Cochran, Sampling Techniques (1977), chapter 8).
    """
    members: dict[Hashable, list[int]] = {}
    for index, stratum in enumerate(strata):
        members.setdefault(stratum, []).append(index)
    places: list[tuple[float, int]] = []
    for rows in members.values():
        start = float(torch.rand(1, generator=generator))
        shuffled = torch.randperm(len(rows), generator=generator).tolist()
        places += [((i + start) / len(rows), rows[j]) for i, j in enumerate(shuffled)]
    return [index for _, index in sorted(places)]


def inverse_frequency_order(groups: Sequence[Hashable], generator: torch.Generator) -> list[int]:
    """As many draws as rows, with replacement, every group as likely as every other."""
    sizes: dict[Hashable, int] = {}
    for group in groups:
        sizes[group] = sizes.get(group, 0) + 1
    weights = torch.tensor([1 / sizes[group] for group in groups], dtype=torch.float64)
    return torch.multinomial(weights, len(groups), replacement=True, generator=generator).tolist()

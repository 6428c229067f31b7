"""Votes as three index vectors, and what each item's votes look like as counts."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from measures.voting import CHOICES

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

N_CHOICES = len(CHOICES)


@dataclass(frozen=True, slots=True)
class Votes:
    """One entry per vote: item i got choice c from annotator j.

    items, annotators: (n,) indices from 0, below n_items and n_annotators (either may have entries
    without a vote). choices: (n,) indices into `measures.voting.CHOICES`. offered: (4,), which
    choices the project offers; every choice that was cast is among them. Build it with
    `votes_from`, which checks all this.
    """

    items: Ints
    annotators: Ints
    choices: Ints
    n_items: int
    n_annotators: int
    offered: Bools

    def __post_init__(self) -> None:
        lengths = {len(self.items), len(self.annotators), len(self.choices)}
        if len(lengths) != 1:
            raise ValueError(f"items, annotators and choices differ in length: {sorted(lengths)}")
        _check_range("items", self.items, self.n_items)
        _check_range("annotators", self.annotators, self.n_annotators)
        _check_range("choices", self.choices, N_CHOICES)
        if self.offered.shape != (N_CHOICES,) or self.offered.dtype != np.bool_:
            raise ValueError(f"offered must hold {N_CHOICES} truth values")
        if not self.offered.any():
            raise ValueError("at least one choice must be offered")
        if self.choices.size and not self.offered[self.choices].all():
            raise ValueError("a choice was cast that is not offered")

    def __len__(self) -> int:
        return len(self.items)

    def subset(self, mask: ArrayLike) -> Self:
        """Those votes only; items and annotators keep their numbers."""
        chosen = np.asarray(mask)
        return type(self)(
            self.items[chosen],
            self.annotators[chosen],
            self.choices[chosen],
            self.n_items,
            self.n_annotators,
            self.offered,
        )

    def counts(self) -> Ints:
        """(n_items, 4) votes per item and choice."""
        cells = np.bincount(
            self.items * N_CHOICES + self.choices, minlength=self.n_items * N_CHOICES
        )
        return cells.reshape(self.n_items, N_CHOICES)


def votes_from(
    items: ArrayLike,
    annotators: ArrayLike,
    choices: ArrayLike,
    *,
    n_items: int | None = None,
    n_annotators: int | None = None,
    offered: ArrayLike | None = None,
) -> Votes:
    """Checked `Votes` from any integer vectors.

    n_items, n_annotators: None for one more than the largest index. offered: (4,) truth values;
    A and B are always offered, and so is every choice that was cast (a project may have offered it
    earlier). A wrong index is a ValueError.
    """
    item, annotator, choice = (
        _indices(name, values)
        for name, values in (("items", items), ("annotators", annotators), ("choices", choices))
    )
    _check_range("choices", choice, N_CHOICES)
    allowed = np.array([True, True, False, False])
    if offered is not None:
        allowed |= np.asarray(offered, dtype=bool)
    allowed |= np.bincount(choice, minlength=N_CHOICES) > 0
    return Votes(
        item,
        annotator,
        choice,
        _size(item) if n_items is None else n_items,
        _size(annotator) if n_annotators is None else n_annotators,
        allowed,
    )


def _indices(name: str, values: ArrayLike) -> Ints:
    vector = np.asarray(values)
    if vector.ndim != 1:
        raise ValueError(f"{name} must be a vector, not of shape {vector.shape}")
    if vector.size and not np.issubdtype(vector.dtype, np.integer):
        raise ValueError(f"{name} must be whole numbers, not {vector.dtype}")
    return vector.astype(np.int64, copy=False)


def _size(vector: Ints) -> int:
    return int(vector.max()) + 1 if vector.size else 0


def _check_range(name: str, values: Ints, limit: int) -> None:
    if values.size and (values.min() < 0 or values.max() >= limit):
        raise ValueError(f"{name} must lie between 0 and {limit - 1}")

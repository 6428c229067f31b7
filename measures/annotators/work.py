"""The votes of everybody as arrays, and what others made of each vote's pair."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from measures.voting import CHOICES

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

A, B, TIE, BOTH_BAD = range(4)
UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Work:
    """One entry per vote of n votes, J people, I pairs; in the order in which votes were cast.

    who: 0 … J − 1; pair: 0 … I − 1, a person at most once per pair; choice: index into
    `measures.voting.CHOICES`; left: 1 where the left answer was chosen, 0 the right one, −1 where
    neither was or sides are unknown; longer: 1 where the longer answer was chosen, 0 the shorter,
    −1 where neither was or they are as long as each other; active_ms: −1 unknown; gold: the pair's
    gold label as an index into CHOICES, −1 without; random: whether the pair was drawn at random,
    not picked. n_people is J. ordered: (J,) whether a person's votes carry their times, so that a
    change from the first to the last can be told; None: everybody's do.
    """

    who: Ints
    pair: Ints
    choice: Ints
    left: Ints
    longer: Ints
    active_ms: Ints
    gold: Ints
    random: Bools
    n_people: int
    ordered: Bools | None = None

    def __post_init__(self) -> None:
        lengths = {len(getattr(self, name)) for name in _PER_VOTE}
        if len(lengths) != 1:
            raise ValueError(f"one entry per vote everywhere, not {sorted(lengths)}")
        if len(self.who) and not 0 <= self.who.min() <= self.who.max() < self.n_people:
            raise ValueError("who must lie between 0 and n_people - 1")
        if len(self.choice) and not 0 <= self.choice.min() <= self.choice.max() < len(CHOICES):
            raise ValueError("choice must be an index into CHOICES")

    def __len__(self) -> int:
        return len(self.who)

    @property
    def in_order(self) -> Bools:
        """(n,) votes of people whose order is known."""
        if self.ordered is None:
            return np.ones(len(self.who), dtype=bool)
        return self.ordered[self.who]


_PER_VOTE = ("who", "pair", "choice", "left", "longer", "active_ms", "gold", "random")


@dataclass(frozen=True, slots=True)
class Repeats:
    """Hidden repeats, one entry each: the same person, the same pair, the sides swapped.

    who: 0 … J − 1; first, again: index into CHOICES; first_left, again_left: as `Work.left`.
    """

    who: Ints
    first: Ints
    again: Ints
    first_left: Ints
    again_left: Ints


@dataclass(frozen=True, slots=True)
class Others:
    """What the other votes on the same pair were, one entry per vote; NaN where there is none.

    same: share of them with the same choice; alike: share of agreeing pairs of votes among them
    (two others at least); neither: share that chose no side; longer: of those that chose between
    answers of unequal length, the share that chose the longer one. side_same, side_alike: as same
    and alike, among votes for A or B only; NaN for a vote that chose neither. right: share that
    chose what the pair's gold label says.
    """

    same: Floats
    alike: Floats
    side_same: Floats
    side_alike: Floats
    neither: Floats
    longer: Floats
    right: Floats


def others_of(work: Work) -> Others:
    """Leave-one-out: every figure is over the votes of other people on the same pair."""
    n_pairs = int(work.pair.max()) + 1 if len(work) else 0
    cell = work.pair * 4 + work.choice
    counts = np.bincount(cell, minlength=4 * n_pairs).reshape(n_pairs, 4).astype(np.float64)
    rest = counts.sum(axis=1)[work.pair] - 1
    own = counts.ravel()[cell]
    alike_all = (counts * (counts - 1)).sum(axis=1)[work.pair]
    sides = counts[:, :TIE]
    side_rest = np.where(work.choice < TIE, sides.sum(axis=1)[work.pair] - 1, 0)
    side_alike = (sides * (sides - 1)).sum(axis=1)[work.pair] - 2 * (own - 1)
    chose_none = (counts[:, TIE] + counts[:, BOTH_BAD])[work.pair] - (work.choice >= TIE)
    right = counts[work.pair, np.maximum(work.gold, 0)]
    sided = work.longer >= 0
    told = np.bincount(work.pair[sided], minlength=n_pairs)[work.pair] - sided
    chose_longer = np.bincount(work.pair[work.longer == 1], minlength=n_pairs)[work.pair]
    return Others(
        same=_share(own - 1, rest),
        alike=_share(alike_all - 2 * (own - 1), rest * (rest - 1)),
        side_same=_share(own - 1, side_rest),
        side_alike=_share(side_alike, side_rest * (side_rest - 1)),
        neither=_share(chose_none, rest),
        right=_share(right - (work.choice == work.gold), np.where(work.gold >= 0, rest, 0)),
        longer=_share(chose_longer - (work.longer == 1), told),
    )


def _share(part: NDArray, whole: NDArray) -> Floats:
    return np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)

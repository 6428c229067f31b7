"""The votes of everybody as arrays, and what others made of each vote's pair."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrc, stdtr, stdtrit

from measures.voting import CHOICES

# Means by person, with intervals and the tests that flags rest on. Everything is an array over
# people; NaN stands for "not there" and never leaves `measures.annotators`.

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

# A mean over fewer pairs has no t interval here: its rows take few values.
LEAST_PAIRS = 20


@dataclass(frozen=True, slots=True)
class Means:
    """(J,) each: rows, mean, standard error of the mean (NaN under `LEAST_PAIRS` rows), and the
    95 % t interval."""

    n: Ints
    mean: Floats
    error: Floats
    low: Floats
    high: Floats

    @classmethod
    def of(cls, n: Ints, mean: Floats, error: Floats) -> Self:
        margin = stdtrit(np.maximum(n - 1, 1), 0.975) * error
        return cls(n=n, mean=mean, error=error, low=mean - margin, high=mean + margin)

    def reshape(self, *shape: int) -> Self:
        fields = (self.mean, self.error, self.low, self.high)
        return type(self)(self.n.reshape(shape), *(x.reshape(shape) for x in fields))

    def p_above(self, limit: float | Floats) -> Floats:
        """One-sided t test of "at most `limit`": small where the mean lies above it."""
        return self._tail(limit - self.mean)

    def p_below(self, limit: float | Floats) -> Floats:
        return self._tail(self.mean - limit)

    def _tail(self, gap: Floats) -> Floats:
        """Without any spread in the rows the error is taken as that of one row that differs."""
        error = np.maximum(self.error, 1 / np.maximum(self.n, 1))
        return stdtr(np.maximum(self.n - 1, 1), gap / error)


def means_by(who: Ints, rows: Floats, n_people: int) -> Means:
    """rows: (n,) NaN where a vote says nothing; they are left out."""
    there = ~np.isnan(rows)
    people, values = who[there], rows[there]
    n = np.bincount(people, minlength=n_people)
    mean = _ratio(np.bincount(people, weights=values, minlength=n_people), n)
    squares = np.bincount(people, weights=(values - mean[people]) ** 2, minlength=n_people)
    variance = _ratio(squares, np.maximum(n - 1, 1))
    error = np.where(n >= LEAST_PAIRS, np.sqrt(variance / np.maximum(n, 1)), np.nan)
    return Means.of(n, mean, error)


def tail_at_least(hits: Ints, n: Ints, share: float) -> Floats:
    """(J,) exact P(at least `hits` of n) where each trial succeeds with probability `share`."""
    return np.where(hits > 0, bdtrc(np.maximum(hits - 1, 0), np.maximum(n, 1), share), 1.0)


def tail_at_most(hits: Ints, n: Ints, share: float | Floats) -> Floats:
    """(J,) exact P(at most `hits` of n)."""
    return np.where(n > 0, bdtr(hits, np.maximum(n, 1), share), 1.0)


def _ratio(part: NDArray, whole: NDArray) -> Floats:
    return np.divide(part, whole, out=np.full(len(part), np.nan), where=whole > 0)


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

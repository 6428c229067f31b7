"""Means by person, with intervals and the tests that flags rest on. Everything is an array over
people; NaN stands for "not there" and never leaves `measures.annotators`."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrc, stdtr, stdtrit

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
        fields = (self.n, self.mean, self.error, self.low, self.high)
        return type(self)(*(x.reshape(shape) for x in fields))

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

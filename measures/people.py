"""More people or more votes of the same people: how far a crowd's mean is from that of people like
them.

A person's own mean is μ + b, b with standard deviation τ between people, and is measured with an
error of its own. τ² by moments from k people's means m_i with standard errors e_i, w = 1/e²
(DerSimonian & Laird, Controlled Clinical Trials 7, 1986): τ² = (Q − (k − 1)) / (Σw − Σw²/Σw), 0 at
least, Q = Σ w (m − m̄_w)². The error of the mean over n votes is √(τ²/K + σ²/n): σ² is what is left
within a person, the mean of n e² over people, and K = (Σn)²/Σn² the effective number of people
(Kish, Survey Sampling, 1965): as many people with equal shares would have the same τ²/K.

Assumes people drawn at random from those one cares about and independent of each other; figures
that rest on each other (agreement with the others) are only nearly so.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from measures.estimate import Quantity, reason

LEAST_PEOPLE = 5


@dataclass(frozen=True, slots=True)
class Crowd:
    """people with votes; busiest: share of the votes by the one with most; effective: (Σn)²/Σn²."""

    people: int
    votes: int
    busiest: float | None
    effective: float | None


def crowd_of(votes: Sequence[int]) -> Crowd:
    """votes: of each person; those without any do not count."""
    counts = np.array([n for n in votes if n], dtype=np.float64)
    if (counts < 0).any():
        raise ValueError("votes are counted from 0")
    if not len(counts):
        return Crowd(0, 0, None, None)
    total = float(counts.sum())
    effective = total**2 / float((counts**2).sum())
    return Crowd(len(counts), int(total), float(counts.max()) / total, effective)


@dataclass(frozen=True, slots=True)
class Spread:
    """Of a figure that every person has: its mean over people, τ between them and σ of one vote."""

    people: int
    mean: float
    between: float
    within: float

    def error(self, *, effective: float, votes: float) -> float:
        """Standard error of the crowd's mean."""
        return math.sqrt(self.between**2 / effective + self.within**2 / votes)


def spread_of(
    means: Sequence[float], errors: Sequence[float], votes: Sequence[int]
) -> tuple[Spread | None, Quantity]:
    """By person; errors are standard errors above 0. The spread, and τ or why it is not known."""
    k = len(means)
    if k < LEAST_PEOPLE:
        return None, Quantity(None, reason("too_few", unit="people", n=k, least=LEAST_PEOPLE))
    m, e, n = (np.asarray(one, dtype=np.float64) for one in (means, errors, votes))
    if not (e > 0).all() or not (n > 0).all():
        raise ValueError("errors and votes must be above 0")
    w = 1 / e**2
    q = float((w * (m - np.average(m, weights=w)) ** 2).sum())
    between = math.sqrt(max(0.0, (q - (k - 1)) / float(w.sum() - (w**2).sum() / w.sum())))
    spread = Spread(k, float(m.mean()), between, math.sqrt(float((n * e**2).mean())))
    return spread, Quantity(between)

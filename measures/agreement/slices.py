"""Slices of the comparisons (a topic, a week, a length) and whether one is worse than the rest.

Looking at eighty slices finds a bad one by luck, so a slice is named only where the evidence holds
for all of them together (Holm), and the difference is large enough to act on.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr, stdtrit

from measures.agreement.clusters import Answers
from measures.agreement.reading import checked_counts
from measures.bootstrap import LEAST_UNITS
from measures.estimate import reason
from measures.intervals import dyadic_interval

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEAST_ITEMS = 30  # comparisons in a slice, and outside it, before the two are compared
LEAST_DIFFERENCE = 0.03  # of percent agreement: less is not worth a sentence
FALSE_ALARM = 0.05  # the chance that any slice is named where all are alike


@dataclass(frozen=True, slots=True)
class Gap:
    """Percent agreement in a slice minus that of all other slices of the same kind, as fractions.

    low, high: 95 % interval of this difference alone; p: one-sided, small where the slice is
    worse; adjusted: p after Holm over everything looked at (`holm`). `untested` says why not.
    """

    value: float | None
    low: float | None
    high: float | None
    p: float | None
    n: int
    adjusted: float | None = None
    untested: str | None = None

    @property
    def is_worse(self) -> bool:
        """Whether to name it: proved for all slices together, and large enough to matter."""
        return (
            self.adjusted is not None
            and self.value is not None
            and self.adjusted < FALSE_ALARM
            and self.value <= -LEAST_DIFFERENCE
        )


def item_agreement(counts: ArrayLike) -> Floats:
    """(items,) share of an item's pairs of votes that agree, NaN with fewer than two votes."""
    table = checked_counts(counts)
    votes = table.sum(axis=1)
    agreeing = (table * (table - 1)).sum(axis=1)
    missing = np.full(len(table), np.nan)
    return np.divide(agreeing, votes * (votes - 1), out=missing, where=votes >= 2)


def slice_gaps(
    scores: ArrayLike,
    slices: ArrayLike,
    *,
    n_slices: int,
    groups: ArrayLike | None = None,
    answers: Answers | None = None,
) -> list[Gap]:
    """Each slice against all the others of its kind.

    scores: (n,) `item_agreement`, NaN left out; slices: (n,) index of each item's slice; groups,
    answers: (n,) labels of what items share, used as in `measures.agreement.clusters`. The
    variance of the difference is the sandwich of its items' parts summed by group (or, by answer,
    that of `dyadic_interval`); what is on both sides counts with its difference, which is sharper
    where topics cross slices. A slice of fewer than `LEAST_UNITS` groups is these groups, not a
    sample of such, and so is the rest. The test is Welch's t with the slice's units − 1 degrees
    of freedom, which is too few rather than too many.

    Assumes slices fixed before the votes were seen, and enough items for the normal approximation.
    """
    value, place = np.asarray(scores, dtype=np.float64), np.asarray(slices, dtype=np.int64)
    kept = np.isfinite(value)
    labels = np.arange(len(value)) if groups is None else np.asarray(groups)
    both = None
    if answers is not None:
        both = (np.asarray(answers[0])[kept], np.asarray(answers[1])[kept])
    value, place, labels = value[kept], place[kept], labels[kept]
    return [_gap(value, place == number, labels, both) for number in range(n_slices)]


def _gap(value: Floats, inside: NDArray[np.bool_], labels: NDArray, both: Answers | None) -> Gap:
    n, others = int(inside.sum()), int((~inside).sum())
    if n < LEAST_ITEMS:
        return Gap(None, None, None, None, n, untested=reason("small_slice"))
    if others < LEAST_ITEMS:
        return Gap(None, None, None, None, n, untested=reason("small_rest"))
    here, rest = float(value[inside].mean()), float(value[~inside].mean())
    errors = np.where(inside, (value - here) / n, -(value - rest) / others)
    difference = here - rest
    deviation, units = _deviation(errors, inside, labels, both)
    if deviation <= 0:
        return Gap(difference, None, None, None, n, untested=reason("slice_alike"))
    half = float(stdtrit(units - 1, 0.975)) * deviation
    p = float(stdtr(units - 1, difference / deviation))
    return Gap(difference, difference - half, difference + half, p, n)


def _deviation(
    errors: Floats, inside: NDArray[np.bool_], labels: NDArray, both: Answers | None
) -> tuple[float, int]:
    """Standard error of the difference, and the independent units in the slice."""
    n_units = len(np.unique(labels[inside]))
    if min(n_units, len(np.unique(labels[~inside]))) >= LEAST_UNITS:
        _, unit = np.unique(labels, return_inverse=True)
        return math.sqrt(_variance(errors, unit.reshape(-1))), n_units
    if both is not None:
        n_units = len(np.unique(np.concatenate([side[inside] for side in both])))
        found = dyadic_interval(errors * len(errors), *both)
        if n_units >= LEAST_UNITS and found.low is not None and found.high is not None:
            quantile = float(stdtrit((found.n_clusters or 2) - 1, 0.975))
            return (found.high - found.low) / 2 / quantile, min(n_units, int(inside.sum()))
    return math.sqrt(_variance(errors, np.arange(len(errors)))), int(inside.sum())


def _variance(errors: Floats, unit: Ints) -> float:
    """Of a sum of errors that are alike within units; never under that of independent ones."""
    sums = np.bincount(unit, weights=errors)
    return max(float((sums**2).sum()), float((errors**2).sum())) * len(sums) / (len(sums) - 1)


def holm(gaps: list[Gap]) -> list[Gap]:
    """Adjust the p of all gaps together, whatever depends on whatever.

    The k-th smallest of m values of p becomes max over j ≤ k of (m − j + 1) p_(j), at most 1.
    Naming those under `FALSE_ALARM` names any slice wrongly in at most that share of projects.
    Source: Holm, Scandinavian Journal of Statistics 6 (1979).
    """
    tested = sorted((gap.p, place) for place, gap in enumerate(gaps) if gap.p is not None)
    adjusted, found = 0.0, list(gaps)
    for rank, (p, place) in enumerate(tested):
        adjusted = max(adjusted, min(1.0, (len(tested) - rank) * p))
        found[place] = replace(gaps[place], adjusted=adjusted)
    return found

"""Graded ratings and rankings: raters put on one scale, spread per prompt, pairs for training.

A task is one prompt with K responses; a rater gives each a grade (higher is better) or a rank
(1 is best, equal ranks are ties). Letters in shapes: K responses, R ratings of the whole task,
N single grades of a project.

Sources. Standardising each rater by their own mean and standard deviation: Graham, Baldwin, Moffat
& Zobel, "Continuous Measurement Scales in Human Evaluation of Machine Translation" (2013), as used
in the WMT shared tasks. Between and within spread: the mean squares of a one-way analysis of
variance, Shrout & Fleiss, "Intraclass Correlations" (1979), here as standard deviations in the unit
of the scale. K-way rankings as K·(K−1)/2 pairs: Ouyang et al., "Training language models to follow
instructions with human feedback" (2022), section 3.1; ties are dropped nowhere. The pairs of one
ranking are not independent of each other: resample tasks, not pairs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from measures.voting import Choice

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEAST_GRADES = 2  # of one rater: a single grade has no deviation
_SAME = 1e-12  # relative to the scale: a deviation below it is rounding, not a difference


@dataclass(frozen=True, slots=True)
class Normalised:
    """Grades in units of each rater's own standard deviation, from that rater's own mean.

    z: (N,) NaN for raters without a deviation. means, deviations: {rater: value} in the unit of
    the grades (population standard deviation). constant: raters who gave one value throughout, or
    fewer than `LEAST_GRADES`; their grades do not tell one response from another and are left out.
    """

    z: Floats
    means: dict[int, float]
    deviations: dict[int, float]
    constant: tuple[int, ...]


def normalise_by_rater(grades: ArrayLike, raters: ArrayLike) -> Normalised:
    """z = (grade − the rater's mean) ÷ the rater's standard deviation.

    grades: (N,) finite, any unit, all on the same scale; raters: (N,) whole numbers. Assumes that
    each rater saw a random share of the responses: someone who was given the worst ones is moved
    up by as much. ValueError for grades that are not finite or shapes that differ.
    """
    values = np.asarray(grades, dtype=np.float64)
    who = np.asarray(raters, dtype=np.int64)
    if values.ndim != 1 or values.shape != who.shape:
        raise ValueError(f"grades {values.shape} and raters {who.shape} must be lists of a length")
    if not np.isfinite(values).all():
        raise ValueError("a grade is not a finite number")
    people, index = np.unique(who, return_inverse=True)
    n = np.bincount(index, minlength=len(people))
    means = np.bincount(index, values, len(people)) / np.maximum(n, 1)
    centred = values - means[index]
    deviations = np.sqrt(np.bincount(index, centred**2, len(people)) / np.maximum(n, 1))
    largest = float(np.abs(values).max(initial=0.0))
    informative = (deviations > _SAME * largest) & (n >= LEAST_GRADES)
    z = np.full(values.shape, np.nan)
    keep = informative[index]
    z[keep] = centred[keep] / deviations[index][keep]
    return Normalised(
        z=z,
        means={int(k): float(m) for k, m in zip(people, means, strict=True)},
        deviations={int(k): float(s) for k, s in zip(people, deviations, strict=True)},
        constant=tuple(int(k) for k in people[~informative]),
    )


@dataclass(frozen=True, slots=True)
class Spread:
    """How the ratings of one task lie, in the unit of the scores; None where undefined.

    means: (K,) mean score of each response. between_responses: standard deviation of those means
    over the responses (K − 1 in the denominator; None for one response): large when the answers
    differ in quality. It holds the raters' noise too: about between_raters² ÷ n_ratings of its
    square. between_raters: pooled standard deviation of the raters around each response's mean
    ((R − 1)·K in the denominator; None below two ratings): large when people disagree.
    """

    n_ratings: int
    n_responses: int
    mean: float | None
    means: tuple[float, ...]
    between_responses: float | None
    between_raters: float | None


def spread_of(scores: ArrayLike) -> Spread:
    """The spread of one task. scores: (R, K), one row for each rating of the whole task."""
    table = np.asarray(scores, dtype=np.float64)
    if table.ndim != 2:
        raise ValueError(f"scores must be ratings × responses, not of shape {table.shape}")
    n_ratings, n_responses = table.shape
    if n_ratings == 0 or n_responses == 0:
        return Spread(n_ratings, n_responses, None, (), None, None)
    means = table.mean(axis=0)
    between = float(means.std(ddof=1)) if n_responses > 1 else None
    within = None
    if n_ratings > 1:
        within = float(np.sqrt(((table - means) ** 2).sum() / ((n_ratings - 1) * n_responses)))
    return Spread(
        n_ratings=n_ratings,
        n_responses=n_responses,
        mean=float(means.mean()),
        means=tuple(float(mean) for mean in means),
        between_responses=between,
        between_raters=within,
    )


def competition_ranks(ranks: Sequence[int]) -> list[int]:
    """The one form of a weak order: 1 + the number of responses that are strictly better.

    (1, 2, 2, 3), (1, 2, 2, 4) and (1, 3, 3, 9) are the same order and become (1, 2, 2, 4).
    """
    return [1 + sum(other < rank for other in ranks) for rank in ranks]


def rank_scores(ranks: Sequence[int]) -> list[float]:
    """A ranking as scores from 0 (worst) to 1 (best): the share of the others each one beats.

    A tie counts one half, so every ranking has the mean ½ (the normalised Borda count). ValueError
    for fewer than two responses, where there is nobody to beat.
    """
    if len(ranks) < 2:
        raise ValueError("a ranking needs at least two responses")
    return [
        sum((other > rank) + (other == rank) / 2 for i, other in enumerate(ranks) if i != own)
        / (len(ranks) - 1)
        for own, rank in enumerate(ranks)
    ]


@dataclass(frozen=True, slots=True)
class Preference:
    """One pair of a rating: places `a` < `b` in the task, and which is better. Ties stay ties."""

    a: int
    b: int
    choice: Choice


def pairs_of_grades(grades: Sequence[float]) -> list[Preference]:
    """The K·(K−1)/2 pairs of one rater's grades, by the sign of the difference."""
    return [
        Preference(a, b, _better(grades[a], grades[b]))
        for a, b in combinations(range(len(grades)), 2)
    ]


def pairs_of_ranking(ranks: Sequence[int]) -> list[Preference]:
    """The K·(K−1)/2 pairs of one ranking; 1 is best."""
    return pairs_of_grades([-rank for rank in ranks])


def _better(a: float, b: float) -> Choice:
    if a == b:
        return Choice.TIE
    return Choice.A if a > b else Choice.B

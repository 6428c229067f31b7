"""Weights of rows: even over strata, fading with age, never over a cap; grades on one scale."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ROUNDS = 200
_SETTLED = 1e-10
# A person's own scale counts like the crowd's after so many graded votes.
_PRIOR_GRADES = 5.0


@dataclass(frozen=True, slots=True)
class Capped:
    """weights: (n,) with mean 1 and none over the cap; at_cap: (n,) whether the cap holds it."""

    weights: Floats
    at_cap: NDArray[np.bool_]

    @property
    def n_capped(self) -> int:
        return int(self.at_cap.sum())


def even_weights(strata: Sequence[Sequence[Hashable]], n: int) -> Floats:
    """(n,) weights, mean 1, under which the strata of every classification weigh the same.

    strata: any number of classifications of the same n rows (length, topic, …), each the stratum of
    every row. With one it is the inverse frequency, n / (K n_s). With several their margins are
    evened in turn until all hold (raking: Deming & Stephan, Annals of Mathematical Statistics 11,
    1940), which moves the weights less than the inverse frequency of the crossed cells would.
    Where two classifications contradict each other (a topic all of whose rows are long) the margins
    cannot all hold, and the last round's weights stand: look at the weighted counts.
    """
    weights = np.ones(n)
    codes = [_codes(one) for one in strata if len(set(one)) > 1]
    if any(len(code) != n for code, _ in codes):
        raise ValueError(f"every classification must name the stratum of all {n} rows")
    for _ in range(_ROUNDS if len(codes) > 1 else 1):
        before = weights
        for code, k in codes:
            total = np.bincount(code, weights=weights, minlength=k)
            weights = weights * (n / k / total)[code]
        if np.abs(weights - before).max(initial=0.0) < _SETTLED:
            break
    return weights


def capped_weights(weights: ArrayLike, cap: float) -> Capped:
    """min(cap, c · w) with the one c that makes the mean 1.

    weights: (n,) at least 0; cap: at least 1, in units of the mean. So what a rare stratum loses to
    the cap goes to the rows below it. When too few rows have a positive weight for the mean to
    reach 1, those stand at the cap. A weight that is not finite is a ValueError.
    """
    w = np.asarray(weights, dtype=np.float64)
    if cap < 1:
        raise ValueError(f"cap must be at least 1, not {cap}")
    if w.size and (not np.isfinite(w).all() or w.min() < 0):
        raise ValueError("weights must be finite and at least 0")
    n = len(w)
    order = np.argsort(-w, kind="stable")
    falling = w[order]
    rest = np.concatenate([np.cumsum(falling[::-1])[::-1], [0.0]])
    for k in range(n):  # with the k largest at the cap
        if rest[k] <= 0:
            break
        scale = (n - k * cap) / rest[k]
        if scale * falling[k] <= cap * (1 + 1e-12):
            at_cap = np.zeros(n, dtype=bool)
            at_cap[order[:k]] = True
            return Capped(np.where(at_cap, cap, np.minimum(cap, scale * w)), at_cap)
    return Capped(np.where(w > 0, cap, 0.0), w > 0)


def recency_weights(ages: ArrayLike, half_life: float) -> Floats:
    """(n,) 0.5^(age / half-life); both in the same unit of time, ages at least 0."""
    age = np.asarray(ages, dtype=np.float64)
    if half_life <= 0 or not np.isfinite(half_life):
        raise ValueError(f"half_life must be over 0, not {half_life}")
    if age.size and (not np.isfinite(age).all() or age.min() < 0):
        raise ValueError("ages must be finite and at least 0")
    return np.exp2(-age / half_life)


def even_allocation(sizes: ArrayLike, total: int) -> Ints:
    """(k,) how many to take from each stratum so that `total` are taken as evenly as they come.

    Every stratum gives the same number; one that has fewer gives all it has, and the others fill
    in. What does not divide goes one each to the first that have more.
    """
    size = np.asarray(sizes, dtype=np.int64)
    if size.size and size.min() < 0:
        raise ValueError("sizes must be at least 0")
    left = min(int(total), int(size.sum()))
    taken = np.zeros_like(size)
    while left > 0:
        open_still = np.flatnonzero(taken < size)
        each = left // len(open_still)
        if each == 0:
            taken[open_still[:left]] += 1
            break
        more = np.minimum(each, size[open_still] - taken[open_still])
        taken[open_still] += more
        left -= int(more.sum())
    return taken


def scaled_grades(grades: ArrayLike, people: Sequence[Hashable]) -> Floats:
    """(n,) graded votes on one scale: each divided by its person's own root mean square.

    grades: (n,) signed, such as 2 much for A, −1 slightly for B, 0 a tie; people: whose each is.
    Somebody who uses twice the scale of the others then counts like them (SPEC B6). Not centred, as
    a z-score would be: the mean of a signed grade is the preference itself where A and B are not
    shuffled. A person's scale is drawn to the crowd's while they have few grades (weight 5), so one
    "much" of a newcomer is not blown up. Where all grades are 0 they stay so.
    """
    grade = np.asarray(grades, dtype=np.float64)
    if len(grade) != len(people):
        raise ValueError("every grade needs its person")
    crowd = float((grade**2).mean()) if grade.size else 0.0
    if crowd == 0:
        return np.zeros_like(grade)
    code, k = _codes(people)
    squares = np.bincount(code, weights=grade**2, minlength=k) + _PRIOR_GRADES * crowd
    counts = np.bincount(code, minlength=k) + _PRIOR_GRADES
    return grade / np.sqrt(squares / counts)[code]


def _codes(values: Sequence[Hashable]) -> tuple[Ints, int]:
    known: dict[Hashable, int] = {}
    codes = [known.setdefault(value, len(known)) for value in values]
    return np.array(codes, dtype=np.int64), len(known)

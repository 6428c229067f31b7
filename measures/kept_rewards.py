"""What the rewards of a run's last answers look like together, and what they follow."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from measures.estimate import Interval
from measures.trust.people import spearman

Floats = NDArray[np.float64]

GRAIN = 1e-6  # of the spread: scores nearer than this are one score
LEAST_IN_GROUP = 8


@dataclass(frozen=True, slots=True)
class Mode:
    """The most common score and the share of the scores that have it."""

    value: float
    share: float
    distinct: int  # how many different scores there are


def mode_of(scores: ArrayLike) -> Mode:
    """scores: (n,), n ≥ 1, raw. Scores are first rounded to a millionth of their standard
    deviation, for two forward passes of one text may round differently. Of several most common
    ones the lowest is taken."""
    s = _vector(scores)
    spread = float(s.std())
    grain = GRAIN * spread if spread > 0 else 1.0
    steps = np.round((s - s.min()) / grain)
    values, counts = np.unique(steps, return_counts=True)
    most = int(counts.argmax())
    found = float(s[steps == values[most]].mean())
    return Mode(found, float(counts[most] / len(s)), len(values))


def carried_share(scores: ArrayLike, few: float = 0.01) -> float | None:
    """Share of all squared deviations from the median that the farthest `few` of the answers hold.

    A normal distribution has 0.08 there for few = 0.01 (2(zφ(z) + 0.005) at z = 2.58), a Laplace
    0.24. scores: (n,) raw. At least one answer is counted, so few answers give a large share by
    themselves. None where all scores are alike.
    """
    s = _vector(scores)
    squares = np.sort((s - np.median(s)) ** 2)[::-1]
    total = float(squares.sum())
    if total <= 0:
        return None
    return float(squares[: max(1, int(few * len(s)))].sum() / total)


def rank_correlation_within(
    one: ArrayLike, other: ArrayLike, groups: Sequence[Hashable]
) -> Interval:
    """Spearman's ρ after each list was ranked within its group: −1 to 1, with a 95 % interval.

    one, other: (n,); groups: (n,) labels, such as the step. In a run that learns, length and reward
    may both rise from step to step without one following the other; within a step they cannot. Each
    list is replaced by its ranks within the group, scaled to −1 … 1, and the ranks of all groups
    are correlated. Groups with fewer than 8 rows say nothing of order and are left out; where all
    are so small, all rows are one group. Assumes rows that are independent of each other.
    """
    a, b = _vector(one), _vector(other)
    if not len(a) == len(b) == len(groups):
        raise ValueError("the lists and their groups must be equally long")
    members: dict[Hashable, list[int]] = {}
    for row, group in enumerate(groups):
        members.setdefault(group, []).append(row)
    large = [rows for rows in members.values() if len(rows) >= LEAST_IN_GROUP]
    kept = large or [list(range(len(a)))]
    return spearman(
        np.concatenate([_scaled(a[rows]) for rows in kept]),
        np.concatenate([_scaled(b[rows]) for rows in kept]),
    )


def _scaled(values: Floats) -> Floats:
    """Ranks between −1 and 1; 0 where all are alike."""
    if len(values) < 2:
        return np.zeros(len(values))
    from scipy.stats import rankdata  # a quarter of what a process loads at its start

    return 2 * (rankdata(values) - 1) / (len(values) - 1) - 1


def _vector(values: ArrayLike) -> Floats:
    rows = np.asarray(values, dtype=np.float64)
    if rows.ndim != 1 or not len(rows):
        raise ValueError(f"a non-empty vector is needed, not one of shape {rows.shape}")
    if not np.isfinite(rows).all():
        raise ValueError("some values are not finite")
    return rows

"""How to read an agreement estimate: a level for alarms.

The textbook mark for content analysis, alpha ≥ 0.667, is not used: people may differ on what they
prefer and both be right. For two-way votes on randomised sides alpha ≈ 2a − 1, so the 63–77 % that
published preference projects report is an alpha of about 0.26–0.54. What is judged is whether the
interval is on the wrong side of a line that means something: 60 % agreement, and chance.
"""

from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from measures.estimate import Estimate, Statistic

# From long votes to count matrices, and from a matrix to its distinct rows.

Ints = NDArray[np.int64]

_LARGEST_KEY = 2**62


def count_matrix(
    items: ArrayLike, categories: ArrayLike, *, n_items: int, n_categories: int
) -> Ints:
    """(n_items, n_categories) votes per item and category.

    items, categories: (votes,) indices from 0. Rows without votes stay all zero. An index outside
    its range is a ValueError.
    """
    item = np.asarray(items, dtype=np.int64)
    category = np.asarray(categories, dtype=np.int64)
    if item.shape != category.shape or item.ndim != 1:
        raise ValueError(
            f"items and categories must be equally long vectors: {item.shape}, {category.shape}"
        )
    _check_range("items", item, n_items)
    _check_range("categories", category, n_categories)
    cells = np.bincount(item * n_categories + category, minlength=n_items * n_categories)
    return cells.reshape(n_items, n_categories)


def checked_counts(counts: ArrayLike) -> Ints:
    """The matrix as (items, categories) whole numbers of at least 0, or a ValueError."""
    table = np.asarray(counts)
    if table.ndim != 2 or table.shape[1] < 1:
        raise ValueError(f"counts must have shape (items, categories), not {table.shape}")
    if table.size and (not np.issubdtype(table.dtype, np.integer) or table.min() < 0):
        raise ValueError("counts must be whole numbers of at least 0")
    return table.astype(np.int64, copy=False)


def distinct_rows(table: Ints) -> tuple[Ints, Ints]:
    """The distinct rows of a (n, m) count matrix and how often each occurs.

    A row is read as the digits of one integer, which a plain sort handles some thirty times faster
    than `np.unique(axis=0)`; where the digits would not fit, that slower way is taken.
    """
    if not len(table):
        return table, np.zeros(0, dtype=np.int64)
    base = int(table.max()) + 1
    largest = base ** table.shape[1]
    if largest >= _LARGEST_KEY:
        rows, times = np.unique(table, axis=0, return_counts=True)
        return rows, times.astype(np.int64)
    keys = table @ (base ** np.arange(table.shape[1], dtype=np.int64))
    if largest <= 4 * len(table):
        times = np.bincount(keys, minlength=largest)
        present = np.flatnonzero(times)
        times = times[present]
    else:
        present, times = np.unique(keys, return_counts=True)
    digits = present[:, None] // (base ** np.arange(table.shape[1], dtype=np.int64)) % base
    return digits, times.astype(np.int64)


def _check_range(name: str, values: Ints, limit: int) -> None:
    if values.size and (values.min() < 0 or values.max() >= limit):
        raise ValueError(f"{name} must lie between 0 and {limit - 1}")


LEAST_AGREEMENT = 0.6
LEAST_ITEMS = 30
# A chance-corrected interval wider than this would still contain 0 for a healthy preference
# project (alpha about 0.3), so containing 0 would say nothing.
WIDEST_TELLING = 0.4


class Level(StrEnum):
    """How worried to be. CRITICAL and BAD are alarms."""

    UNDEFINED = "undefined"
    TOO_FEW = "too_few"
    CRITICAL = "critical"
    BAD = "bad"
    UNSURE = "unsure"
    NO_ALARM = "no_alarm"


def reading(estimate: Estimate) -> Level:
    """Read an estimate.

    Percent agreement: BAD when the upper bound is under 0.6, UNSURE when the interval contains
    0.6. Chance-corrected statistics: CRITICAL when the interval contains 0 or lies under it.
    TOO_FEW under 30 comparisons, or when the interval is too wide to tell. UNDEFINED without a
    value; UNSURE where there is a value but no interval.
    """
    if estimate.value is None:
        return Level.UNDEFINED
    if estimate.n_items < LEAST_ITEMS:
        return Level.TOO_FEW
    low, high = estimate.low, estimate.high
    if low is None or high is None:
        return Level.UNSURE
    if estimate.statistic is Statistic.PERCENT_AGREEMENT:
        if high < LEAST_AGREEMENT:
            return Level.BAD
        return Level.UNSURE if low < LEAST_AGREEMENT else Level.NO_ALARM
    if low > 0:
        return Level.NO_ALARM
    return Level.TOO_FEW if high >= 0 and high - low > WIDEST_TELLING else Level.CRITICAL

"""What a batch of scores looks like: what it follows, and whether it still tells answers apart.

Plain numbers, one per answer. Each statistic is None where it is undefined, and says when.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

ALIKE = 1e-6  # of the spread: scores closer than this are one score
Values = Sequence[float] | NDArray[np.float64]


def rank_correlation(one: Values, other: Values) -> float | None:
    """Spearman's ρ, −1 … 1, ties at their mean rank. None where either is constant, or under three
    answers. It assumes nothing of the shape of the relation but that it is monotone."""
    if len(one) < 3:
        return None
    ranks = [rankdata(values) for values in (one, other)]
    a, b = (values - values.mean() for values in ranks)
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size > 0 else None


def mode_share(scores: Values) -> float | None:
    """Share of the answers at the most common score, 0–1: 1/n where all differ, 1 where all are
    alike. Scores are rounded to a millionth of their spread (greatest less least). Identical
    answers have identical scores, so a policy that repeats itself raises it too."""
    values = np.asarray(scores, float)
    if not len(values):
        return None
    spread = float(np.ptp(values))
    if spread == 0:
        return 1.0
    _, counts = np.unique(np.round((values - values.min()) / (ALIKE * spread)), return_counts=True)
    return float(counts.max()) / len(values)


def kurtosis(scores: Values) -> float | None:
    """Excess kurtosis m₄/m₂² − 3 of the batch: 0 for a normal spread, −2 for two equal heaps, large
    when a few scores lie far out (at most n − 2 + 1/(n − 1) − 3 of n scores). None under four
    answers or where all are alike. Biased downwards in a small batch: compare batches of one
    size."""
    values = np.asarray(scores, float)
    if len(values) < 4:
        return None
    away = values - values.mean()
    second = float((away**2).mean())
    if second <= (1e-12 * max(1.0, float(np.abs(values).max()))) ** 2:
        return None
    return float((away**4).mean()) / second**2 - 3.0

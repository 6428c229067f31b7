"""How far a model ranks outputs as people do, and how reliable their grades are."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from measures.bootstrap import LEAST_UNITS
from measures.estimate import Interval, reason

LEAST_RANK = 0.7
LEAST_OUTPUTS = 30
LEAST_GRADES = 2
# Variance of atanh of a rank correlation, times n − 3: Fieller, Hartley & Pearson 1957.
_FISHER = 1.06
_Z95 = 1.959964


def spearman(one: ArrayLike, other: ArrayLike) -> Interval:
    """Spearman's ρ of two (n,) lists, tied values sharing their mean rank, with a 95 % interval.

    tanh(atanh ρ ± 1.96 √(1.06/(n − 3))). Sources: Spearman 1904; Fieller, Hartley & Pearson,
    Biometrika 44 (1957). Assumes independent pairs; made for |ρ| up to about 0.8, beyond it the
    interval is a little short. Undefined where either list does not vary; ρ = ±1 and fewer than
    `LEAST_UNITS` pairs have no interval.
    """
    a, b = np.asarray(one, dtype=float), np.asarray(other, dtype=float)
    if a.shape != b.shape or a.ndim != 1:
        raise ValueError(f"two lists of a length, not {a.shape} and {b.shape}")
    n = len(a)
    if n < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return Interval(value=None, low=None, high=None, n=n, undefined=reason("side_alike"))
    from scipy.stats import rankdata  # a quarter of what a process loads at its start

    rho = float(np.corrcoef(rankdata(a), rankdata(b))[0, 1])
    if n < LEAST_UNITS:
        return Interval(
            value=rho,
            low=None,
            high=None,
            n=n,
            no_interval=reason("few_pairs", n=n, least=LEAST_UNITS),
        )
    if abs(rho) >= 1 - 1e-12:
        return Interval(value=rho, low=rho, high=rho, n=n)
    half = _Z95 * math.sqrt(_FISHER / (n - 3))
    z = math.atanh(rho)
    return Interval(value=rho, low=math.tanh(z - half), high=math.tanh(z + half), n=n)


def reliability(single_grades: Sequence[Sequence[float]]) -> float | None:
    """Share of the variance of mean grades that is the outputs' and not the graders', 0–1.

    1 − (mean variance of a mean)/(variance of the means), the variance of a single grade pooled
    over outputs: the intraclass correlation of means, ICC(1, k) (Shrout & Fleiss 1979), with each
    output's own number of grades. A correlation with noisy grades is lower by its square root
    (Spearman 1904). None where fewer than two outputs have two grades, or the means do not vary.
    """
    rows = [np.asarray(row, dtype=float) for row in single_grades if len(row) >= LEAST_GRADES]
    if len(rows) < 2:
        return None
    within = sum(float(((row - row.mean()) ** 2).sum()) for row in rows)
    within /= sum(len(row) - 1 for row in rows)
    between = float(np.var([row.mean() for row in rows], ddof=1))
    if between <= 0:
        return None
    noise = within * float(np.mean([1 / len(row) for row in rows]))
    return max(0.0, 1 - noise / between)

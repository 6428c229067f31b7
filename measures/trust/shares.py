"""A share over rows that hang together, with an interval that survives 0 and 1."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from measures.estimate import Interval
from measures.intervals import wilson


def clustered_share(credit: ArrayLike, clusters: Sequence[object]) -> Interval:
    """Mean of (n,) credits in [0, 1] (ties ½) and Wilson's 95 % interval at the effective size.

    Rows of a cluster are alike, so n rows hold less than n trials: n* = p(1 − p)/V, V the variance
    of the mean over clusters (ratio estimator, with k/(k − 1)), kept between 1 and n. Where
    p is 0 or 1 there is no variance to estimate and every cluster counts as one trial.

    Source: Korn & Graubard, Survey Methodology 24 (1998), with Wilson's interval in place of
    Clopper and Pearson's (Franco et al., J. Survey Statistics and Methodology 7, 2019). The
    bootstrap gives no interval where all rows are alike, which is where probes should end.
    Assumes independent clusters; `n` counts rows and `n_clusters` clusters.
    """
    values = np.asarray(credit, dtype=float)
    if not len(values):
        return Interval(value=None, low=None, high=None, n=0, undefined="no rows")
    _, group = np.unique(np.asarray([str(name) for name in clusters]), return_inverse=True)
    if group.shape != values.shape:
        raise ValueError(f"one cluster per row: {len(group)} for {len(values)}")
    n, k = len(values), int(group.max()) + 1
    p = float(values.mean())
    effective = _effective_size(values, group, p, k) if 0 < p < 1 else k
    found = wilson(p * effective, effective)
    return Interval(value=p, low=found.low, high=found.high, n=n, n_clusters=k)


def _effective_size(values: np.ndarray, group: np.ndarray, p: float, k: int) -> float:
    n = len(values)
    if k < 2:
        return 1.0
    totals = np.bincount(group, weights=values - p)
    variance = float((totals**2).sum()) / n**2 * k / (k - 1)
    return float(min(n, max(1.0, p * (1 - p) / variance))) if variance > 0 else float(n)

"""Intervals for shares, means and differences, with rows that hang together resampled together.

Rows that share a prompt, a debate or an argument are not independent; an interval that treats them
so is too short. Name what they share in `clusters`. With fewer than `LEAST_UNITS` clusters (or
rows, where rows stand alone) the value is given without an interval.
"""

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, stdtrit

from measures.bootstrap import LEAST_UNITS, REPLICATES, Bounds, bootstrap_bounds
from measures.estimate import Interval, reason

Floats = NDArray[np.float64]

_Z95 = NormalDist().inv_cdf(0.975)


def wilson(successes: float, n: float) -> Interval:
    """A share with Wilson's 95 % score interval.

    (p + z²/2n ± z √(p(1 − p)/n + z²/4n²)) / (1 + z²/n). Source: Wilson, JASA 22 (1927); Brown, Cai
    & DasGupta, Statistical Science 16 (2001). Assumes n independent yes/no trials; stays inside
    [0, 1] and is not empty at 0 or n. Halves (ties) are allowed and make it slightly too wide.
    Undefined for n = 0. For clustered rows use `mean_interval`.
    """
    if n < 0 or not 0 <= successes <= n:
        raise ValueError(f"successes must lie between 0 and n: {successes} of {n}")
    if n == 0:
        return Interval(value=None, low=None, high=None, n=0, undefined=reason("no_trials"))
    share = successes / n
    spread = _Z95 * math.sqrt(share * (1 - share) / n + _Z95**2 / (4 * n * n))
    centre = share + _Z95**2 / (2 * n)
    scale = 1 + _Z95**2 / n
    low = 0.0 if successes == 0 else (centre - spread) / scale
    high = 1.0 if successes == n else (centre + spread) / scale
    return Interval(value=share, low=low, high=high, n=int(n))


def upper_bound(successes: int, n: int, *, level: float = 0.95) -> Interval:
    """A share with its exact one-sided upper bound: what "no bad one in n" still allows.

    The largest p under which `successes` or fewer of n happen with chance 1 − level or more: the
    `level` quantile of Beta(successes + 1, n − successes); 1 where every trial is one. For none of
    n it is 1 − (1 − level)^(1/n), about 3/n. Source: Clopper & Pearson, Biometrika 26 (1934).
    Assumes n independent trials; drawn without replacement from a finite list it is a little too
    wide. `low` is 0: the other side is not bounded. Undefined for n = 0.
    """
    if n < 0 or not 0 <= successes <= n:
        raise ValueError(f"successes must lie between 0 and n: {successes} of {n}")
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1: {level}")
    if n == 0:
        return Interval(value=None, low=None, high=None, n=0, undefined=reason("no_trials"))
    high = 1.0 if successes == n else float(betaincinv(successes + 1, n - successes, level))
    return Interval(value=successes / n, low=0.0, high=high, n=n)


def mean_interval(
    values: ArrayLike,
    *,
    clusters: ArrayLike | None = None,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> Interval:
    """Mean over rows, with a percentile bootstrap of whole clusters.

    values: (n,) numbers, such as 1, ½ or 0 for right, tie, wrong; clusters: (n,) labels. Each
    replicate draws as many clusters as there are, keeps all their rows, and takes the mean over
    those rows (a ratio of sums, so clusters may differ in size). Source: Davison & Hinkley,
    Bootstrap Methods (1997), 3.8. Assumes independent clusters. Undefined without rows.
    """
    rows = _finite("values", values)
    if not len(rows):
        return Interval(value=None, low=None, high=None, n=0, undefined=reason("no_rows"))
    totals, unit = _cluster_totals(rows, clusters)
    kinds, multiplicity = np.unique(totals, axis=0, return_counts=True)
    bounds = bootstrap_bounds(
        kinds,
        multiplicity.astype(np.int64),
        lambda sums: sums[:, 0] / sums[:, 1],
        unit=unit,
        replicates=replicates,
        seed=seed,
    )
    return _interval(rows, bounds, None if clusters is None else len(totals))


def paired_difference(
    first: ArrayLike,
    second: ArrayLike,
    *,
    clusters: ArrayLike | None = None,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> Interval:
    """Mean of first − second on the same rows, clusters resampled as in `mean_interval`.

    Pairing removes what both share (hard rows are hard for both), so it is far sharper than
    comparing two intervals, which must not be done by looking whether they overlap.
    """
    one, other = _finite("first", first), _finite("second", second)
    if one.shape != other.shape:
        raise ValueError(f"first and second must be equally long: {len(one)} and {len(other)}")
    return mean_interval(one - other, clusters=clusters, replicates=replicates, seed=seed)


def dyadic_interval(values: ArrayLike, first: ArrayLike, second: ArrayLike) -> Interval:
    """Mean over pairs where each row joins two units that recur: "cluster by argument".

    values: (n,); first, second: (n,) labels of the two units of each row. Every two rows that share
    a unit may be correlated, so the variance of the mean is the sum of e_i e_j over all such pairs
    of rows (i = j included) over n², e the deviations from the mean: the units' squared sums of e,
    less the squared sums of rows with both units in common, which those count twice. The
    interval is mean ± t √V with units − 1 degrees of freedom, and V·units/(units − 1).

    Source: Aronow, Samii & Assenova, Political Analysis 23 (2015). Departures: V never falls under
    that of independent rows (negative correlation within units is not believed), and the factor
    for few units. Resampling units instead would be half as wide again, because it counts the
    noise of a single row three times (Owen, Annals of Applied Statistics 1, 2007).

    Assumes independent units, and the normal approximation: near 0 or 1 a bound may lie outside.
    Fewer than `LEAST_UNITS` units give no interval; no rows give no value. For a paired difference
    pass the differences.
    """
    rows = _finite("values", values)
    if not len(rows):
        return Interval(value=None, low=None, high=None, n=0, undefined=reason("no_rows"))
    left, right = np.asarray(first), np.asarray(second)
    if left.shape != rows.shape or right.shape != rows.shape:
        raise ValueError("values, first and second must be equally long")
    names, index = np.unique(np.concatenate([left, right]), return_inverse=True)
    pairs = np.sort(index.reshape(2, -1), axis=0)
    units = len(names)
    return _interval(rows, _dyadic_bounds(rows, pairs, units), units)


def t_interval(values: ArrayLike) -> Interval:
    """Mean over independent runs of one configuration, with Student's interval.

    values: (n,) one figure of each run, such as its last held-out reward. The interval is
    mean ± t(n − 1, 0.975) · s / √n, s the standard deviation with n − 1. Source: Student,
    Biometrika 6 (1908); that runs and not rows are the units: Colas, Sigaud & Oudeyer, "How Many
    Random Seeds?" (2018). Assumes independent runs and figures that are roughly normal over seeds,
    which a handful of runs cannot show; a percentile bootstrap of so few would be far too short.
    It tells how the configuration does on other seeds, on these data. With two runs it is wide
    (t = 12.7), and rightly so. One run has a value and no interval; runs that are all alike show
    no variation and have none either; no runs have no value.
    """
    rows = _finite("values", values)
    if not len(rows):
        return Interval(value=None, low=None, high=None, n=0, undefined=reason("no_runs"))
    if len(rows) == 1:
        bounds = Bounds(None, None, reason("one_run"))
    elif np.ptp(rows) == 0:
        bounds = Bounds(None, None, reason("runs_alike"))
    else:
        spread = float(rows.std(ddof=1)) / math.sqrt(len(rows))
        half = float(stdtrit(len(rows) - 1, 0.975)) * spread
        bounds = Bounds(float(rows.mean()) - half, float(rows.mean()) + half)
    return _interval(rows, bounds, None)


def _dyadic_bounds(rows: Floats, pairs: NDArray[np.int64], units: int) -> Bounds:
    """pairs: (2, n) unit indices, the smaller first."""
    if units < LEAST_UNITS:
        return Bounds(None, None, reason("too_few", unit="clusters", n=units, least=LEAST_UNITS))
    errors = rows - rows.mean()
    if np.ptp(rows) == 0:
        return Bounds(None, None, reason("rows_alike"))
    low, high = pairs
    apart = low != high  # a row may join a unit to itself; it belongs to that unit once
    of_unit = np.bincount(low, weights=errors, minlength=units)
    of_unit += np.bincount(high[apart], weights=errors[apart], minlength=units)
    _, dyad = np.unique(low[apart] * units + high[apart], return_inverse=True)
    twice = np.bincount(dyad, weights=errors[apart])
    total = float((of_unit**2).sum() - (twice**2).sum())
    variance = max(total, float((errors**2).sum())) / len(rows) ** 2 * units / (units - 1)
    half = float(stdtrit(units - 1, 0.975)) * math.sqrt(variance)
    return Bounds(float(rows.mean()) - half, float(rows.mean()) + half)


def _interval(rows: Floats, bounds: Bounds, n_clusters: int | None) -> Interval:
    return Interval(
        value=float(rows.mean()),
        low=bounds.low,
        high=bounds.high,
        n=len(rows),
        n_clusters=n_clusters,
        no_interval=bounds.reason,
    )


def _cluster_totals(rows: Floats, clusters: ArrayLike | None) -> tuple[Floats, str]:
    """(clusters, 2) sums and sizes, and the plural of what a cluster is."""
    if clusters is None:
        return np.column_stack([rows, np.ones(len(rows))]), "rows"
    labels = np.asarray(clusters)
    if labels.shape != rows.shape:
        raise ValueError(f"clusters must hold one label per row: {labels.shape} for {rows.shape}")
    _, group = np.unique(labels, return_inverse=True)
    return np.column_stack([np.bincount(group, weights=rows), np.bincount(group)]), "clusters"


def _finite(name: str, values: ArrayLike) -> Floats:
    rows = np.asarray(values, dtype=np.float64)
    if rows.ndim != 1:
        raise ValueError(f"{name} must be a vector, not of shape {rows.shape}")
    bad = np.flatnonzero(~np.isfinite(rows))
    if len(bad):
        raise ValueError(f"{name}[{bad[0]}] is {rows[bad[0]]}: {len(bad)} values are not finite")
    return rows

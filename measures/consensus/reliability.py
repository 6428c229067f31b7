"""Do predicted shares of votes hold: reliability diagram, calibration error, slope."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from measures.consensus.posterior import Floats, softmax
from measures.consensus.predicting import Predictions

BINS = 15
_DRAWS = 1_000


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of the reliability diagram: mean claim, observed share, number of claims."""

    predicted: float
    observed: float
    n: int


@dataclass(frozen=True, slots=True)
class Ranged:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


def reliability(found: Predictions) -> tuple[tuple[Bar, ...], Ranged]:
    """Bars, and the calibration error over all n·K claims "the vote is c, with chance p".

    Claims are sorted into 15 bins of equal numbers; a bin's gap g is its mean claim less the
    observed share, with the standard error s, items as independent units. The error is
    √max(0, Σ w (g² − s²)), w the bin's share of the claims: the root mean square gap without what
    noise alone adds, which the usual Σ w |g| keeps and which makes it positive for a perfect model.
    Interval: the same with gaps redrawn from N(g, s). Source: Kumar, Liang & Ma, NeurIPS 2019;
    Bröcker, Climate Dynamics 39 (2012).
    """
    n, k = found.claims.shape
    happened = np.zeros((n, k))
    happened[np.arange(n), found.cast] = 1
    p, y = found.claims.ravel(), happened.ravel()
    order = np.argsort(p, kind="stable")
    item = np.repeat(found.items, k)[order]
    p, y = p[order], y[order]
    bars, errors = [], []
    for low, high in pairwise(np.linspace(0, n * k, BINS + 1).astype(int)):
        if high > low:
            claim, share = float(p[low:high].mean()), float(y[low:high].mean())
            sums = np.bincount(item[low:high], weights=p[low:high] - y[low:high] - (claim - share))
            bars.append(Bar(claim, share, int(high - low)))
            errors.append(float(np.sqrt((sums**2).sum())) / (high - low))
    weight = np.array([bar.n for bar in bars]) / (n * k)
    gap, error = np.array([bar.predicted - bar.observed for bar in bars]), np.array(errors)
    drawn = gap + error * np.random.default_rng(0).standard_normal((_DRAWS, len(gap)))
    value = float(_root((gap**2 - error**2) @ weight))
    # A redrawn gap holds the noise twice: in g and in the draw.
    low, high = _root(np.percentile((drawn**2 - 2 * error**2) @ weight, [2.5, 97.5]))
    return tuple(bars), Ranged(value, min(value, float(low)), max(value, float(high)))


def _root(square: ArrayLike) -> Floats:
    return np.sqrt(np.maximum(0.0, np.asarray(square)))


def slope(found: Predictions) -> Ranged | None:
    """The power b under which the votes are most likely: p^b / Σ p^b.

    1: as confident as it should be; below 1 over-confident, above 1 too timid. One over the
    temperature of Guo et al. (ICML 2017), by Newton's method; interval from the scores summed over
    items (sandwich). None where all claims are even, so that any b fits.
    """
    logs = np.log(np.maximum(found.claims, 1e-12))
    seen = logs[np.arange(len(logs)), found.cast]
    b, curvature = 1.0, 0.0
    mean: Floats = seen
    for _ in range(25):
        weights = softmax(b * logs)
        mean = (weights * logs).sum(axis=1)
        curvature = float(((weights * logs**2).sum(axis=1) - mean**2).sum())
        if curvature <= 1e-9 * len(logs):
            return None
        step = float((seen - mean).sum()) / curvature
        b = min(max(b + step, b / 3, 0.01), b * 3, 20.0)
        if abs(step) < 1e-6:
            break
    scores = np.bincount(found.items, weights=seen - mean)
    half = 1.96 * float(np.sqrt((scores**2).sum())) / curvature
    return Ranged(b, b - half, b + half)

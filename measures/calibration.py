"""Do a reward model's margins mean the probabilities they claim?

A margin Δ = r(first) − r(second) claims P(first preferred) = σ(Δ / T). Always showing the chosen
answer first makes every label 1 and hides over-confidence: call `randomise_orientation` before.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import expit, log_expit

from measures.estimate import Quantity, reason

Floats = NDArray[np.float64]

BINS = 15
_STEEPEST = 1e6  # 1/T at which a fit counts as separable


@dataclass(frozen=True, slots=True)
class Bin:
    """One bar of a reliability diagram: mean claim, mean outcome, number of pairs."""

    predicted: float
    observed: float
    n: int


@dataclass(frozen=True, slots=True)
class Calibration:
    """ECE and Brier in [0, 1], log-loss in nats per pair; all None where undefined."""

    ece: float | None
    brier: float | None
    log_loss: float | None
    n: int
    bins: tuple[Bin, ...]
    undefined: str | None = None


def randomise_orientation(margins: ArrayLike, *, seed: int) -> tuple[Floats, Floats]:
    """Turn chosen − rejected margins into (margins, labels) with the chosen one first in half.

    margins: (n,). A fair coin per pair: heads (Δ, 1), tails (−Δ, 0).
    """
    delta = _finite(margins)
    heads = np.random.default_rng(seed).integers(0, 2, size=delta.shape).astype(bool)
    return np.where(heads, delta, -delta), heads.astype(np.float64)


def calibration(
    margins: ArrayLike, labels: ArrayLike, *, temperature: float = 1.0, bins: int = BINS
) -> Calibration:
    """ECE over equal-mass bins, Brier score and log-loss of p = σ(Δ / T).

    margins: (n,); labels: (n,) in [0, 1], the share that prefers the first. ECE = Σ_b n_b/n
    |mean p − mean y| over `bins` bins of (nearly) equal numbers; equal p never straddle two bins,
    so there may be fewer. Brier = mean (p − y)²; log-loss = −mean(y ln p + (1 − y) ln(1 − p)).
    Sources: Guo et al., ICML 2017; Nixon et al., CVPR workshops 2019 (equal mass); Brier 1950.

    Binned ECE is above 0 even for a perfect model, by up to about 0.4 √(bins/n): compare it at
    equal n, not with 0. Undefined with fewer pairs than bins.
    """
    delta, y = _checked(margins, labels)
    if temperature <= 0:
        raise ValueError(f"temperature must be positive, not {temperature}")
    n = len(delta)
    if n < bins:
        return Calibration(None, None, None, n, (), reason("few_for_bins", n=n, bins=bins))
    z = delta / temperature
    p = expit(z)
    bars = _reliability(p, y, bins)
    return Calibration(
        ece=sum(bar.n * abs(bar.predicted - bar.observed) for bar in bars) / n,
        brier=float(np.mean((p - y) ** 2)),
        log_loss=float(-np.mean(y * log_expit(z) + (1 - y) * log_expit(-z))),
        n=n,
        bins=bars,
    )


def fit_temperature(margins: ArrayLike, labels: ArrayLike) -> Quantity:
    """The T > 0 that minimises the log-loss of σ(Δ / T).

    The loss is convex in b = 1/T; its slope Σ Δ (σ(bΔ) − y) is set to zero by Brent's method. Fit
    it on its own split. Source: Guo et al., ICML 2017. T > 1: over-confident; T < 1: too timid.

    Undefined without pairs; where the margins point the wrong way or nowhere (the slope at b = 0 is
    not downhill); and where they separate the labels, so that any smaller T is better still.
    """
    delta, y = _checked(margins, labels)
    if not len(delta):
        return Quantity(None, reason("no_pairs"))

    def slope(b: float) -> float:
        return float(np.sum(delta * (expit(b * delta) - y)))

    if slope(0.0) >= 0:
        return Quantity(None, reason("margins_opposed"))
    steepest = _STEEPEST / float(np.abs(delta).max())
    if slope(steepest) <= 0:
        return Quantity(None, reason("margins_separate"))
    flattest = float(brentq(slope, 0.0, steepest, xtol=1e-14, rtol=1e-12))
    if flattest <= 0:  # downhill by no more than rounding
        return Quantity(None, reason("margins_opposed"))
    return Quantity(1 / flattest)


def _reliability(p: Floats, y: Floats, bins: int) -> tuple[Bin, ...]:
    order = np.argsort(p, kind="stable")
    p, y = p[order], y[order]
    cuts = np.arange(1, bins) * len(p) // bins
    # A cut inside a run of equal p moves to the end of the run.
    ends = np.unique(np.append(np.searchsorted(p, p[cuts - 1], side="right"), len(p)))
    starts = np.append(0, ends[:-1])
    return tuple(
        Bin(float(p[i:j].mean()), float(y[i:j].mean()), int(j - i))
        for i, j in zip(starts, ends, strict=True)
    )


def _finite(margins: ArrayLike) -> Floats:
    delta = np.asarray(margins, dtype=np.float64)
    if delta.ndim != 1 or not np.isfinite(delta).all():
        raise ValueError("margins must be a vector of finite numbers")
    return delta


def _checked(margins: ArrayLike, labels: ArrayLike) -> tuple[Floats, Floats]:
    delta, y = _finite(margins), np.asarray(labels, dtype=np.float64)
    if y.shape != delta.shape:
        raise ValueError(f"one label per margin: {y.shape} for {delta.shape}")
    if y.size and not (y.min() >= 0 and y.max() <= 1):
        raise ValueError("labels must lie between 0 and 1")
    return delta, y

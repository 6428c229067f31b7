"""Best of n answers: how far it is from the policy, what it gains, and where the gain would turn.

P prompts, N answers each, n ≤ N taken, G values of n.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, ndtri

from measures.bootstrap import REPLICATES, resampled_sums
from measures.estimate import Interval

Floats = NDArray[np.float64]

LARGEST_N = 256  # SPEC D9


@dataclass(frozen=True, slots=True)
class Fit:
    """R(d) = d (α − β d), d = √KL, in standard deviations of a prompt's answers.

    peak_kl: (α/2β)², infinite where the curve does not bend down, 0 where it falls from the start;
    low, high: 95 % of the prompts' resamples, which may be infinite too. rise: α with its interval.
    """

    alpha: float
    beta: float
    peak_kl: float
    low: float
    high: float
    rise: Interval


def kl_of(n: ArrayLike) -> Floats:
    """ln n − (n − 1)/n nats between best-of-n and the policy (Stiennon et al. 2020, app. G.3)."""
    size = np.asarray(n, dtype=float)
    return np.log(size) - (size - 1) / size


def grid(draws: int) -> NDArray[np.int64]:
    """1, 2, 4 … up to half the draws and 256."""
    most = min(LARGEST_N, max(1, draws // 2))
    return 2 ** np.arange(int(math.log2(most)) + 1)


def best_of(chooser: ArrayLike, values: ArrayLike, sizes: ArrayLike) -> Floats:
    """(P, G): what `values` says of the best by `chooser` out of n of the N draws, in expectation.

    chooser, values: (P, N); sizes: (G,) n ≤ N. The average over all subsets of n is
    Σᵢ C(i−1, n−1)/C(N, n) · v₍ᵢ₎, v₍ᵢ₎ the value of the i-th smallest by `chooser`: unbiased for
    fresh draws (as the estimator of Nakano et al., WebGPT, 2021, app. I). Equal choosers share the
    mean of their values, as if one of them was drawn.
    """
    own, other = np.asarray(chooser, dtype=float), np.asarray(values, dtype=float)
    if not (np.isfinite(own).all() and np.isfinite(other).all()):
        raise ValueError("a score is no number")
    ordered = np.array([_by_chooser(a, b) for a, b in zip(own, other, strict=True)])
    return ordered @ _weights(own.shape[1], np.asarray(sizes)).T


def normal_scores(values: ArrayLike) -> Floats:
    """(P, N) → Φ⁻¹((rank − 3/8)/(N + 1/4)) within each row, ties at their mean rank (Blom 1958)."""
    from scipy.stats import rankdata  # a quarter of what a process loads at its start

    ranks = rankdata(np.asarray(values, dtype=float), axis=1)
    return ndtri((ranks - 0.375) / (ranks.shape[1] + 0.25))


def fit_peak(
    gains: ArrayLike, sizes: ArrayLike, *, replicates: int = REPLICATES, seed: int = 0
) -> Fit:
    """Least squares of the mean over prompts, and prompts resampled for the interval.

    gains: (P, G) each prompt's value at n less its value at n = 1; sizes: (G,), the first is 1.
    """
    rows = np.asarray(gains, dtype=float)
    distance = np.sqrt(kl_of(sizes))
    solve = np.linalg.pinv(np.column_stack([distance, -(distance**2)]))  # (2, G)
    means = resampled_sums(
        rows, np.ones(len(rows), dtype=np.int64), replicates=replicates, seed=seed
    ) / len(rows)
    alphas, betas = solve @ means.T
    alpha, beta = (float(x) for x in solve @ rows.mean(axis=0))
    peaks = np.sort([_peak(a, b) for a, b in zip(alphas, betas, strict=True)])
    low, high = (float(peaks[int(q * (len(peaks) - 1))]) for q in (0.025, 0.975))
    first, last = (float(x) for x in np.percentile(alphas, [2.5, 97.5]))
    return Fit(
        alpha=alpha,
        beta=beta,
        peak_kl=_peak(alpha, beta),
        low=low,
        high=high,
        rise=Interval(value=alpha, low=first, high=last, n=len(rows)),
    )


def _peak(alpha: float, beta: float) -> float:
    if alpha <= 0:
        return 0.0
    return (alpha / (2 * beta)) ** 2 if beta > 0 else math.inf


def _by_chooser(chooser: Floats, values: Floats) -> Floats:
    """Values from the lowest to the highest by `chooser`, equal ones averaged."""
    _, group = np.unique(chooser, return_inverse=True)
    mean = np.bincount(group, weights=values) / np.bincount(group)
    return mean[np.sort(group)]


def _weights(draws: int, sizes: NDArray[np.int64]) -> Floats:
    """(G, N) C(i−1, n−1)/C(N, n), by logarithms since they overflow."""
    place, n = np.arange(1, draws + 1)[None, :], sizes[:, None]
    with np.errstate(invalid="ignore"):
        log = _log_choose(place - 1, n - 1) - _log_choose(np.full_like(n, draws), n)
    return np.where(place >= n, np.exp(log), 0.0)


def _log_choose(n: NDArray[np.int64], k: NDArray[np.int64]) -> Floats:
    n, k = np.broadcast_arrays(n, k)
    inside = np.maximum(n - k, 0)  # where n < k the caller puts 0
    return gammaln(n + 1) - gammaln(k + 1) - gammaln(inside + 1)

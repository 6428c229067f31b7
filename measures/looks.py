"""What looking at a split again, or choosing among several systems on it, costs."""

import math
from functools import cache

import numpy as np
from scipy.special import log_ndtr

FALSE_ALARM = 0.05  # alpha over all looks together
_FAR = 12.0  # standard errors: beyond them lies less than a double can hold


def look_alpha(look: int, alpha: float = FALSE_ALARM) -> float:
    """α_k = 6α / (π²k²) for the k-th look at a split, from 1: over all looks, however many there
    will be, the sum is α (Σ 1/k² = π²/6). The first look gets 61 % of it. Holds whatever the
    dependence between looks, by Bonferroni. `ValueError` under 1."""
    if look < 1:
        raise ValueError(f"looks count from 1, not {look}")
    return 6.0 * alpha / (math.pi**2 * look**2)


@cache
def best_of_inflation(candidates: int) -> float:
    """By how many standard errors the best of N equally good candidates lies above the truth.

    E[max of N standard normals] = ∫ x N φ(x) Φ(x)^(N − 1) dx, integrated numerically (absolute
    error under 1e-8): 0, 0.56, 0.85, 1.16 (5), 1.54 (10). Assumes independent errors of the same
    size; candidates that share prompts have correlated errors, and then it is an upper end.
    `ValueError` under 1.
    """
    if candidates < 1:
        raise ValueError(f"there must be at least one candidate, not {candidates}")
    x = np.linspace(-_FAR, _FAR, 4_801)
    # Smooth and zero at both ends, so the trapezoidal rule is as good as any other.
    density = x * np.exp((candidates - 1) * log_ndtr(x) - x * x / 2)
    return candidates / math.sqrt(2.0 * math.pi) * float(np.trapezoid(density, x))

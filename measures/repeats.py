"""The same system measured again: pass@k of several draws, and the spread between repeats."""

import math
from collections.abc import Sequence

import numpy as np

LEAST_REPEATS = 2  # of which a spread can be had; 3 are asked for where it matters


def pass_at_k(draws: int, right: int, k: int) -> float:
    """The chance that at least one of k draws is right, without bias: 1 − C(n − c, k) / C(n, k).

    draws n, right c of them. Source: Chen et al., "Evaluating Large Language Models Trained on
    Code" (arXiv 2107.03374), equation 1; as the product Π (1 − k/i) over i = n − c + 1 … n, which
    does not overflow. The plain 1 − (1 − c/n)^k is too low. Assumes draws that are independent
    given the prompt. `ValueError` where k draws were not made.
    """
    if not 0 <= right <= draws or not 1 <= k <= draws:
        raise ValueError(f"of {draws} draws {right} right, and k = {k}: k must be 1 to draws")
    if draws - right < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / i for i in range(draws - right + 1, draws + 1))


def repeat_spread(values: Sequence[float]) -> float | None:
    """σ_repeat: the standard deviation (r − 1) of a figure over r repeats of the unchanged system,
    in the figure's unit. None for fewer than two."""
    if len(values) < LEAST_REPEATS:
        return None
    return float(np.std(np.asarray(values, dtype=np.float64), ddof=1))


def least_difference(sigma: float) -> float:
    """2·σ_repeat·√2: what two results of one system differ by in about one of twenty pairs.

    The variance of a difference of two independent repeats is 2σ². With σ from three repeats this
    is a rule of thumb and no test; the interval over prompts stands beside it.
    """
    return 2.0 * sigma * math.sqrt(2.0)


def inside_repeat_spread(difference: float, sigma: float) -> bool:
    """Whether a difference is no larger than repeats of one system differ by: then it is not
    claimed. A difference of 0 never is."""
    return abs(difference) <= least_difference(sigma)

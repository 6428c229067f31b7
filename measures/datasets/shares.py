"""A share over pairs whose texts recur, with its interval."""

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from measures.estimate import Interval
from measures.intervals import dyadic_interval, wilson


def pair_share(values: ArrayLike, first: ArrayLike, second: ArrayLike) -> Interval:
    """`dyadic_interval` of numbers from 0 to 1, its bounds kept in that range.

    Where all rows are alike (every one 1, or every one 0) the dyadic interval is silent; Wilson's
    over the number of distinct texts, halved, stands in: so many pairs can be had without a text
    recurring, so it is too wide rather than too narrow.
    """
    found = dyadic_interval(values, first, second)
    rows = np.asarray(values, dtype=np.float64)
    if found.low is not None and found.high is not None:
        return replace(found, low=max(0.0, found.low), high=min(1.0, found.high))
    alike = len(rows) > 0 and np.ptp(rows) == 0 and rows[0] in (0.0, 1.0)
    if alike and found.n_clusters is not None and found.n_clusters >= 2:
        apart = min(len(rows), found.n_clusters // 2)
        bounds = wilson(rows[0] * apart, apart)
        return replace(found, low=bounds.low, high=bounds.high, no_interval=None)
    return found

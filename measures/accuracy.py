"""Accuracy of a scorer on preference pairs."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from measures.bootstrap import REPLICATES
from measures.estimate import Interval
from measures.intervals import mean_interval


def pair_credit(margins: ArrayLike) -> NDArray[np.float64]:
    """1 where chosen scores higher, ½ where both score the same, 0 where rejected does.

    margins: (n,) score of chosen − score of rejected, any unit. Counting ties as wrong, as some
    trainers do, punishes a scorer for not knowing more than for being wrong half the time. NaN is a
    ValueError: a scorer that returns it is broken, not undecided.
    """
    delta = np.asarray(margins, dtype=np.float64)
    bad = np.flatnonzero(np.isnan(delta))
    if len(bad):
        raise ValueError(f"margins[{bad[0]}] is NaN ({len(bad)} of {delta.size} are)")
    return (np.sign(delta) + 1) / 2


def pair_accuracy(
    margins: ArrayLike,
    *,
    clusters: ArrayLike | None = None,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> Interval:
    """Mean `pair_credit`, with the interval of `measures.intervals.mean_interval`."""
    return mean_interval(pair_credit(margins), clusters=clusters, replicates=replicates, seed=seed)

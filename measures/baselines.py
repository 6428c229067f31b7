"""What a reward model must beat: rules that read nothing."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from measures.accuracy import pair_accuracy
from measures.bootstrap import REPLICATES
from measures.estimate import Interval, reason
from measures.intervals import mean_interval


def length_only_accuracy(
    chosen_lengths: ArrayLike,
    rejected_lengths: ArrayLike,
    *,
    clusters: ArrayLike | None = None,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> Interval:
    """Accuracy of "the longer answer wins", ½ where both are equally long.

    Lengths in any one unit (tokens or characters; say which beside the figure). Compare it with the
    model on the same rows by `measures.intervals.paired_difference`. Under ½ the shorter wins more
    often, which a model could use just as well.
    """
    return pair_accuracy(
        _length_margins(chosen_lengths, rejected_lengths),
        clusters=clusters,
        replicates=replicates,
        seed=seed,
    )


def longer_preferred(
    chosen_lengths: ArrayLike,
    rejected_lengths: ArrayLike,
    *,
    clusters: ArrayLike | None = None,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> Interval:
    """P(the longer answer is preferred), over pairs whose lengths differ; `n` counts those.

    For people pass what they chose; for a model pass the lengths of the answer it scores higher
    and lower, on the same pairs, and compare. Undefined where no pair differs in length.
    """
    margins = _length_margins(chosen_lengths, rejected_lengths)
    differ = margins != 0
    if not differ.any():
        return Interval(value=None, low=None, high=None, n=0, undefined=reason("no_length_differs"))
    labels = None if clusters is None else np.asarray(clusters)[differ]
    return mean_interval(margins[differ] > 0, clusters=labels, replicates=replicates, seed=seed)


def _length_margins(chosen: ArrayLike, rejected: ArrayLike) -> NDArray[np.float64]:
    one, other = np.asarray(chosen, dtype=np.float64), np.asarray(rejected, dtype=np.float64)
    if one.ndim != 1 or one.shape != other.shape:
        raise ValueError(f"lengths must be equally long vectors: {one.shape} and {other.shape}")
    if one.size and min(one.min(), other.min()) < 0:
        raise ValueError("a length is negative")
    return one - other

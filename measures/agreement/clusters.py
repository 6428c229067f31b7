"""Comparisons that hang together, and how much that widens an interval.

Comparisons of one prompt, topic or debate share texts, so their agreement is alike. Resampling
them as if each stood alone makes intervals too short; resampling whole groups does not.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from measures.bootstrap import LEAST_UNITS

Ints = NDArray[np.int64]

# More independent units than this add cost to a bootstrap and nothing to its interval.
MOST_UNITS = 5_000


@dataclass(frozen=True, slots=True)
class Clustering:
    """What intervals resample. groups: a label per comparison, None where each stands alone;
    n_groups: how many there are, whether used or not; reason: why groups were not used."""

    groups: NDArray | None
    n_groups: int
    reason: str | None = None


def clustering(labels: ArrayLike) -> Clustering:
    """Groups where there are at least `LEAST_UNITS` and they hold more than one comparison each.

    labels: (n,) the group of each comparison. With fewer groups an interval by group would rest
    on too few units to mean anything; the one by comparison is then too short where groups differ,
    which the reason says.
    """
    names = np.asarray(labels)
    n_groups = len(np.unique(names))
    if n_groups == len(names):
        return Clustering(None, n_groups, None)
    if n_groups < LEAST_UNITS:
        return Clustering(
            None,
            n_groups,
            f"only {n_groups} groups, and resampling them needs {LEAST_UNITS}: comparisons are "
            "resampled as if each stood alone, so intervals are too short where groups differ",
        )
    return Clustering(names, n_groups, None)


def batches(labels: ArrayLike, *, most: int = MOST_UNITS, seed: int = 0) -> Ints:
    """(n,) unit indices from 0: one per label, or labels dealt at random into `most` batches.

    A batch is a whole number of labels, so batches are independent where labels are. Sums over
    random batches of equally many labels vary as much in all as sums over the labels.
    """
    names, index = np.unique(np.asarray(labels), return_inverse=True)
    if len(names) <= most:
        return index.reshape(-1).astype(np.int64)
    dealt = np.random.default_rng(seed).permutation(len(names)) % most
    return dealt[index.reshape(-1)]

"""Comparisons that hang together: by group, or because the same answers recur in them.

Comparisons of one prompt, topic or debate share texts, so their agreement is alike: a pair of
answers of which one is far better is easy for everybody. Intervals that resample comparisons as if
each stood alone are then too short, on real arguments by a factor of three.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from measures.bootstrap import LEAST_UNITS
from measures.estimate import reason

Ints = NDArray[np.int64]
Answers = tuple[NDArray, NDArray]

# More independent units than this add cost to a bootstrap and hardly anything to its interval: the
# width that a thousand give is within some 2 % of what all of them would.
MOST_UNITS = 1_000


@dataclass(frozen=True, slots=True)
class Clustering:
    """What intervals treat as independent: `groups` (a label per comparison), else `answers` (the
    labels of its two answers), else each comparison. n_groups: how many there are, used or not;
    n_answers: where groups are too few; reason: why something coarser was not used."""

    groups: NDArray | None
    answers: Answers | None
    n_groups: int
    n_answers: int | None
    reason: str | None = None

    @property
    def by(self) -> str:
        if self.groups is not None:
            return "groups"
        return "comparisons" if self.answers is None else "answers"

    def how(self) -> dict[str, Any]:
        """The arguments that the statistics take."""
        return {"groups": self.groups, "answers": self.answers}


def clustering(labels: ArrayLike, answers: tuple[ArrayLike, ArrayLike] | None = None) -> Clustering:
    """Groups where there are at least `LEAST_UNITS` with more than one comparison each; else
    answers, where at least so many recur; else comparisons.

    labels: (n,) the group of each comparison; answers: (n,) and (n,) its two answers. Answers lie
    within groups, so groups allow for them too. With fewer groups an interval by group would rest
    on too few units; it then holds for these groups, not for others like them.
    """
    names = np.asarray(labels)
    n_groups = len(np.unique(names))
    if n_groups == len(names):
        return Clustering(None, None, n_groups, None)
    if n_groups >= LEAST_UNITS:
        return Clustering(names, None, n_groups, None)
    few = reason("few_groups", n=n_groups, least=LEAST_UNITS)
    if n_groups == 1:
        few = reason("one_group", least=LEAST_UNITS)
    if answers is None:
        return Clustering(None, None, n_groups, None, few)
    both = (np.asarray(answers[0]), np.asarray(answers[1]))
    n_answers = len(np.unique(np.concatenate(both)))
    if LEAST_UNITS <= n_answers < 2 * len(names):
        return Clustering(None, both, n_groups, n_answers, few)
    return Clustering(None, None, n_groups, n_answers, few)


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

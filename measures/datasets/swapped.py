"""Labels that say the opposite of what was meant.

Three looks, because none sees everything. Pairs whose answer is known (gold) tell directly, and
are the only way to notice that *all* labels are swapped: a model trained on swapped labels agrees
with them. A text model tells which labels its words contradict, and, where it is surest, at most
how many can be wrong. Labels flipped on purpose ("canaries") tell how far to trust that list.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from measures.datasets.shares import pair_share
from measures.estimate import Interval
from measures.textmodel import out_of_fold

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CANARIES = 0.05  # of labels, flipped to see whether they are found
SUREST = 0.2  # of rows, by how sure the text model is
LISTED = 0.1  # of rows, the most suspicious, in which canaries are looked for


@dataclass(frozen=True, slots=True)
class Canaries:
    """n flipped on purpose; found: the share of them among the LISTED most suspicious rows.

    A list drawn by lot would hold LISTED of them.
    """

    n: int
    found: float


def label_log_odds(margin: ArrayLike, share: ArrayLike, votes: ArrayLike) -> Floats:
    """(n,) log-odds that a label is right: what the words say and what the votes say, added.

    margin: out-of-fold log-odds of the label; share: of votes for it; votes: how many. The votes
    enter as log((share·votes + 1)/((1 − share)·votes + 1)). Taken as independent evidence, which
    they are not quite: use the order, not the number.
    """
    said, n = np.asarray(share, dtype=np.float64), np.asarray(votes, dtype=np.float64)
    for_it, against = said * n + 1, (1 - said) * n + 1
    return np.asarray(margin, dtype=np.float64) + np.log(for_it / against)


def sure_contradictions(
    margin: ArrayLike,
    certain: ArrayLike,
    first: ArrayLike,
    second: ArrayLike,
    *,
    surest: float = SUREST,
) -> Interval:
    """At most so many labels are swapped: contradictions where the text model is surest.

    Of the rows that are `certain` by their votes (n,), the `surest` share by |margin|; the share of
    those whose label the model contradicts. Source of the idea: anchor points, Patrini et al.,
    CVPR 2017: where P(label | x) is nearly 1, what contradicts is label noise. Assumes that labels
    are swapped regardless of the text; a model that is surely wrong somewhere makes the figure too
    high, never too low, so it is a bound and not an estimate.
    """
    value = np.asarray(margin, dtype=np.float64)
    rows = np.flatnonzero(np.asarray(certain, dtype=bool))
    sure = rows[np.argsort(-np.abs(value[rows]), kind="stable")][: int(surest * len(rows))]
    one, other = np.asarray(first), np.asarray(second)
    return pair_share((value[sure] < 0).astype(np.float64), one[sure], other[sure])


def canaries(
    differences: sparse.csr_matrix, fold: ArrayLike, *, seed: int = 0, share: float = CANARIES
) -> Canaries:
    """Flip a random share of the labels, fit anew, and look for them among the suspicious."""
    x = sparse.csr_matrix(differences)
    n = x.shape[0]
    size = int(share * n)
    if not size:
        return Canaries(0, 0.0)
    flipped = np.sort(np.random.default_rng(seed).permutation(n)[:size])
    sign = np.ones(n)
    sign[flipped] = -1
    margin = out_of_fold(sparse.diags_array(sign, format="csr") @ x, fold)
    listed = np.argsort(margin, kind="stable")[: int(LISTED * n)]
    return Canaries(size, float(np.isin(flipped, listed).mean()))

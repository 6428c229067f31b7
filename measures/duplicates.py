"""Texts that are nearly the same: MinHash to find candidates, exact Jaccard to decide.

A text is the set of its shingles: every run of three words of its normal form (`measures.text`),
punctuation left out. Two texts are near-duplicates when |A ∩ B| / |A ∪ B| of their shingles is at
least the threshold. One word changed in the middle of a text of n words leaves (n − 5) / (n + 1),
so 0.8 forgives one word in 29 and, in texts under 11 words, none at all: short questions that
differ in a name or a number ("… of France?", "… of Spain?") are different questions here. A text of
fewer than three words is one shingle, itself, and matches only its equal. In scripts written
without blanks (Chinese, Japanese, Thai, …) every character counts as a word. Order beyond three
words and repetition are not seen. Texts without any content match nothing.

Sources: Broder, On the resemblance and containment of documents (1997); Leskovec, Rajaraman &
Ullman, Mining of Massive Datasets (2014), ch. 3 (banding). Departures: every candidate is checked
by its exact similarity, so nothing is reported that is not so; what banding may miss is a pair
right at the threshold, less often than once in a thousand. All hashes are fixed: the same texts
give the same answer on every machine.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from measures.shingles import Floats, Ints, ShingleSets, jaccard_between, mix, shingle_sets

THRESHOLD = 0.8
HASHES = 128
MOST_MISSED = 1e-3  # of pairs right at the threshold
# Within one band's bucket a text meets this many neighbours: enough to tie a large family of copies
# together without comparing each with each.
_NEIGHBOURS = 64


@dataclass(frozen=True, slots=True)
class Duplicates:
    """Pairs of rows that are near-duplicates, and the families they form.

    first, second: (m,) row numbers, first < second; similarity: (m,) exact Jaccard from the
    threshold to 1. Rows with equal sets stand in for one another: the first of them carries the
    pairs with others, and each further one is paired with it alone. family: (n,) the lowest row
    number of the connected family that a row belongs to (its own where it stands alone).
    """

    first: Ints
    second: Ints
    similarity: Floats
    family: Ints

    @property
    def n_redundant(self) -> int:
        """Rows that could go while one of each family stays."""
        return int((self.family != np.arange(len(self.family))).sum())


@dataclass(frozen=True, slots=True)
class Matches:
    """For each text its most similar one among the others, at or over the threshold.

    row: (n,) row number among the others, −1 where none comes near; similarity: (n,) 0 there.
    """

    row: Ints
    similarity: Floats

    @property
    def n_matched(self) -> int:
        return int((self.row >= 0).sum())


def near_duplicates(texts: Sequence[str], *, threshold: float = THRESHOLD) -> Duplicates:
    """Near-duplicates within one list. 10,000 texts of 200 words take a few seconds."""
    sets = shingle_sets(texts)
    low, high, similarity = _similar(sets, threshold)
    owner = sets.owner
    copies = np.flatnonzero((owner >= 0) & (owner != np.arange(len(owner))))
    first = np.concatenate([sets.row[low], owner[copies]])
    second = np.concatenate([sets.row[high], copies])
    value = np.concatenate([similarity, np.ones(len(copies))])
    first, second = np.minimum(first, second), np.maximum(first, second)
    order = np.lexsort((second, first))
    first, second = first[order], second[order]
    return Duplicates(first, second, value[order], _families(first, second, len(texts)))


def near_matches(
    texts: Sequence[str], among: Sequence[str], *, threshold: float = THRESHOLD
) -> Matches:
    """Which of `texts` have a near-duplicate among the others, such as test prompts in training.

    Of equally similar ones the lowest row wins.
    """
    sets = shingle_sets([*texts, *among])
    n = len(texts)
    n_sets = len(sets.row)
    inside = np.full(n_sets, -1, dtype=np.int64)  # set -> its first row among the others
    owned = sets.number
    rows = np.arange(len(owned))[::-1]
    rows = rows[(rows >= n) & (owned[rows] >= 0)]
    inside[owned[rows]] = rows - n
    wanted = np.zeros(n_sets, dtype=bool)
    wanted[owned[:n][owned[:n] >= 0]] = True

    low, high, similarity = _similar(sets, threshold, wanted, inside >= 0)
    asked = np.concatenate([low, high, np.flatnonzero(wanted)])
    found = np.concatenate([high, low, np.flatnonzero(wanted)])
    value = np.concatenate([similarity, similarity, np.ones(int(wanted.sum()))])
    usable = wanted[asked] & (inside[found] >= 0)
    asked, found, value = asked[usable], inside[found[usable]], value[usable]
    order = np.lexsort((found, -value, asked))
    best, where = np.unique(asked[order], return_index=True)
    of_set = np.full(n_sets + 1, -1, dtype=np.int64)  # the last is what −1 points at: no set
    likeness = np.zeros(n_sets + 1)
    of_set[best], likeness[best] = found[order][where], value[order][where]
    return Matches(of_set[owned[:n]], likeness[owned[:n]])


def jaccard(one: str, other: str) -> float:
    """The similarity of two texts as it is meant here; 0 where one has no content."""
    sets = shingle_sets([one, other])
    if (sets.number < 0).any():
        return 0.0
    if sets.number[0] == sets.number[1]:
        return 1.0
    return float(jaccard_between(sets, np.array([0]), np.array([1]))[0])


# --- candidates ----------------------------------------------------------------------------------


def _similar(
    sets: ShingleSets,
    threshold: float,
    one: NDArray[np.bool_] | None = None,
    other: NDArray[np.bool_] | None = None,
) -> tuple[Ints, Ints, Floats]:
    """Pairs of sets at or over the threshold; with `one` and `other`, between those only."""
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold must lie over 0 and at most at 1, not {threshold}")
    n = len(sets.row)
    keys = list(_band_pairs(_signatures(sets), threshold))
    pairs = np.unique(np.concatenate(keys)) if keys else np.zeros(0, dtype=np.int64)
    low, high = pairs // max(n, 1), pairs % max(n, 1)
    if one is not None and other is not None:
        across = (one[low] & other[high]) | (one[high] & other[low])
        low, high = low[across], high[across]
    similarity = jaccard_between(sets, low, high)
    near = similarity >= threshold - 1e-12
    return low[near], high[near], similarity[near]


def _signatures(sets: ShingleSets) -> NDArray[np.uint32]:
    """(HASHES, sets): the least hash of each set under each function (a·x + b) / 2³² mod 2³²."""
    n = len(sets.row)
    seeds = mix(np.arange(2 * HASHES, dtype=np.uint64)).reshape(2, HASHES)
    least = np.zeros((HASHES, n), dtype=np.uint32)
    if n:
        mixed = mix(sets.hashes)
        for number, (a, b) in enumerate(seeds.T):
            values = ((mixed * (a | np.uint64(1)) + b) >> np.uint64(32)).astype(np.uint32)
            least[number] = np.minimum.reduceat(values, sets.start[:-1])
    return least


def _rows_per_band(threshold: float) -> int:
    """As many as still find all but MOST_MISSED of the pairs right at the threshold."""
    fitting = [
        rows
        for rows in range(1, HASHES + 1)
        if (1 - threshold**rows) ** (HASHES // rows) <= MOST_MISSED
    ]
    return max(fitting, default=1)


def _band_pairs(signatures: NDArray[np.uint32], threshold: float) -> Iterator[Ints]:
    """For each band, pairs of sets that agree in all of it, as low · sets + high."""
    n = signatures.shape[1]
    rows = min(_rows_per_band(threshold), 16)
    for start in range(0, HASHES - rows + 1, rows):
        key = np.zeros(n, dtype=np.uint64)
        for row in signatures[start : start + rows]:
            key = mix(key + row.astype(np.uint64))
        order = np.argsort(key, kind="stable")
        key = key[order]
        for apart in range(1, min(_NEIGHBOURS, n - 1) + 1):
            same = np.flatnonzero(key[apart:] == key[:-apart])
            if not len(same):
                break
            yield order[same] * n + order[same + apart]  # stable: the lower set comes first


def _families(first: Ints, second: Ints, n: int) -> Ints:
    ties = sparse.coo_matrix((np.ones(len(first)), (first, second)), shape=(n, n))
    _, label = connected_components(ties, directed=False)
    _, lowest = np.unique(label, return_index=True)
    return lowest[label] if n else np.zeros(0, dtype=np.int64)

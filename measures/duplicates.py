"""Texts that are nearly the same: MinHash to find candidates, exact Jaccard to decide.

A text is the set of its shingles: every run of three words of its normal form (lower case),
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

import hashlib
import re
import unicodedata
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

# The one normal form in which texts are compared for being the same.


def normalise(text: str) -> str:
    """Text up to compatibility form, case and white space.

    NFKC(casefold(NFKC(casefold(NFD(text))))), which is Unicode's compatibility caseless match
    (The Unicode Standard, 3.13, D146), then every run of white space as one blank and none at the
    ends. Applying it twice changes nothing. Punctuation and zero-width characters stay.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFD", text).casefold())
    folded = unicodedata.normalize("NFKC", folded.casefold())
    return " ".join(folded.split())


# Texts as sets of shingles: every run of three words of their normal form, hashed.
#
# What counts as a word, and what becomes of short texts, is said in `measures.duplicates`.

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Hashes = NDArray[np.uint64]

SHINGLE = 3  # words
_CHUNK = 20_000  # pairs whose sets are intersected at once

_UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
)
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+")


@dataclass(frozen=True, slots=True)
class ShingleSets:
    """Distinct shingle sets. start: (sets + 1,) into `hashes`, the elements of each set.

    row: (sets,) the first text with that set; number: (texts,) its set, −1 without content;
    owner: (texts,) the first text with the same set, −1 without content.
    """

    start: Ints
    hashes: Hashes
    row: Ints
    number: Ints
    owner: Ints


def shingle_sets(texts: Sequence[str]) -> ShingleSets:
    of_text, hashes = _shingles(texts)
    order = np.lexsort((hashes, of_text))
    of_text, hashes = of_text[order], hashes[order]
    fresh = np.ones(len(hashes), dtype=bool)
    fresh[1:] = (of_text[1:] != of_text[:-1]) | (hashes[1:] != hashes[:-1])
    of_text, hashes = of_text[fresh], hashes[fresh]

    present, start = np.unique(of_text, return_index=True)
    size = np.diff(np.append(start, len(of_text)))
    digest: Hashes = np.add.reduceat(mix(hashes), start) if len(start) else hashes[:0]
    number, owner = (np.full(len(texts), -1, dtype=np.int64) for _ in range(2))
    named = mix(digest ^ size.astype(np.uint64))
    _, first, which = np.unique(named, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))  # sets in the order of their first text
    kept = np.sort(first)
    number[present], owner[present] = rank[which], present[first[which]]
    taken = np.zeros(len(present), dtype=bool)
    taken[kept] = True
    elements = np.repeat(taken, size)
    bounds = np.concatenate([[0], np.cumsum(size[kept])])
    return ShingleSets(bounds, hashes[elements], present[kept], number, owner)


def _shingles(texts: Sequence[str]) -> tuple[Ints, Hashes]:
    """(text of each shingle, its 64-bit hash), repeats included."""
    known: dict[str, int] = {}
    words = array("Q")  # a list of as many integers would take four times the memory
    lengths = np.zeros(len(texts), dtype=np.int64)
    whole: list[tuple[int, int]] = []
    for row, text in enumerate(texts):
        form = normalise(text)
        found = _WORD.findall(form)
        if len(found) < SHINGLE:
            if form:
                whole.append((row, _digest(" ".join(found) or form)))
            continue
        lengths[row] = len(found)
        for word in found:
            code = known.get(word)
            if code is None:
                code = known[word] = _digest(word)
            words.append(code)
    codes = np.frombuffer(words, dtype=np.uint64) if words else np.zeros(0, dtype=np.uint64)
    of_word = np.repeat(np.arange(len(texts)), lengths)
    hashes = np.zeros(max(0, len(codes) - SHINGLE + 1), dtype=np.uint64)
    for place in range(SHINGLE):
        hashes = mix(hashes + codes[place : place + len(hashes)])
    complete = of_word[: len(hashes)] == of_word[SHINGLE - 1 :]
    short_rows = np.array([row for row, _ in whole], dtype=np.int64)
    short = np.array([code for _, code in whole], dtype=np.uint64)
    return (
        np.concatenate([of_word[: len(hashes)][complete], short_rows]),
        np.concatenate([hashes[complete], short]),
    )


def _digest(word: str) -> int:
    raw = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(raw, "big")


def mix(values: Hashes) -> Hashes:
    """SplitMix64's finaliser: every bit of the input moves half of the output's."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def jaccard_between(sets: ShingleSets, low: Ints, high: Ints) -> Floats:
    """(n,) |A ∩ B| / |A ∪ B| of the sets with these numbers."""
    return _Overlaps(sets).jaccard(low, high)


class _Overlaps:
    """Sizes of sets and which elements each has: a table that is built once for many questions."""

    def __init__(self, sets: ShingleSets) -> None:
        self._size = np.diff(sets.start)
        _, element = np.unique(sets.hashes, return_inverse=True)
        shape = (len(self._size), int(element.max(initial=-1)) + 1)
        ones = np.ones(len(element), dtype=np.int32)
        self._table = sparse.csr_matrix((ones, element, sets.start), shape=shape)

    def jaccard(self, low: Ints, high: Ints) -> Floats:
        shared = np.zeros(len(low), dtype=np.int64)
        for begin in range(0, len(low), _CHUNK):
            part = slice(begin, begin + _CHUNK)
            both = self._table[low[part]].multiply(self._table[high[part]])
            shared[part] = np.asarray(both.sum(axis=1)).ravel()
        union = self._size[low] + self._size[high] - shared
        return shared / np.maximum(union, 1)


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
    """Near-duplicates within one list. 10,000 texts of 200 words take a few seconds.

    Thousands of texts by one template have millions of pairs; where the families are enough,
    `near_families` holds none of them.
    """
    sets = shingle_sets(texts)
    low, high, similarity = _joined(_similar(sets, threshold))
    owner = sets.owner
    copies = np.flatnonzero((owner >= 0) & (owner != np.arange(len(owner))))
    first = np.concatenate([sets.row[low], owner[copies]])
    second = np.concatenate([sets.row[high], copies])
    value = np.concatenate([similarity, np.ones(len(copies))])
    first, second = np.minimum(first, second), np.maximum(first, second)
    order = np.lexsort((second, first))
    first, second = first[order], second[order]
    return Duplicates(first, second, value[order], _families(first, second, len(texts)))


def near_families(texts: Sequence[str], *, threshold: float = THRESHOLD) -> Ints:
    """`near_duplicates(…).family` alone, for less: texts that are known to be of one family are not
    compared again, and no pair is kept."""
    sets = shingle_sets(texts)
    family = np.arange(len(sets.row))  # of each set: the lowest set of its family so far

    def apart(low: Ints, high: Ints) -> NDArray[np.bool_]:
        return family[low] != family[high]

    for low, high, _ in _similar(sets, threshold, apart):
        ends, place = np.unique(np.concatenate([family[low], family[high]]), return_inverse=True)
        first, second = place[: len(low)], place[len(low) :]
        lowest = np.arange(len(family))
        lowest[ends] = ends[_families(first, second, len(ends))]
        family = lowest[family]
    found = np.arange(len(texts))
    with_content = sets.number >= 0
    found[with_content] = sets.row[family[sets.number[with_content]]]
    return found


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

    def across(low: Ints, high: Ints) -> NDArray[np.bool_]:
        return (wanted[low] & (inside[high] >= 0)) | (wanted[high] & (inside[low] >= 0))

    low, high, similarity = _joined(_similar(sets, threshold, across))
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

Parts = Iterator[tuple[Ints, Ints, Floats]]


def _similar(
    sets: ShingleSets,
    threshold: float,
    wanted: Callable[[Ints, Ints], NDArray[np.bool_]] | None = None,
) -> Parts:
    """(low, high, similarity) of pairs of sets at or over the threshold, each once, in parts.

    A part holds at most one pair a set.

    wanted: which of these candidates are compared at all; asked again for every part.
    """
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold must lie over 0 and at most at 1, not {threshold}")
    overlaps = _Overlaps(sets)
    for low, high in _candidates(sets, threshold, wanted):
        similarity = overlaps.jaccard(low, high)
        near = similarity >= threshold - 1e-12
        if near.any():
            yield low[near], high[near], similarity[near]


def _joined(parts: Parts) -> tuple[Ints, Ints, Floats]:
    found = list(parts)
    if not found:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0)
    low, high, similarity = zip(*found, strict=True)
    return np.concatenate(low), np.concatenate(high), np.concatenate(similarity)


def _candidates(
    sets: ShingleSets,
    threshold: float,
    wanted: Callable[[Ints, Ints], NDArray[np.bool_]] | None,
) -> Iterator[tuple[Ints, Ints]]:
    """Pairs of sets that agree in all of a band, as low and high, each from one band alone.

    No pair is remembered. Each band orders the sets by its key, equal keys by number; a place in
    that order, with a gap of _NEIGHBOURS where the key changes, says whether two sets met there.
    """
    n = len(sets.row)
    small = n * (_NEIGHBOURS + 1) < 2**31
    before: list[NDArray[np.signedinteger[Any]]] = []
    for key in _band_keys(sets, threshold):
        order = np.argsort(key, kind="stable")
        key = key[order]
        place: NDArray[np.signedinteger[Any]] = np.zeros(n, np.int32 if small else np.int64)
        place[order[1:]] = np.cumsum(1 + _NEIGHBOURS * (key[1:] != key[:-1]))
        for apart in range(1, min(_NEIGHBOURS, n - 1) + 1):
            same = np.flatnonzero(key[apart:] == key[:-apart])
            if not len(same):
                break
            low, high = order[same], order[same + apart]  # stable: the lower set comes first
            if wanted is not None:
                asked = wanted(low, high)
                low, high = low[asked], high[asked]
            for earlier in before:
                distance = earlier[high] - earlier[low]
                fresh = (distance <= 0) | (distance > _NEIGHBOURS)
                low, high = low[fresh], high[fresh]
            if len(low):
                yield low, high
        before.append(place)


def _band_keys(sets: ShingleSets, threshold: float) -> Iterator[Hashes]:
    """For each band (sets,): equal where the least hashes under all functions of the band are.

    The functions: (a·x + b) / 2³² mod 2³².
    """
    n = len(sets.row)
    if not n:
        return
    seeds = mix(np.arange(2 * HASHES, dtype=np.uint64)).reshape(2, HASHES).T
    mixed = mix(sets.hashes)
    rows = min(_rows_per_band(threshold), 16)
    for start in range(0, HASHES - rows + 1, rows):
        key = np.zeros(n, dtype=np.uint64)
        for a, b in seeds[start : start + rows]:
            values = ((mixed * (a | np.uint64(1)) + b) >> np.uint64(32)).astype(np.uint32)
            least = np.minimum.reduceat(values, sets.start[:-1])
            key = mix(key + least.astype(np.uint64))
        yield key


def _rows_per_band(threshold: float) -> int:
    """As many as still find all but MOST_MISSED of the pairs right at the threshold."""
    fitting = [
        rows
        for rows in range(1, HASHES + 1)
        if (1 - threshold**rows) ** (HASHES // rows) <= MOST_MISSED
    ]
    return max(fitting, default=1)


def _families(first: Ints, second: Ints, n: int) -> Ints:
    ties = sparse.coo_matrix((np.ones(len(first)), (first, second)), shape=(n, n))
    _, label = connected_components(ties, directed=False)
    _, lowest = np.unique(label, return_index=True)
    return lowest[label] if n else np.zeros(0, dtype=np.int64)


# How much a text repeats itself.


def repeated_share(text: str, n: int = 4) -> float | None:
    """Share of the text's n-grams of words that stood in it before: 1 − distinct / all, 0 to 1.

    Words are what white space separates, without regard to case. None for a text of fewer than n
    words, which has no n-gram. The metric `response/repetition` is the same over token ids, so the
    two are near each other and not equal. Source: Welleck et al. 2020 (seq-rep-n).
    """
    words = text.lower().split()
    grams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else None

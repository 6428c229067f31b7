"""Texts as sets of shingles: every run of three words of their normal form, hashed.

What counts as a word, and what becomes of short texts, is said in `measures.duplicates`.
"""

import hashlib
import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from measures.text import normalise

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
    digest = np.add.reduceat(mix(hashes), start) if len(start) else hashes[:0]
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
    size = np.diff(sets.start)
    _, element = np.unique(sets.hashes, return_inverse=True)
    n_elements = int(element.max(initial=-1)) + 1
    table = sparse.csr_matrix(
        (np.ones(len(element), dtype=np.int32), element, sets.start), shape=(len(size), n_elements)
    )
    shared = np.zeros(len(low), dtype=np.int64)
    for begin in range(0, len(low), _CHUNK):
        part = slice(begin, begin + _CHUNK)
        both = table[low[part]].multiply(table[high[part]])
        shared[part] = np.asarray(both.sum(axis=1)).ravel()
    union = size[low] + size[high] - shared
    return shared / np.maximum(union, 1)

"""Texts as counts of words: what the audits of words, the text models and the breadth share.

A token is a run of word characters or a single other sign (`\\w+|[^\\w\\s]`), taken from the normal
form of the text, so case does not count. Two words in a row, with nothing between
them, are a pair of words ("thank you").
"""

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from measures.duplicates import normalise

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

TOKEN = re.compile(r"\w+|[^\w\s]")
_WORD = re.compile(r"\w")


def token_count(text: str) -> int:
    """The length of a text as it stands, in tokens."""
    return len(TOKEN.findall(text))


@dataclass(frozen=True, slots=True)
class Counts:
    """names: the features; table: (texts, features), how often each stands in each text."""

    names: tuple[str, ...]
    table: sparse.csr_matrix

    @property
    def presence(self) -> sparse.csr_matrix:
        present = self.table.copy()
        present.data = np.ones_like(present.data)
        return present


class Corpus:
    """Tokenised texts, in the order given. `lengths`: (texts,) tokens."""

    def __init__(self, texts: Sequence[str]) -> None:
        known: dict[str, int] = {}
        codes = array("q")  # a list of as many integers would take four times the memory
        lengths = np.zeros(len(texts), dtype=np.int64)
        for row, text in enumerate(texts):
            tokens = TOKEN.findall(normalise(text))
            lengths[row] = len(tokens)
            codes.extend(known.setdefault(token, len(known)) for token in tokens)
        self.lengths = lengths
        self._words = list(known)
        self._codes: Ints = np.frombuffer(codes, dtype=np.int64) if codes else np.zeros(0, np.int64)
        self._text = np.repeat(np.arange(len(texts)), lengths)
        self._n = len(texts)

    def counts(self, *, least_texts: int = 1, pairs_of_words: bool = False) -> Counts:
        """Every feature that stands in at least so many texts, in the order of first use."""
        names, table = self._words, self._table(self._text, self._codes, len(self._words))
        names, table = _common(names, table, least_texts)
        if pairs_of_words:
            more, second = self._pairs(least_texts)
            names, table = [*names, *more], sparse.hstack([table, second], format="csr")
        return Counts(tuple(names), table)

    def _pairs(self, least_texts: int) -> tuple[list[str], sparse.csr_matrix]:
        is_word = np.array([bool(_WORD.match(word)) for word in self._words], dtype=bool)
        left, right = self._codes[:-1], self._codes[1:]
        usable = self._text[:-1] == self._text[1:]
        if len(left):
            usable &= is_word[left] & is_word[right]
        size = max(1, len(self._words))
        found, column = np.unique(left[usable] * size + right[usable], return_inverse=True)
        table = self._table(self._text[:-1][usable], column, len(found))
        n_texts = np.bincount(table.indices, minlength=len(found))
        kept = np.flatnonzero(n_texts >= least_texts)
        names = [f"{self._words[key // size]} {self._words[key % size]}" for key in found[kept]]
        return names, table[:, kept]

    def _table(self, rows: Ints, columns: Ints, width: int) -> sparse.csr_matrix:
        ones = np.ones(len(rows), dtype=np.float64)
        table = sparse.csr_matrix((ones, (rows, columns)), shape=(self._n, width))
        table.sum_duplicates()
        return table


def _common(
    names: Sequence[str], table: sparse.csr_matrix, least_texts: int
) -> tuple[list[str], sparse.csr_matrix]:
    n_texts = np.bincount(table.indices, minlength=len(names))
    kept = np.flatnonzero(n_texts >= least_texts)
    return [names[column] for column in kept.tolist()], table[:, kept]

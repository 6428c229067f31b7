"""Whether answers repeat long stretches of the demonstrations word for word."""

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from workers.config.phrases import plain

WORDS = 13  # a stretch that two people hardly ever write alike (Brown et al. 2020, appendix C)

Hashes = NDArray[np.uint64]

_BASE = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no power of it loses bits


class Copies:
    """The 13-grams of words of some texts, as sorted 64-bit hashes: 8 bytes a word of text.

    A hash of a stretch is the sum of its words' hashes times powers of an odd number, modulo 2⁶⁴;
    two different stretches meet about once in 10¹⁹ pairs. Texts under 13 words have no 13-gram and
    are never found.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._words: dict[str, int] = {}
        grams = [_grams(self._known(plain(text).split())) for text in texts]
        self._grams: Hashes = np.unique(np.concatenate([np.zeros(0, np.uint64), *grams]))

    def __len__(self) -> int:
        return len(self._grams)

    def share(self, plain_texts: Sequence[str]) -> float | None:
        """Share of the texts that hold such a stretch, 0–1; None without texts."""
        return sum(map(self.held, plain_texts)) / len(plain_texts) if plain_texts else None

    def held(self, plain_text: str) -> bool:
        own = _grams(np.array([self._words.get(w, 0) for w in plain_text.split()], np.uint64))
        if not len(own) or not len(self._grams):
            return False
        places = np.searchsorted(self._grams, own).clip(max=len(self._grams) - 1)
        return bool((self._grams[places] == own).any())

    def _known(self, words: Sequence[str]) -> Hashes:
        for word in words:
            if word not in self._words:
                self._words[word] = _hash(word)
        return np.array([self._words[word] for word in words], np.uint64)


def _hash(word: str) -> int:
    """Never 0, which stands for words that no demonstration has."""
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "big") or 1


def _grams(words: Hashes) -> Hashes:
    if len(words) < WORDS:
        return np.zeros(0, np.uint64)
    powers = np.cumprod(np.full(WORDS, _BASE, np.uint64))
    return np.lib.stride_tricks.sliding_window_view(words, WORDS) @ powers

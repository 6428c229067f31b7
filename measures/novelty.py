"""Whether a text is about something that a body of texts is not: the share of its words that they
never hold.

A word is a run of at least MIN_LETTERS letters of the normal form (measures.duplicates). What share
is unusual the body says itself: each of its texts is measured against all others, and a text is out
of distribution when its share is over the QUANTILE of those, and over LEAST. A text of fewer than
MIN_WORDS different words says nothing, nor does a body of fewer than LEAST_TEXTS. It sees words,
not meaning: an unknown use of known words is not found, another language is. The share is the
out-of-vocabulary rate of language modelling (Jurafsky & Martin, Speech and Language Processing,
ch. 3); texts are taken as independent.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from measures.duplicates import normalise

MIN_LETTERS, MIN_WORDS, LEAST_TEXTS = 3, 4, 30
QUANTILE, LEAST = 0.99, 0.5
_WORD = re.compile(rf"[^\W\d_]{{{MIN_LETTERS},}}")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Words of a body of texts; limit: the share from which on a text is out of distribution, None
    where the texts are too few."""

    words: frozenset[str]
    limit: float | None

    def unseen(self, text: str) -> float | None:
        """Share of the text's different words that the body never holds; None for few words."""
        found = words_of(text)
        return len(found - self.words) / len(found) if len(found) >= MIN_WORDS else None

    def is_novel(self, text: str) -> bool:
        share = self.unseen(text)
        return self.limit is not None and share is not None and share > self.limit


def vocabulary(texts: Sequence[str]) -> Vocabulary:
    sets = [words_of(text) for text in texts]
    holders = Counter(word for found in sets for word in found)
    shares = [
        sum(holders[word] == 1 for word in found) / len(found)
        for found in sets
        if len(found) >= MIN_WORDS
    ]
    limit = max(LEAST, float(np.quantile(shares, QUANTILE))) if len(shares) >= LEAST_TEXTS else None
    return Vocabulary(frozenset(holders), limit)


def words_of(text: str) -> set[str]:
    return set(_WORD.findall(normalise(text)))

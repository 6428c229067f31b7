"""Words put into answers, to see what each does to the score. No torch.

A word is put at a random place of an answer that does not hold it. Any word there disturbs the
sentence, so what counts is the change beyond that of the median word in the same place.
"""

import re
from collections.abc import Sequence

import numpy as np

from measures.corpus import TOKEN
from measures.intervals import mean_interval
from measures.text import normalise
from measures.trust.pairs import Pairs
from measures.trust.words import WordEffect, candidate_words
from workers.assess.scoring import Scorer
from workers.data.snapshot import Preference

MOST_WORDS = 30
LEAST_ANSWERS = 10  # without the word, for it to be put into


def word_effects(
    pairs: Pairs, rows: Sequence[Preference], score: Scorer, *, seed: int
) -> list[WordEffect]:
    """Of the words that the model favours most in `pairs`, put into the chosen answers of `rows`;
    in standard deviations of the scores of `pairs`. [] where scores do not vary, or where there are
    too few pairs to choose words by."""
    words = candidate_words(pairs, MOST_WORDS)
    spread = float(np.std(np.concatenate([pairs.chosen_scores, pairs.rejected_scores])))
    if not words or not spread > 0:
        return []
    rng = np.random.default_rng(seed)
    held = [set(TOKEN.findall(normalise(row.chosen))) for row in rows]
    tries = [
        (i, k, place)
        for i, row in enumerate(rows)
        for place in [int(rng.integers(len(row.chosen.split()) + 1))]
        for k, word in enumerate(words)
        if not set(word.split()) & held[i]
    ]
    texts = [with_word(rows[i].chosen, words[k], place) for i, k, place in tries]
    before = score([row.prompt for row in rows], [row.chosen for row in rows]).values
    after = score([rows[i].prompt for i, _, _ in tries], texts).values
    change = np.full((len(rows), len(words)), np.nan)
    for (i, k, _), value in zip(tries, after, strict=True):
        change[i, k] = (value - before[i]) / spread
    usable = np.isfinite(change).sum(axis=1) >= min(3, len(words))  # else there is no median word
    change = change[usable]
    if not len(change):
        return []
    change -= np.nanmedian(change, axis=1, keepdims=True)
    found = []
    for k, word in enumerate(words):
        of = change[np.isfinite(change[:, k]), k]
        if len(of) >= LEAST_ANSWERS:
            found.append(WordEffect(word=word, change=mean_interval(of, seed=seed)))
    return found


def with_word(text: str, word: str, place: int) -> str:
    """The text with a word before its word number `place`; other white space stays as it is."""
    at = len(text.rstrip())
    starts = [found.start() for found in re.finditer(r"\S+", text)]
    if place < len(starts):
        at = starts[place]
        return f"{text[:at]}{word} {text[at:]}"
    return f"{text[:at]} {word}{text[at:]}"

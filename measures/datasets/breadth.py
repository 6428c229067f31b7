"""How varied a list of prompts is, in figures that lists of different size can be compared by."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from measures.corpus import Corpus
from measures.estimate import Quantity
from measures.shingles import jaccard_between, shingle_sets

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Breadth:
    """n prompts; words: tokens in all.

    topics: effective number, exp(entropy); vocabulary: distinct tokens expected in `sample` tokens
    drawn at random; new_pairs: distinct pairs of words among as many pairs drawn, a share
    (distinct-2); distance: mean of 1 − Jaccard of word triples between two prompts drawn at random.
    """

    n: int
    words: int
    topics: Quantity
    n_topics: int
    vocabulary: Quantity
    new_pairs: Quantity
    distance: Quantity
    sample: int


def effective_number(counts: ArrayLike) -> Quantity:
    """exp(−Σ p log p): as many equally frequent kinds would be as varied (Hill, Ecology 54, 1973).

    Kinds that nobody drew are not counted, so it is low for small samples.
    """
    n = np.asarray(counts, dtype=np.float64)
    n = n[n > 0]
    if not len(n):
        return Quantity(None, "there is nothing to count")
    share = n / n.sum()
    return Quantity(float(np.exp(-(share * np.log(share)).sum())))


def rarefied(counts: ArrayLike, sample: int) -> Quantity:
    """Distinct kinds expected among `sample` draws without replacement: Σ 1 − C(N − n, m)/C(N, m).

    Source: Hurlbert, Ecology 52 (1971). The plain number of distinct words grows with the size of a
    list; this does not. Undefined when there are fewer than `sample` to draw from.
    """
    n = np.asarray(counts, dtype=np.float64)
    total = float(n.sum())
    if sample < 1 or total < sample:
        return Quantity(None, f"{total:,.0f} is fewer than the {sample:,} to draw")
    left = total - n
    possible = left >= sample
    missed = np.zeros(len(n))
    missed[possible] = np.exp(
        gammaln(left[possible] + 1)
        - gammaln(left[possible] - sample + 1)
        - gammaln(total + 1)
        + gammaln(total - sample + 1)
    )
    return Quantity(float((1 - missed).sum()))


def breadth(prompts: Sequence[str], topics: Sequence[str], *, sample: int) -> Breadth:
    """Figures of one list; compare two with the same `sample` (`common_sample`).

    topics: (n,) labels, empty where unknown; those count as no topic.
    """
    corpus = Corpus(prompts)
    words = corpus.counts()
    pairs = corpus.counts(pairs_of_words=True)
    of_word = np.asarray(words.table.sum(axis=0)).ravel()
    of_pair = np.asarray(pairs.table.sum(axis=0)).ravel()[len(words.names) :]
    known = [topic for topic in topics if topic]
    _, per_topic = np.unique(known, return_counts=True) if known else ([], np.zeros(0))
    drawn = min(sample, int(of_pair.sum()))
    distinct = rarefied(of_pair, drawn)
    return Breadth(
        n=len(prompts),
        words=int(of_word.sum()),
        topics=effective_number(per_topic) if known else Quantity(None, "no prompt has a topic"),
        n_topics=len(per_topic),
        vocabulary=rarefied(of_word, sample),
        new_pairs=distinct if distinct.value is None else Quantity(distinct.value / drawn),
        distance=mean_distance(prompts),
        sample=sample,
    )


def common_sample(*lists: Sequence[str], most: int = 5_000) -> int:
    """As many tokens as the smallest list has, at most `most`."""
    return min([most, *(int(Corpus(texts).lengths.sum()) for texts in lists)])


def mean_distance(texts: Sequence[str], *, draws: int = 5_000, seed: int = 0) -> Quantity:
    """Mean of 1 − similarity over pairs of texts drawn at random (all pairs where they are few).

    Texts without content are left out. Undefined with fewer than two texts.
    """
    sets = shingle_sets(texts)
    number = sets.number[sets.number >= 0]
    n = len(number)
    if n < 2:
        return Quantity(None, "fewer than two texts to compare")
    if n * (n - 1) // 2 <= draws:
        one, other = np.triu_indices(n, 1)
    else:
        rng = np.random.default_rng(seed)
        one = rng.integers(0, n, size=draws)
        other = (one + rng.integers(1, n, size=draws)) % n
    return Quantity(float(1 - jaccard_between(sets, number[one], number[other]).mean()))

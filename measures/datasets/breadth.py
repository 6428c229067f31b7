"""How varied a list of prompts is, in figures that lists of different size can be compared by."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import gammaln

from measures.accuracy import pair_credit
from measures.corpus import Corpus
from measures.datasets.drift import pair_share
from measures.duplicates import jaccard_between, shingle_sets
from measures.estimate import Interval, Quantity, reason
from measures.textmodel import fit, out_of_fold

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
        return Quantity(None, reason("nothing_to_count"))
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
        return Quantity(None, reason("few_to_draw", n=total, sample=sample))
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
        topics=effective_number(per_topic) if known else Quantity(None, reason("no_topic")),
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
        return Quantity(None, reason("few_texts"))
    if n * (n - 1) // 2 <= draws:
        one, other = np.triu_indices(n, 1)
    else:
        rng = np.random.default_rng(seed)
        one = rng.integers(0, n, size=draws)
        other = (one + rng.integers(1, n, size=draws)) % n
    return Quantity(float(1 - jaccard_between(sets, number[one], number[other]).mean()))


# Does anything but the answers' texts give the label away?
#
# A predictor that sees order, origin, position and circumstances, and no word of either answer,
# should do no better than a coin on groups it has not seen. If it does better, a reward model can
# learn that instead of quality, and every accuracy measured on such pairs is too high.

CHANCE = 0.5
RIDGE = 1.0


def blind_accuracy(
    signed: ArrayLike | sparse.csr_matrix,
    fold: ArrayLike,
    first: ArrayLike,
    second: ArrayLike,
) -> Interval:
    """Accuracy, on unseen folds, of a logistic model that is given `signed` alone.

    signed: (n, features) chosen − rejected; a circumstance that is the same for both sides (topic,
    person, month) enters multiplied by which side was stored first. fold: (n,) whole groups in one
    fold (take ten); first, second: (n,) the texts of each row, for the interval. A prediction of
    neither side counts ½.

    Every fold is predicted from the folds before it (Dawid, JRSS A 147, 1984), the first from none
    and left out. In ordinary cross-validation two rows each help to predict the other, which makes
    the accuracy of clean data vary by more than its interval says; here no row does. Clean data
    leave the interval around ½ in 95 % of datasets, so one clean dataset in forty is called leaking
    by it (and one in forty worse than chance, which is no leak).
    """
    table = sparse.csr_matrix(signed, dtype=np.float64)
    of = np.asarray(fold)
    margin = np.zeros(table.shape[0])
    for number in np.unique(of)[1:]:
        margin[of == number] = table[of == number] @ fit(table[of < number], ridge=RIDGE)
    # A margin that rounding alone made is no prediction.
    margin[np.abs(margin) < 1e-9] = 0.0
    tested = of > of.min(initial=0)
    one, other = np.asarray(first), np.asarray(second)
    return pair_share(pair_credit(margin[tested]), one[tested], other[tested])


def leaks(accuracy: Interval) -> bool:
    """Better than a coin by more than chance."""
    return accuracy.low is not None and accuracy.low > CHANCE


# Labels that say the opposite of what was meant.
#
# Three looks, because none sees everything. Pairs whose answer is known (gold) tell directly, and
# are the only way to notice that *all* labels are swapped: a model trained on swapped labels agrees
# with them. A text model tells which labels its words contradict, and, where it is surest, at most
# how many can be wrong. Labels flipped on purpose ("canaries") tell how far to trust that list.

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
    """Flip a random share of the labels, fit again, and look for them among the suspicious."""
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

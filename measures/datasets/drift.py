"""Did preferences change while the votes were cast?

A text model is trained on one half of the pairs and tested on the other, both ways round: once with
the halves cut by time, and, for comparison, with halves drawn at random. If what people preferred
changed, the halves cut by time predict each other worse.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from measures.accuracy import pair_credit
from measures.estimate import Interval, reason
from measures.intervals import dyadic_interval, wilson
from measures.textmodel import fit, folds_of

# A share over pairs whose texts recur, with its interval.


def pair_share(values: ArrayLike, first: ArrayLike, second: ArrayLike) -> Interval:
    """`dyadic_interval` of numbers from 0 to 1, its bounds kept in that range.

    Where all rows are alike (every one 1, or every one 0) the dyadic interval is silent; Wilson's
    over the number of distinct texts, halved, stands in: so many pairs can be had without a text
    recurring, so it is too wide rather than too narrow.
    """
    found = dyadic_interval(values, first, second)
    rows = np.asarray(values, dtype=np.float64)
    if found.low is not None and found.high is not None:
        return replace(found, low=max(0.0, found.low), high=min(1.0, found.high))
    alike = len(rows) > 0 and np.ptp(rows) == 0 and rows[0] in (0.0, 1.0)
    if alike and found.n_clusters is not None and found.n_clusters >= 2:
        apart = min(len(rows), found.n_clusters // 2)
        bounds = wilson(rows[0] * apart, apart)
        return replace(found, low=bounds.low, high=bounds.high, no_interval=None)
    return found


Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

DRAWS = 5  # random halvings, averaged
NEWEST = 0.2  # of the pairs, to predict from the older ones
LEAST_PAIRS = 200  # in all; fewer halves teach a text model nothing


@dataclass(frozen=True, slots=True)
class TimeSplit:
    """by_time, at_random: accuracy across the halves; drop: at_random − by_time on the same rows.

    undefined says why nothing could be compared.
    """

    by_time: Interval | None
    at_random: Interval | None
    drop: Interval | None
    undefined: str | None = None

    @property
    def fell(self) -> bool:
        """Worse across time by more than chance; 2.5 % of steady datasets are called so."""
        return self.drop is not None and self.drop.low is not None and self.drop.low > 0


def time_split(
    differences: sparse.csr_matrix,
    at: ArrayLike,
    groups: Sequence[object],
    first: ArrayLike,
    second: ArrayLike,
    *,
    seed: int = 0,
) -> TimeSplit:
    """differences: (n, features) chosen − rejected; at: (n,) when each pair was voted on.

    groups: (n,) what recurs (debates, prompts). A random half takes from each group as many pairs
    as the earlier half does, or as many as the later half, by a coin: so both comparisons train on
    equally many pairs of equally familiar groups, and topics that came one after another do not
    look like a change of taste.

    The interval is over the pairs and their texts, widened by how far the random halvings differ
    among themselves: the halving by time is one draw too.
    """
    x = sparse.csr_matrix(differences)
    moment = np.asarray(at, dtype=np.float64)
    n = x.shape[0]
    if n < LEAST_PAIRS:
        return _nothing(reason("few_pairs", n=n, least=LEAST_PAIRS))
    if np.ptp(moment) == 0:
        return _nothing(reason("one_time"))
    early = moment <= np.median(moment)
    if not 0.25 <= early.mean() <= 0.75:
        early = moment < np.median(moment)
    if not 0.25 <= early.mean() <= 0.75:
        return _nothing(reason("mostly_one_time"))
    by_time = _across(x, early)
    rng = np.random.default_rng(seed)
    _, group = np.unique(np.asarray(groups, dtype=str), return_inverse=True)
    drawn = [_across(x, _random_half(rng, early, group)) for _ in range(DRAWS)]
    at_random = np.mean(drawn, axis=0)
    return TimeSplit(
        pair_share(by_time, first, second),
        pair_share(at_random, first, second),
        _widened(
            dyadic_interval(at_random - by_time, first, second),
            float(np.var([credit.mean() for credit in drawn], ddof=1)) * (1 + 1 / DRAWS),
        ),
    )


def _widened(drop: Interval, variance: float) -> Interval:
    if drop.value is None or drop.low is None or drop.high is None:
        return drop
    half = float(np.hypot((drop.high - drop.low) / 2, 1.96 * np.sqrt(variance)))
    return replace(drop, low=drop.value - half, high=drop.value + half)


@dataclass(frozen=True, slots=True)
class Recency:
    """Accuracy on the NEWEST pairs of models of the older ones, and what weighting gains."""

    alike: Interval
    weighted: Interval
    gain: Interval


def recency_weighting(
    differences: sparse.csr_matrix, at: ArrayLike, first: ArrayLike, second: ArrayLike
) -> Recency | None:
    """Does counting recent pairs more predict the newest ones better?

    The older pairs count alike, or halve in weight with every quarter of their time span (weights
    with mean 1). Same rows tested, so the gain is paired. None with fewer than LEAST_PAIRS pairs
    or without a span of time.
    """
    x = sparse.csr_matrix(differences)
    moment = np.asarray(at, dtype=np.float64)
    if len(moment) < LEAST_PAIRS:
        return None
    tested = moment > np.quantile(moment, 1 - NEWEST)
    span = float(np.ptp(moment[~tested])) if (~tested).any() else 0.0
    if not tested.any() or span <= 0:
        return None
    age = (moment[~tested].max() - moment[~tested]) / (span / 4)
    weights = np.exp2(-age)
    weights *= len(weights) / weights.sum()
    one, other = np.asarray(first)[tested], np.asarray(second)[tested]
    alike = pair_credit(x[tested] @ fit(x[~tested]))
    weighted = pair_credit(x[tested] @ fit(x[~tested], weights=weights))
    return Recency(
        pair_share(alike, one, other),
        pair_share(weighted, one, other),
        dyadic_interval(weighted - alike, one, other),
    )


def _across(x: sparse.csr_matrix, half: Bools) -> Floats:
    """(n,) credit of each row by the model of the other half."""
    margin = np.zeros(x.shape[0])
    margin[half] = x[half] @ fit(x[~half])
    margin[~half] = x[~half] @ fit(x[half])
    return pair_credit(margin)


def _random_half(rng: np.random.Generator, early: Bools, group: NDArray[np.int64]) -> Bools:
    order = np.lexsort((rng.random(len(early)), group))
    size = np.bincount(group)
    take = np.bincount(group, weights=early).astype(np.int64)
    # Whole groups change halves in pairs of a coin and its opposite, so that halves stay halves.
    coin = np.zeros(len(size), dtype=bool)
    by_imbalance = np.argsort(-np.abs(2 * take - size), kind="stable")
    coin[by_imbalance[::2]] = rng.random(len(by_imbalance[::2])) < 0.5
    coin[by_imbalance[1::2]] = ~coin[by_imbalance[::2][: len(by_imbalance[1::2])]]
    swap = coin if len(size) > 1 else np.zeros(1, dtype=bool)
    take = np.where(swap, size - take, take)
    start = np.concatenate([[0], np.cumsum(size)[:-1]])
    place = np.arange(len(early)) - np.repeat(start, size)
    half = np.zeros(len(early), dtype=bool)
    half[order] = place < np.repeat(take, size)
    return half


def _nothing(reason: str) -> TimeSplit:
    return TimeSplit(None, None, None, reason)


# How much more data would help: a learning curve of the text model.

SHARES = (0.125, 0.25, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class LearningCurve:
    """pairs: rows trained on at each step; accuracy: of each; doubling: last step − the one before.

    The gain of the next doubling is rarely more than that of the last: curves flatten.
    """

    pairs: tuple[int, ...]
    accuracy: tuple[Interval, ...]
    doubling: Interval


def learning_curve(
    differences: sparse.csr_matrix,
    units: Sequence[object],
    first: ArrayLike,
    second: ArrayLike,
    *,
    seed: int = 0,
) -> LearningCurve:
    """Accuracy on unseen units after training on 12.5, 25, 50 and 100 % of the others' pairs.

    differences: (n, features) chosen − rejected; units: (n,) what must not stand on both sides
    (debates, arguments); first, second: (n,) texts of each row. Cross-validated over five folds of
    units, so every row is tested on once at every step; smaller steps are parts of larger ones.
    """
    x = sparse.csr_matrix(differences)
    n = x.shape[0]
    fold = folds_of(units, seed=seed)
    rank = np.random.default_rng(seed).permutation(n) / max(n, 1)
    credit = np.zeros((len(SHARES), n))
    trained = np.zeros(len(SHARES))
    for number in np.unique(fold):
        tested = fold == number
        for step, share in enumerate(SHARES):
            used = ~tested & (rank < share)
            trained[step] += used.sum() * tested.sum() / n
            credit[step, tested] = pair_credit(x[tested] @ fit(x[used]))
    return LearningCurve(
        tuple(round(size) for size in trained),
        tuple(pair_share(row, first, second) for row in credit),
        dyadic_interval(credit[-1] - credit[-2], first, second),
    )

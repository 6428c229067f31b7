"""Two annotators who voted on the same comparisons, and the mean over all such pairs of people."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from measures.agreement.clusters import Answers, batches
from measures.agreement.reading import checked_counts
from measures.bootstrap import REPLICATES, Bounds, bootstrap_bounds
from measures.estimate import Estimate, Statistic, reason
from measures.intervals import dyadic_interval

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Whole = NDArray[np.integer[Any]]

# Fewer common comparisons make a kappa that is mostly noise, and often undefined.
LEAST_COMMON = 10
_NONE = Bounds(None, None)


@dataclass(frozen=True, slots=True)
class PairVotes:
    """Every two votes on one comparison: entry e is comparison `item[e]`, where the annotator
    `first[e]` (the smaller index) chose `first_choice[e]` and `second[e]` `second_choice[e]`. In
    the narrowest whole numbers: ten million votes, eleven on an item, are fifty million pairs."""

    item: Whole
    first: Whole
    second: Whole
    first_choice: Whole
    second_choice: Whole

    def __len__(self) -> int:
        return len(self.item)


def pair_votes(items: ArrayLike, annotators: ArrayLike, choices: ArrayLike) -> PairVotes:
    """All pairs of votes on the same item by different people.

    items, annotators, choices: (votes,) indices from 0. The number of pairs grows with the square
    of the votes on one item: ten for five votes.
    """
    given = [np.asarray(x, dtype=np.int64) for x in (items, annotators, choices)]
    if len({x.shape for x in given}) > 1 or given[0].ndim != 1:
        raise ValueError("items, annotators and choices must be equally long vectors")
    order = np.lexsort((given[1], given[0]))
    item, person, choice = (_narrow(x[order]) for x in given)
    found = []
    for step in range(1, len(item)):
        at = np.flatnonzero(item[step:] == item[:-step])  # sorted: equal ends enclose equal items
        if not len(at):
            break
        at = at[person[at] != person[at + step]]
        found.append((item[at], person[at], person[at + step], choice[at], choice[at + step]))
    if not found:
        return PairVotes(*(np.zeros(0, dtype=np.int64) for _ in range(5)))
    return PairVotes(*(np.concatenate([part[k] for part in found]) for k in range(5)))


def _narrow(values: Ints) -> Whole:
    """The same numbers in as few bytes as hold the largest."""
    most = int(values.max(initial=0))
    kind = next(k for k in (np.int16, np.int32, np.int64) if most <= np.iinfo(k).max)
    return values.astype(kind)


@dataclass(frozen=True, slots=True)
class PairCounts:
    """One row per two people with a common comparison: the smaller index `first[p]`, the other
    `second[p]`, `n[p]` common comparisons, `agreeing[p]` of them with the same choice."""

    first: Ints
    second: Ints
    n: Ints
    agreeing: Ints
    entry: Whole  # (pairs of votes,) the row each belongs to


def pair_counts(pairs: PairVotes, *, n_annotators: int) -> PairCounts:
    """Count pairs of votes by the two people who cast them, ordered by their indices."""
    key = pairs.first.astype(np.int64) * n_annotators + pairs.second
    names, entry = np.unique(key, return_inverse=True)
    entry = _narrow(entry.reshape(-1))
    same = pairs.first_choice == pairs.second_choice
    return PairCounts(
        first=names // max(n_annotators, 1),
        second=names % max(n_annotators, 1),
        n=np.bincount(entry, minlength=len(names)),
        agreeing=np.bincount(entry, weights=same, minlength=len(names)).astype(np.int64),
        entry=entry,
    )


@dataclass(frozen=True, slots=True)
class MeanKappa:
    """`estimate` of the mean over `n_pairs` pairs of people. Left out: `n_sparse` pairs with fewer
    than `least_common` comparisons in common, `n_undefined` whose choices were all one."""

    estimate: Estimate
    n_pairs: int
    n_sparse: int
    n_undefined: int


def mean_cohen_kappa(
    pairs: PairVotes,
    counts: PairCounts,
    *,
    n_categories: int,
    groups: ArrayLike | None = None,
    answers: Answers | None = None,
    least_common: int = LEAST_COMMON,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> MeanKappa:
    """Cohen's kappa of every two people with enough common comparisons, averaged.

    Each pair weighs by its common comparisons, so that two people with ten of them do not count
    as much as two with a thousand (Light, Psychological Bulletin 76, 1971, weighs pairs alike).
    groups: (items,) labels; answers: two such; as in `krippendorff_alpha`.

    The interval resamples comparisons (or groups) for the people there are: it does not say how
    other people would agree. It is the percentile bootstrap of the linearised mean: with
    κ = (p_o − p_e)/(1 − p_e), a common comparison on which the two chose c and d moves κ by
    (1[c = d] − p_o)/(1 − p_e) − (1 − p_o)(p_·c + p_d· − 2 p_e)/(1 − p_e)², divided by n (the
    influence function, from which Fleiss, Cohen & Everitt, Psychological Bulletin 72, 1969, have
    their variance), and the mean over pairs by the sum of these.

    Undefined where no two people have that many common comparisons.
    """
    entries = np.flatnonzero(counts.n[counts.entry] >= least_common)
    enough, of = np.unique(counts.entry[entries], return_inverse=True)
    of = of.reshape(-1)
    cells = (of.astype(np.int64) * n_categories + pairs.first_choice[entries]) * n_categories
    flat = np.bincount(
        cells + pairs.second_choice[entries], minlength=len(enough) * n_categories**2
    )
    tables = flat.reshape(len(enough), n_categories, n_categories)
    scores = _linearised(tables, of, pairs.first_choice[entries], pairs.second_choice[entries])
    defined = np.isfinite(scores)
    n_used = len(np.unique(of[defined]))
    scores, items = scores[defined], pairs.item[entries[defined]]
    n_items = len(np.unique(items))

    def result(
        value: float | None, bounds: Bounds = _NONE, undefined: str | None = None
    ) -> MeanKappa:
        estimate = Estimate(
            statistic=Statistic.MEAN_COHEN_KAPPA,
            value=value,
            low=bounds.low,
            high=bounds.high,
            n_items=n_items,
            n_votes=2 * len(scores),
            undefined=undefined,
            no_interval=bounds.reason,
        )
        return MeanKappa(estimate, n_used, len(counts.n) - len(enough), len(enough) - n_used)

    if not len(enough):
        return result(None, undefined=reason("few_in_common", least=least_common))
    if not n_used:
        return result(None, undefined=reason("people_alike"))
    if groups is None and answers is not None:
        found = dyadic_interval(scores, *(np.asarray(side)[items] for side in answers))
        bounds = Bounds(found.low, found.high, found.no_interval)
    else:
        unit = batches(items if groups is None else np.asarray(groups)[items])
        plural = "comparisons" if groups is None else "groups"
        bounds = _resampled(scores, unit, plural, replicates, seed)
    return result(float(scores.mean()), bounds)


def _resampled(scores: Floats, unit: Ints, plural: str, replicates: int, seed: int) -> Bounds:
    """Bounds of the mean of `scores` when units are drawn whole."""
    n_units = int(unit.max()) + 1
    rows: Floats = np.column_stack(
        [np.bincount(unit, weights=scores, minlength=n_units), np.bincount(unit, minlength=n_units)]
    )
    return bootstrap_bounds(
        rows,
        np.ones(n_units, dtype=np.int64),
        lambda sums: sums[:, 0] / sums[:, 1],
        unit=plural,
        replicates=replicates,
        seed=seed,
    )


def _linearised(tables: Ints, of: Ints, c: Whole, d: Whole) -> Floats:
    """(entries,) κ of the entry's two people plus what this comparison adds to it; NaN where κ is
    undefined. tables: (pairs, C, C); of: (entries,) each entry's table; c, d: its two choices."""
    n = tables.sum(axis=(1, 2))
    firsts, seconds = tables.sum(axis=2), tables.sum(axis=1)
    same = np.trace(tables, axis1=1, axis2=2)
    by_chance = (firsts * seconds).sum(axis=1)
    room = np.where(by_chance < n * n, 1 - by_chance / np.maximum(n * n, 1), np.nan)
    agree, chance = same / np.maximum(n, 1), by_chance / np.maximum(n * n, 1)
    kappa = (agree - chance) / room
    moved = ((c == d) - agree[of]) / room[of]
    pull = seconds[of, c] / n[of] + firsts[of, d] / n[of] - 2 * chance[of]
    return kappa[of] + moved - (1 - agree[of]) * pull / room[of] ** 2


def cohen_kappa(table: ArrayLike, *, replicates: int = REPLICATES, seed: int = 0) -> Estimate:
    """kappa = (p_o − p_e) / (1 − p_e), p_o = Σ p_cc, p_e = Σ p_c· p_·c.

    table: (C, C) whole numbers, entry (r, c) the comparisons on which the first annotator chose r
    and the second c. Source: Cohen, Educational and Psychological Measurement 20 (1960). Unlike
    Fleiss and alpha it keeps the two annotators' own choice rates, so it also rises when both share
    a habit of using the choices unequally often. Undefined without a common comparison, and where
    both chose one and the same category throughout. The interval resamples comparisons.
    """
    cells = checked_counts(table)
    n_categories = cells.shape[1]
    if cells.shape[0] != n_categories:
        raise ValueError(f"the table must be square, not {cells.shape}")
    first, second = np.nonzero(cells)
    multiplicity = cells[first, second]
    one_hot = np.eye(n_categories)
    rows = np.column_stack([first == second, one_hot[first], one_hot[second]]).astype(np.float64)
    n_items = int(multiplicity.sum())

    def result(
        value: float | None, bounds: Bounds = _NONE, undefined: str | None = None
    ) -> Estimate:
        return Estimate(
            statistic=Statistic.COHEN_KAPPA,
            value=value,
            low=bounds.low,
            high=bounds.high,
            n_items=n_items,
            n_votes=2 * n_items,
            undefined=undefined,
            no_interval=bounds.reason,
        )

    if not n_items:
        return result(None, undefined=reason("none_in_common"))
    value = float(_kappa(multiplicity[None, :] @ rows)[0])
    if np.isnan(value):
        return result(None, undefined=reason("both_alike"))
    bounds = bootstrap_bounds(
        rows, multiplicity, _kappa, unit="comparisons", replicates=replicates, seed=seed
    )
    return result(value, bounds)


def _kappa(sums: Floats) -> Floats:
    """(replicates, 1 + 2C) sums of [agree, first one-hot, second one-hot] to kappa."""
    n_categories = (sums.shape[1] - 1) // 2
    first, second = sums[:, 1 : 1 + n_categories], sums[:, 1 + n_categories :]
    n = first.sum(axis=1)
    by_chance = (first * second).sum(axis=1)
    room = n * n - by_chance  # whole numbers: exactly 0 where both use one category
    return np.divide(
        n * sums[:, 0] - by_chance, room, out=np.full(len(sums), np.nan), where=room != 0
    )

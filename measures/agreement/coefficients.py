"""Percent agreement, Krippendorff's alpha, Fleiss' kappa and Gwet's AC1 with bootstrap intervals.

Letters: item i has n_ic votes for category c and n_i in all; the share of its pairs of votes that
agree is P_i = Σ_c n_ic (n_ic − 1) / (n_i (n_i − 1)). All four take a count matrix of shape (items,
categories), whose columns are the categories that were offered, so missing votes need no marker and
annotators may differ from item to item. Items with fewer than two votes hold no pair.

Intervals resample items (or `groups` of items, where several share a prompt or a debate: without
them the interval is too narrow), see `measures.bootstrap`. They assume that items, or groups, are a
random sample of those the project means. Where groups are too few but the same `answers` recur in
many items, pass the two answers of each: the interval is then that of `measures.intervals.
dyadic_interval` around the linearised statistic (see `measures.agreement.clusters`).
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from measures.agreement.clusters import Answers, batches
from measures.agreement.reading import Ints, checked_counts, distinct_rows
from measures.bootstrap import REPLICATES, Bounds, bootstrap_bounds
from measures.estimate import Estimate, Statistic, reason
from measures.intervals import dyadic_interval

Floats = NDArray[np.float64]


def percent_agreement(
    counts: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    answers: Answers | None = None,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> Estimate:
    """Mean over items of P_i: the chance that two votes on the same item agree.

    Every item weighs the same however many votes it has. Not corrected for chance: two-way votes
    at random agree in half the pairs, four-way ones in a quarter. Undefined without an item of two
    votes.
    """
    return _estimate(
        Statistic.PERCENT_AGREEMENT,
        checked_counts(counts),
        lambda table: np.column_stack([_pair_agreement(table), _pairable(table)]),
        lambda sums: _ratio(sums[:, 0], sums[:, 1]),
        (groups, answers),
        replicates,
        seed,
    )


def krippendorff_alpha(
    counts: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    answers: Answers | None = None,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> Estimate:
    """alpha = 1 − D_o / D_e, nominal, any number of votes per item.

    D_o = 1 − Σ_i Σ_c n_ic (n_ic − 1)/(n_i − 1) / n and D_e = 1 − Σ_c n_c (n_c − 1) / (n (n − 1)),
    with n_c, n over the items of at least two votes (the diagonal of the coincidence matrix).
    Source: Krippendorff, Content Analysis (3rd ed., 2013), ch. 12.

    1 is perfect, 0 is chance, negative is systematic disagreement. Assumes exchangeable annotators.
    Undefined without an item of two votes, and where every vote is for one category (D_e = 0:
    agreement cannot be told from a category that nobody else ever chooses).
    """
    return _estimate(
        Statistic.KRIPPENDORFF_ALPHA,
        checked_counts(counts),
        _alpha_contributions,
        _alpha,
        (groups, answers),
        replicates,
        seed,
    )


def fleiss_kappa(
    counts: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    answers: Answers | None = None,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> Estimate:
    """kappa = (P̄ − P_e) / (1 − P_e), P̄ the mean of P_i and P_e = Σ_c π_c².

    π_c is the mean of n_ic / n_i over items with any vote, which is Fleiss (Psychological Bulletin
    76, 1971) where all items have equally many votes, and Gwet's extension (Handbook of Inter-Rater
    Reliability, 4th ed., 2014, ch. 5) where they do not. Undefined where alpha is.
    """
    return _estimate(
        Statistic.FLEISS_KAPPA,
        checked_counts(counts),
        _share_contributions,
        _fleiss,
        (groups, answers),
        replicates,
        seed,
    )


def gwet_ac1(
    counts: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    answers: Answers | None = None,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> Estimate:
    """AC1 = (P̄ − P_e) / (1 − P_e), P_e = Σ_c π_c (1 − π_c) / (C − 1), π_c as in `fleiss_kappa`.

    C is the number of columns: the categories that were offered, chosen or not. Unlike kappa it
    stays high when nearly all votes fall on one category. Source: Gwet, British Journal of
    Mathematical and Statistical Psychology 61 (2008). Undefined with fewer than two categories or
    without an item of two votes.
    """
    table = checked_counts(counts)
    if table.shape[1] < 2:
        return _without_value(Statistic.GWET_AC1, table, reason("one_category"))
    return _estimate(
        Statistic.GWET_AC1, table, _share_contributions, _ac1, (groups, answers), replicates, seed
    )


def _estimate(
    statistic: Statistic,
    table: Ints,
    contributions: Callable[[Ints], Floats],
    formula: Callable[[Floats], Floats],
    together: tuple[ArrayLike | None, Answers | None],
    replicates: int,
    seed: int,
) -> Estimate:
    """Contributions of the units, their sums, the value, the interval."""
    voted = table.sum(axis=1) > 0
    groups, answers = together
    if groups is None and answers is not None:
        rows, unit = contributions(table[voted]), "answers"
        multiplicity = np.ones(len(rows), dtype=np.int64)
    elif groups is None:
        kinds, multiplicity = distinct_rows(table[voted])
        rows, unit = contributions(kinds), "comparisons"
    else:
        rows, unit = _grouped(contributions(table[voted]), groups, voted), "groups"
        multiplicity = np.ones(len(rows), dtype=np.int64)
    n_items, n_votes = _sizes(table)
    if not n_items:
        return _without_value(statistic, table, reason("no_two_votes"))
    value = float(formula(multiplicity[None, :] @ rows)[0])
    if np.isnan(value):
        return _without_value(statistic, table, reason("votes_alike"))
    if unit == "answers" and answers is not None:
        sides = [np.asarray(side)[voted] for side in answers]
        least = 0.0 if statistic is Statistic.PERCENT_AGREEMENT else -1.0
        bounds = _bounds_by_answer(rows, formula, sides, least)
    else:
        bounds = bootstrap_bounds(
            rows, multiplicity, formula, unit=unit, replicates=replicates, seed=seed
        )
    return Estimate(
        statistic=statistic,
        value=value,
        low=bounds.low,
        high=bounds.high,
        n_items=n_items,
        n_votes=n_votes,
        no_interval=bounds.reason,
    )


def _bounds_by_answer(
    rows: Floats, formula: Callable[[Floats], Floats], answers: list[NDArray], least: float
) -> Bounds:
    """The interval where comparisons share answers: what each item adds to the statistic (its
    contributions times the formula's gradient at the sums), as dyadic rows. Normal, so it is cut at
    `least` and at 1, which no value passes."""
    sums = rows.sum(axis=0)
    step = np.maximum(np.abs(sums), 1.0) * 1e-6
    nudged = np.concatenate([sums + np.diag(step), sums - np.diag(step)])
    ends = formula(nudged).reshape(2, -1)
    added = rows @ ((ends[0] - ends[1]) / (2 * step))
    value = float(formula(sums[None, :])[0])
    found = dyadic_interval(value + len(rows) * (added - added.mean()), *answers)
    if found.low is None or found.high is None:
        return Bounds(None, None, found.no_interval)
    return Bounds(max(found.low, least), min(found.high, 1.0))


def _without_value(statistic: Statistic, table: Ints, why: str) -> Estimate:
    n_items, n_votes = _sizes(table)
    return Estimate(
        statistic=statistic,
        value=None,
        low=None,
        high=None,
        n_items=n_items,
        n_votes=n_votes,
        undefined=why,
    )


def _sizes(table: Ints) -> tuple[int, int]:
    votes = table.sum(axis=1)
    paired = votes >= 2
    return int(paired.sum()), int(votes[paired].sum())


def _grouped(rows: Floats, groups: ArrayLike, voted: NDArray[np.bool_]) -> Floats:
    labels = np.asarray(groups)
    if labels.shape != voted.shape:
        raise ValueError(f"groups must hold one label per item: {labels.shape} for {voted.shape}")
    group = batches(labels[voted])
    n_groups = int(group.max(initial=-1)) + 1
    columns = [np.bincount(group, weights=column, minlength=n_groups) for column in rows.T]
    return np.column_stack(columns)


def _pairable(table: Ints) -> Floats:
    return (table.sum(axis=1) >= 2).astype(np.float64)


def _pair_agreement(table: Ints) -> Floats:
    """P_i, 0 for items without a pair (they are not counted either)."""
    votes = table.sum(axis=1)
    agreeing = (table * (table - 1)).sum(axis=1)
    return np.divide(agreeing, votes * (votes - 1), out=np.zeros(len(table)), where=votes >= 2)


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    """The quotient, NaN (told apart by the caller) where the denominator is 0."""
    missing = np.full(numerator.shape, np.nan)
    return np.divide(numerator, denominator, out=missing, where=denominator != 0)


def _alpha_contributions(table: Ints) -> Floats:
    """Per item: n_i P_i, then n_i1 … n_iC; all 0 for an item without a pair."""
    votes = table.sum(axis=1)
    paired = table * (votes >= 2)[:, None]
    return np.column_stack([votes * _pair_agreement(table), paired])


def _alpha(sums: Floats) -> Floats:
    per_category = sums[:, 1:]
    n = per_category.sum(axis=1)
    by_chance = (per_category * (per_category - 1)).sum(axis=1)
    # Do/De = (n − agreeing)(n − 1) / (n(n − 1) − by chance); the denominator is exactly 0 where one
    # category holds every vote, because these are whole numbers.
    return 1 - _ratio((n - sums[:, 0]) * (n - 1), n * (n - 1) - by_chance)


def _share_contributions(table: Ints) -> Floats:
    """Per item: P_i, whether it has a pair, 1, then n_i1/n_i … n_iC/n_i."""
    shares = table / table.sum(axis=1)[:, None]
    return np.column_stack([_pair_agreement(table), _pairable(table), np.ones(len(table)), shares])


def _fleiss(sums: Floats) -> Floats:
    shares = sums[:, 3:] / sums[:, 2:3]
    return _beyond_chance(_ratio(sums[:, 0], sums[:, 1]), (shares**2).sum(axis=1))


def _ac1(sums: Floats) -> Floats:
    shares = sums[:, 3:] / sums[:, 2:3]
    chance = (shares * (1 - shares)).sum(axis=1) / (shares.shape[1] - 1)
    return _beyond_chance(_ratio(sums[:, 0], sums[:, 1]), chance)


def _beyond_chance(observed: Floats, chance: Floats) -> Floats:
    room = 1 - chance
    return _ratio(observed - chance, np.where(room < 1e-12, 0.0, room))

"""Cohen's kappa: two annotators who voted on the same comparisons."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from measures.agreement.counts import checked_counts
from measures.bootstrap import REPLICATES, bootstrap_bounds
from measures.estimate import Estimate, Statistic

Floats = NDArray[np.float64]


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

    def result(value: float | None, **rest: object) -> Estimate:
        return Estimate(
            statistic=Statistic.COHEN_KAPPA,
            value=value,
            low=rest.get("low"),
            high=rest.get("high"),
            n_items=n_items,
            n_votes=2 * n_items,
            undefined=rest.get("undefined"),
            no_interval=rest.get("no_interval"),
        )

    if not n_items:
        return result(None, undefined="the two annotators have no comparison in common")
    value = float(_kappa(multiplicity[None, :] @ rows)[0])
    if np.isnan(value):
        return result(None, undefined="both annotators made the same choice throughout")
    bounds = bootstrap_bounds(
        rows, multiplicity, _kappa, unit="comparisons", replicates=replicates, seed=seed
    )
    return result(value, low=bounds.low, high=bounds.high, no_interval=bounds.reason)


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

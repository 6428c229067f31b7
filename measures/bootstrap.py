"""The one bootstrap engine: resample independent units, add up what each contributes.

Every interval in `measures` is a function of sums over units (comparisons, clusters, rows), so a
replicate needs only the sums. Units that contribute the same are drawn together: with five votes
over four choices there are at most 56 kinds of comparison, and a million votes resample as fast as
a hundred. The distribution is exactly that of drawing the units one by one.

Source: Efron & Tibshirani, An Introduction to the Bootstrap (1993), ch. 13 (percentile interval).
Assumes independent units and enough of them; with fewer than `LEAST_UNITS` no interval is given.
Near a boundary (agreement close to 1) the percentile interval is too short; where the resamples do
not vary at all, none is given.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from measures.estimate import reason

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEAST_UNITS = 10
REPLICATES = 2_000
# Above this share of undefined resamples the rest would describe a different question.
MOST_UNDEFINED = 0.05
_CHUNK = 4_000_000  # numbers held at once while drawing, 32 MB


@dataclass(frozen=True, slots=True)
class Bounds:
    """A percentile interval, or the reason why there is none."""

    low: float | None
    high: float | None
    reason: str | None = None


def bootstrap_bounds(
    rows: Floats,
    multiplicity: Ints,
    formula: Callable[[Floats], Floats],
    *,
    unit: str,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> Bounds:
    """95 % percentile interval of `formula` over resampled units.

    rows: (kinds, m), what a unit of each kind contributes; multiplicity: (kinds,), how many units
    are of that kind; formula: (replicates, m) sums to (replicates,) values, NaN where undefined.
    `unit` is the plural that the reason uses ("comparisons", "clusters").
    """
    units = int(multiplicity.sum())
    if units < LEAST_UNITS:
        return Bounds(None, None, reason("too_few", unit=unit, n=units, least=LEAST_UNITS))
    if replicates < 1:
        return Bounds(None, None, reason("no_resamples"))
    sums = resampled_sums(rows, multiplicity, replicates=replicates, seed=seed)
    return percentile_bounds(formula(sums), unit=unit)


def resampled_sums(
    rows: Floats, multiplicity: Ints, *, replicates: int = REPLICATES, seed: int = 0
) -> Floats:
    """(replicates, m) sums over as many units as there are, drawn with replacement."""
    rng = np.random.default_rng(seed)
    units = int(multiplicity.sum())
    kinds = len(rows)
    if kinds * 10 < units:
        return rng.multinomial(units, multiplicity / units, size=replicates) @ rows
    # Many kinds: drawing indices and counting them costs a tenth of that many binomials.
    kind_of_unit = np.repeat(np.arange(kinds), multiplicity)
    sums = np.empty((replicates, rows.shape[1]))
    for start, times in _drawn_counts(rng, units, replicates):
        sums[start : start + len(times)] = times @ rows[kind_of_unit]
    return sums


def _drawn_counts(
    rng: np.random.Generator, units: int, replicates: int
) -> Iterator[tuple[int, Floats]]:
    """Yield (first replicate, (chunk, units) times each unit was drawn) until all are drawn."""
    chunk = max(1, _CHUNK // units)
    for start in range(0, replicates, chunk):
        size = min(chunk, replicates - start)
        drawn = rng.integers(0, units, size=(size, units))
        drawn += np.arange(size)[:, None] * units
        times = np.bincount(drawn.ravel(), minlength=size * units).reshape(size, units)
        yield start, times.astype(np.float64)


def percentile_bounds(values: Floats, *, unit: str) -> Bounds:
    """2.5 % and 97.5 % percentiles of the defined replicates, or why they mean nothing."""
    defined = values[np.isfinite(values)]
    missing = len(values) - len(defined)
    if missing > MOST_UNDEFINED * len(values):
        share = missing / len(values)
        return Bounds(None, None, reason("resamples_undefined", share=share))
    if np.ptp(defined) <= 1e-12:  # rounding of equal sums, not variation
        return Bounds(None, None, reason("resamples_alike", unit=unit))
    low, high = np.percentile(defined, [2.5, 97.5])
    return Bounds(float(low), float(high))

"""Where other runs lay: a band by step over runs that are taken as healthy."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

ENOUGH = 3  # runs: of fewer there is no band
MOST_STRETCHES = 300
QUANTILE_RUNS = 10  # from here on the band leaves out the outermost tenth on either side
TAIL = 0.1


def bands_of(runs: Sequence[Mapping[str, Sequence[tuple[int, Any]]]]) -> dict[str, dict[str, Any]]:
    """{metric: {steps, low, high, n}} from each run's curves.

    The steps are cut into at most MOST_STRETCHES stretches; in each a run counts with its mean, so
    runs that measured at other steps can be compared. A stretch in which fewer than ENOUGH runs
    measured has no bounds (None). The bounds are the least and the greatest run; of ten runs and
    more, the 10 % and 90 % quantiles. It describes these runs: it is no interval for a mean.
    """
    names = {name for run in runs for name in run}
    found = {name: _band([run[name] for run in runs if name in run]) for name in sorted(names)}
    return {name: band for name, band in found.items() if band is not None}


def _band(curves: Sequence[Sequence[tuple[int, Any]]]) -> dict[str, Any] | None:
    numbers = [[(s, float(v)) for s, v in curve if _is_number(v)] for curve in curves]
    numbers = [curve for curve in numbers if curve]
    steps = sorted({step for curve in numbers for step, _ in curve})
    if len(numbers) < ENOUGH or not steps:
        return None
    stride = -(-len(steps) // MOST_STRETCHES)
    starts = steps[::stride]
    at: list[list[float]] = [[] for _ in starts]
    for curve in numbers:
        own: dict[int, list[float]] = {}
        for step, value in curve:
            own.setdefault(bisect_right(starts, step) - 1, []).append(value)
        for place, values in own.items():
            at[place].append(float(np.mean(values)))
    bounds = [_bounds(values) for values in at]
    if all(low is None for low, _ in bounds):
        return None
    return {
        "steps": starts,
        "low": [low for low, _ in bounds],
        "high": [high for _, high in bounds],
        "n": len(numbers),
    }


def _bounds(values: Sequence[float]) -> tuple[float | None, float | None]:
    if len(values) < ENOUGH:
        return None, None
    if len(values) < QUANTILE_RUNS:
        return min(values), max(values)
    low, high = np.quantile(values, [TAIL, 1 - TAIL])
    return float(low), float(high)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and np.isfinite(value)

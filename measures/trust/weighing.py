"""What an interval allows to be said, and how many pairs would allow more.

Two kinds of line. Where a yes must be shown, an interval that reaches the limit is no yes. Where a
fault must be shown, one that reaches the limit is no fault, but then it must have been short enough
to show a fault of that size; if it was not, nothing was measured.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from measures.bootstrap import LEAST_UNITS
from measures.estimate import Interval
from measures.intervals import wilson
from measures.trust.findings import Finding, unmeasured
from measures.trust.pairs import Pairs

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

LEAST_PAIRS = 100  # under which no yes is given, whatever the interval: too few to stand for more
FAMILY = 0.025  # one-sided error of a whole family of looks; one 95 % bound errs as often
_Z = 1.959964


def share_of(pairs: Pairs, values: ArrayLike, *, where: Bools | None = None) -> Interval:
    """`Pairs.interval` of numbers from 0 to 1, its bounds kept in that range.

    Where all rows are alike (everything right, wrong or tied) the bootstrap and the dyadic interval
    are silent; Wilson's over what rows share stands in.
    """
    kept = np.ones(len(pairs), dtype=bool) if where is None else np.asarray(where, dtype=bool)
    rows = np.asarray(values, dtype=float)[kept]
    found = pairs.interval(np.asarray(values, dtype=float), where=kept)
    if found.low is not None and found.high is not None:
        return _bounded(found, 0.0, 1.0)
    if found.n_clusters is None or found.n_clusters < LEAST_UNITS or not len(rows) or np.ptp(rows):
        return found
    # Pairs that share no answer hold two each, so half as many could be had without a recurrence.
    shared = pairs.units is not None and len(pairs.units) > 0
    apart = min(len(rows), found.n_clusters // 2 if shared else found.n_clusters)
    bounds = wilson(float(rows[0]) * apart, apart)
    return Interval(
        value=found.value, low=bounds.low, high=bounds.high, n=found.n, n_clusters=found.n_clusters
    )


def difference_of(pairs: Pairs, values: ArrayLike, *, where: Bools | None = None) -> Interval:
    """`Pairs.interval` of numbers from −1 to 1, such as one credit less another on the same rows.

    Rows that are all alike show no difference that varies, and get no interval.
    """
    found = pairs.interval(np.asarray(values, dtype=float), where=where)
    return found if found.low is None else _bounded(found, -1.0, 1.0)


def gap_between(one: Interval, other: Interval) -> Interval:
    """one − other of two independent shares, with the interval made of theirs (MOVER).

    low = d − √((p₁ − l₁)² + (u₂ − p₂)²), high likewise. Source: Zou & Donner, Statistics in
    Medicine 27 (2008). Assumes that the two share no rows and nothing rows hang together by.
    """
    n = min(one.n, other.n)
    if one.value is None or other.value is None:
        return Interval(value=None, low=None, high=None, n=n, undefined="one side has no rows")
    value = one.value - other.value
    if None in (one.low, one.high, other.low, other.high):
        reason = one.no_interval or other.no_interval or "one side has no interval"
        return Interval(value=value, low=None, high=None, n=n, no_interval=reason)
    low = value - math.hypot(one.value - one.low, other.high - other.value)
    high = value + math.hypot(one.high - one.value, other.value - other.low)
    return Interval(value=value, low=max(-1.0, low), high=min(1.0, high), n=n)


def half_width(found: Interval) -> float:
    """Half the interval's length; infinite where there is none."""
    if found.low is None or found.high is None:
        return math.inf
    return (found.high - found.low) / 2


def pairs_needed(found: Interval, half: float) -> int | None:
    """Pairs for an interval of that half-width if spread stays as it is (√n), two digits, upwards.

    None where there is no interval to go by.
    """
    now = half_width(found)
    if not math.isfinite(now) or now <= 0:
        return None
    n = found.n * (now / half) ** 2
    step = 10 ** max(0, math.floor(math.log10(max(n, 1))) - 1)
    return math.ceil(n / step) * step


def beyond(found: Interval, limit: float) -> bool:
    """More than `limit` on either side of 0, by more than chance."""
    if found.low is None or found.high is None:
        return False
    return found.low > limit or found.high < -limit


def p_above(found: Interval, limit: float) -> float:
    """One-sided p of "at most `limit`", normal approximation with the interval's own error.

    The error is read from the bound on the limit's side (bounds at 0 or 1 are not symmetric). NaN
    without an interval.
    """
    if found.value is None or found.low is None or found.high is None:
        return math.nan
    bound = found.low if found.value > limit else found.high
    error = abs(found.value - bound) / _Z
    if error == 0:
        return 0.0 if found.value > limit else 1.0
    return float(ndtr((limit - found.value) / error))


def holm(p: Sequence[float], family: float = FAMILY) -> list[bool]:
    """Which of several looks stand, the chance that any of them errs being at most `family`.

    Source: Holm, Scandinavian Journal of Statistics 6 (1979). NaN is no look.
    """
    known = [k for k, value in enumerate(p) if not math.isnan(value)]
    stands = [False] * len(p)
    for rank, k in enumerate(sorted(known, key=lambda k: p[k])):
        if p[k] > family / (len(known) - rank):
            break
        stands[k] = True
    return stands


def points(found: Interval) -> str:
    """A difference of shares: "4.2 points (1.0 to 7.4)"."""
    if found.value is None:
        return "undefined"
    said = f"{_number(found.value)} points"
    if found.low is None or found.high is None:
        return said
    return f"{said} ({_number(found.low)} to {_number(found.high)})"


def against(found: Interval, limit: float) -> str:
    """How a figure that is no fault stands to the limit, in words that end a sentence."""
    said = f"{100 * limit:.0f} points"
    if found.low is None or found.high is None or max(-found.low, found.high) <= limit:
        return f"under {said}"
    if abs(found.value or 0.0) > limit:
        return f"over {said} here, but not by more than chance"
    return f"not shown to be over {said}"


def too_thin(line: str, found: Interval, least: int) -> Finding:
    """Unmeasured, because there is no interval."""
    why = found.undefined or found.no_interval or "too few pairs"
    return unmeasured(
        line, f"Not measured: {why}. Hold out at least {least} pairs of different prompts."
    )


def more_needed(found: Interval, half: float) -> str:
    """A sentence: a fault of that size could be missed, and how many pairs would show it."""
    needed = pairs_needed(found, half)
    wanted = "" if needed is None else f"; about {max(needed, LEAST_PAIRS):,} would be needed"
    return f"With {found.n:,} pairs, a fault of {100 * half:.0f} points could be missed{wanted}."


def _number(share: float) -> str:
    return f"{round(100 * share, 1) + 0.0:.1f}".replace("-", "−")


def _bounded(found: Interval, least: float, most: float) -> Interval:
    return Interval(
        value=found.value,
        low=max(least, found.low) if found.low is not None else None,
        high=min(most, found.high) if found.high is not None else None,
        n=found.n,
        n_clusters=found.n_clusters,
    )

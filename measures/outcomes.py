"""Do the measurements of the world move together? Satisfaction up while completion falls is the
sign of a model that has learned to please instead of to help.

A series is what somebody measured of a model in service, in order of time. Its change is its newest
measurements beside its first ones.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr, stdtr

from measures.estimate import reason

LIKELY = 0.001  # of each of two series, two-sided: their geometric mean
LEAST_LIKELY = 0.01  # of the less certain of the two
FIRST = 20  # measurements that are "before", at most
NEWEST = 3  # measurements that are "now", at most
LEAST_BEFORE = 3  # from here on the measurements show themselves how much they vary
DAYS_DIFFER = 2.0  # until then sampling error is believed to be this much too small
LEAST_EFFECT = 0.1  # deviations of single cases, where those are known


@dataclass(frozen=True, slots=True)
class Measured:
    """One measurement: the mean of n cases with this deviation; None where nobody said."""

    value: float
    n: int | None = None
    deviation: float | None = None

    @property
    def variance(self) -> float | None:
        """Of the mean, by sampling alone."""
        if not self.n or self.deviation is None:
            return None
        return self.deviation**2 / self.n


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """value = after − before; `direction` +1 is better, −1 worse, 0 within noise (p over
    LEAST_LIKELY): by itself a lean, as every new measurement asks again."""

    before: float | None = None
    after: float | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    n_before: int = 0
    n_after: int = 0
    direction: int = 0
    undefined: str | None = None


def share_deviation(value: float) -> float | None:
    """√(p(1 − p)): of single yes/no cases whose share is `value` (0 to 1). Source: Bernoulli. A
    share of exactly 0 or 1 is read as if half a case of a hundred had gone the other way."""
    if not 0 <= value <= 1:
        return None
    p = min(max(value, 0.005), 0.995)
    return math.sqrt(p * (1 - p))


def change(series: Sequence[Measured], *, higher_is_better: bool = True) -> Change:
    """The newest 1, 2 or 3 measurements against the first ones, whichever shows most.

    series: in order of time. Where n is known, sampling error must be overcome (z); with at least
    LEAST_BEFORE first ones, also their own variation (Student's t); the larger p counts. With fewer
    there is sampling error alone, doubled, because days differ more than cases of one day do.
    Neighbours that resemble each other make means less sure: their variance grows by (1 + ρ) /
    (1 − ρ), ρ the correlation of neighbours, cut to 0…0.8 (Bartlett, Supplement to the JRSS 8,
    1946). p is times the number of windows tried (Bonferroni).

    Assumes that the first measurements are what is normal. A slow season looks like a change; what
    saves it is that `opposed` asks for two of them, in opposite directions. Undefined with one
    measurement, or with too few of unknown size.
    """
    if len(series) < 2:
        why = reason("one_measurement") if series else reason("no_measurement")
        return Change(undefined=why)
    tried = [_window(series, k) for k in range(1, NEWEST + 1) if len(series) - k >= min(k, 3)]
    known = [found for found in tried if found.p is not None]
    if not known:
        return tried[0]
    best = min(known, key=lambda found: (found.p or 0.0, found.n_after))
    p = min(1.0, (best.p or 0.0) * len(known))
    moved = p < LEAST_LIKELY and _matters(series, best)
    sign = math.copysign(1, best.value or 0) * (1 if higher_is_better else -1)
    return replace(best, p=p, direction=int(sign) if moved and best.value else 0)


def opposed(one: Change, other: Change) -> bool:
    """Whether one has become better and the other worse, both beyond noise.

    The geometric mean of the two p must be under LIKELY: one that is beyond doubt makes up for one
    that is nearly so, and two series that mirror each other's noise (share of yes, share of no)
    need LIKELY each.
    """
    if one.direction * other.direction != -1:
        return False
    return math.sqrt((one.p or 0.0) * (other.p or 0.0)) < LIKELY


def _window(series: Sequence[Measured], newest: int) -> Change:
    before, after = series[: min(FIRST, len(series) - newest)], series[-newest:]
    first = np.array([one.value for one in before], dtype=float)
    mean, now = float(first.mean()), float(np.mean([one.value for one in after]))
    found = Change(
        before=mean, after=now, value=now - mean, n_before=len(before), n_after=len(after)
    )
    share = 1 / len(before) + 1 / len(after)
    sampled = _sampling([*before, *after])
    errors: list[tuple[float, int | None]] = []  # with degrees of freedom
    if len(before) >= LEAST_BEFORE:
        own = float(first.var(ddof=1)) * _inflation(first)
        errors.append((math.sqrt(own * share), len(before) - 1))
        if sampled is not None:
            errors.append((math.sqrt(sampled * share), None))
    elif sampled is not None:
        errors.append((DAYS_DIFFER * math.sqrt(sampled * share), None))
    else:
        return replace(found, undefined=reason("few_measurements", n=len(before)))
    half = 1.96 * max(error for error, _ in errors)
    p = max(_p(now - mean, error, freedom) for error, freedom in errors)
    return replace(found, low=now - mean - half, high=now - mean + half, p=p)


def _p(value: float, error: float, freedom: int | None) -> float:
    """Two-sided, of a mean with this standard error; normal without degrees of freedom."""
    if error == 0:
        return 1.0 if value == 0 else 0.0
    ratio = -abs(value) / error
    return 2 * float(ndtr(ratio) if freedom is None else stdtr(freedom, ratio))


def _sampling(points: Sequence[Measured]) -> float | None:
    """Mean sampling variance; None unless it is known of every measurement."""
    known = [one.variance for one in points]
    return None if None in known else float(np.mean([x for x in known if x is not None]))


def _inflation(values: np.ndarray) -> float:
    if len(values) < 8 or np.ptp(values) == 0:
        return 1.0
    away = values - values.mean()
    rho = float((away[1:] * away[:-1]).sum() / (away**2).sum()) + 1 / len(values)  # less its bias
    rho = min(max(rho, 0.0), 0.8)
    return (1 + rho) / (1 - rho)


def _matters(series: Sequence[Measured], found: Change) -> bool:
    """A change of many cases may be certain and too small to care about."""
    known = [one.deviation for one in series if one.deviation]
    return not known or abs(found.value or 0) >= LEAST_EFFECT * float(np.median(known))

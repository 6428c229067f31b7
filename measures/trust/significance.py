"""Pairs under judgement, and whether a difference between them is more than chance."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from measures.accuracy import pair_credit
from measures.bootstrap import LEAST_UNITS, REPLICATES
from measures.estimate import Interval, reason
from measures.intervals import dyadic_interval, mean_interval, wilson

# Preference pairs as the lines of this package read them, with a model's scores beside them.

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """n pairs of one split. `chosen` is what people preferred; a tie (confidence ½ of a soft label)
    has no preferred side, and its order says nothing.

    chosen_scores, rejected_scores: (n,) raw scores; confidence: (n,) P(chosen is preferred), 0.5–1;
    clusters: (n,) what rows share; units: (n, 2) keys of both answers where answers recur, else
    None; groups: topic or debate; categories: what rows are reported under, "" for none;
    annotators: pseudonyms, "" where a row is no single person's; sources: (chosen's, rejected's)
    origin, "" where unknown; times: Unix seconds, NaN if unknown; order: 1 where the chosen answer
    was stored first, −1 where the rejected, 0 where unknown.
    """

    split: str
    chosen_scores: Floats
    rejected_scores: Floats
    chosen_texts: Sequence[str]
    rejected_texts: Sequence[str]
    prompts: Sequence[str]  # text of the last message of the prompt
    confidence: Floats
    clusters: Sequence[str]
    units: Sequence[tuple[str, str]] | None = None
    groups: Sequence[str] = ()
    categories: Sequence[str] = ()
    annotators: Sequence[str] = ()
    sources: Sequence[tuple[str, str]] = ()
    times: Floats = field(default_factory=lambda: np.zeros(0))
    order: Floats = field(default_factory=lambda: np.zeros(0))
    members: Mapping[str, tuple[Floats, Floats]] = field(default_factory=dict)  # of an ensemble
    replicates: int = REPLICATES  # resamples behind each interval

    @property
    def margins(self) -> Floats:
        """(n,) chosen − rejected."""
        return np.asarray(self.chosen_scores, float) - np.asarray(self.rejected_scores, float)

    @property
    def lengths(self) -> tuple[Floats, Floats]:
        """Characters of chosen and rejected answers, (n,) each: the unit all lines use."""
        return (
            np.array([len(text) for text in self.chosen_texts], dtype=float),
            np.array([len(text) for text in self.rejected_texts], dtype=float),
        )

    @property
    def decided(self) -> NDArray[np.bool_]:
        """(n,) rows with a preferred side; ties of soft labels have none."""
        return np.asarray(self.confidence, float) != 0.5

    def __len__(self) -> int:
        return len(self.chosen_texts)

    def credit(self) -> Floats:
        """(n,) 1 right, ½ tie in the scores, 0 wrong."""
        return pair_credit(self.margins)

    def interval(
        self, values: Floats, *, where: NDArray[np.bool_] | None = None, seed: int = 0
    ) -> Interval:
        """Mean of (n,) values over all rows or those `where` true, over what rows share: both
        answers where answers recur (dyadic), else clusters (bootstrap)."""
        kept = np.ones(len(self), dtype=bool) if where is None else np.asarray(where, dtype=bool)
        rows = np.asarray(values, dtype=float)[kept]
        if self.units is not None and len(self.units):
            units = np.asarray(self.units, dtype=object).reshape(-1, 2)[kept]
            return dyadic_interval(rows, units[:, 0].astype(str), units[:, 1].astype(str))
        return mean_interval(
            rows,
            clusters=np.asarray(self.clusters)[kept],
            replicates=self.replicates,
            seed=seed,
        )


# What an interval allows to be said, and how many pairs would allow more.
#
# Two kinds of line. Where a yes must be shown, an interval that reaches the limit is no yes. Where
# a fault must be shown, one that reaches the limit is no fault, but then it must have been short
# enough to show a fault of that size; if it was not, nothing was measured.

Bools = NDArray[np.bool_]

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
    if not _alike(found, rows):
        return found
    apart = _apart(pairs, found)
    bounds = wilson(float(rows[0]) * apart, apart)
    return replace(found, low=bounds.low, high=bounds.high, no_interval=None)


def difference_of(pairs: Pairs, values: ArrayLike, *, where: Bools | None = None) -> Interval:
    """`Pairs.interval` of numbers from −1 to 1, such as one credit less another on the same rows.

    Where all rows are alike, as where two rules never differ, Wilson's interval of "none of so many
    is otherwise" stands in.
    """
    kept = np.ones(len(pairs), dtype=bool) if where is None else np.asarray(where, dtype=bool)
    rows = np.asarray(values, dtype=float)[kept]
    found = pairs.interval(np.asarray(values, dtype=float), where=kept)
    if _alike(found, rows):
        half = wilson(0, _apart(pairs, found)).high or 0.0
        found = replace(found, low=rows[0] - half, high=rows[0] + half, no_interval=None)
    return found if found.low is None else _bounded(found, -1.0, 1.0)


def gap_between(one: Interval, other: Interval) -> Interval:
    """one − other of two independent shares, with the interval made of theirs (MOVER).

    low = d − √((p₁ − l₁)² + (u₂ − p₂)²), high likewise. Source: Zou & Donner, Statistics in
    Medicine 27 (2008). Assumes that the two share no rows and nothing rows hang together by.
    """
    smaller = min(one, other, key=lambda side: side.n)
    n, units = smaller.n, smaller.n_clusters
    if one.value is None or other.value is None:
        return Interval(value=None, low=None, high=None, n=n, undefined=reason("side_empty"))
    value = one.value - other.value
    if one.low is None or one.high is None or other.low is None or other.high is None:
        why = one.no_interval or other.no_interval or reason("side_without_interval")
        return Interval(value=value, low=None, high=None, n=n, n_clusters=units, no_interval=why)
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


def undecided(found: Interval, limit: float) -> bool:
    """Beyond the limit, but not by more than chance: neither a fault nor the absence of one."""
    return abs(found.value or 0.0) > limit and not beyond(found, limit)


def _alike(found: Interval, rows: Floats) -> bool:
    """All rows are the same, which is why there is no interval, rather than too few units."""
    enough = found.n_clusters is not None and found.n_clusters >= LEAST_UNITS
    return found.low is None and enough and len(rows) > 0 and np.ptp(rows) == 0


def _apart(pairs: Pairs, found: Interval) -> int:
    """How many of the rows could be had without anything recurring: pairs that share no answer hold
    two answers each."""
    shared = pairs.units is not None and len(pairs.units) > 0
    units = found.n_clusters or 1
    return max(1, min(found.n, units // 2 if shared else units))


def _bounded(found: Interval, least: float, most: float) -> Interval:
    if found.low is None or found.high is None:
        return found
    return replace(found, low=max(least, found.low), high=min(most, found.high))

"""When a queue of votes will be empty, if people go on as they did lately."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from measures.bootstrap import LEAST_UNITS, REPLICATES
from measures.estimate import Interval, reason

WINDOW_DAYS = 7.0  # what lies longer back says nothing about the pace of now
LEAST_VOTES = 10
LONGEST_DAYS = 365.0


@dataclass(frozen=True, slots=True)
class Forecast:
    """per_day: votes a day; days: until none is left. Each None with `why_not`: no_votes,
    few_votes, nothing_wanted or too_far."""

    per_day: float | None
    days: float | None
    why_not: str = ""


def forecast(to_go: int, recent: int, days_since_first: float) -> Forecast:
    """The pace of the last days carried on.

    to_go: votes that are still wanted; recent: votes cast in the last `WINDOW_DAYS`;
    days_since_first: how long ago the first of them was cast. The pace is recent / max(1,
    days_since_first): votes of a first morning are taken for a whole day's, and days on which
    nobody voted since count. Assumes that the same people go on, and that no pair asks for further
    votes: it is an early date, not a promise. No date from fewer than `LEAST_VOTES`, none beyond a
    year, and none where nothing is left.
    """
    if recent < 0 or to_go < 0:
        raise ValueError(f"votes are counted from 0: {to_go}, {recent}")
    if recent == 0:
        return Forecast(None, None, "no_votes")
    if recent < LEAST_VOTES:
        return Forecast(None, None, "few_votes")
    per_day = recent / max(1.0, days_since_first)
    if not to_go:
        return Forecast(per_day, None, "nothing_wanted")
    days = to_go / per_day
    if days > LONGEST_DAYS:
        return Forecast(per_day, None, "too_far")
    return Forecast(per_day, days)


LATELY_DAYS = 14  # without a vote for so long, there is no present pace


@dataclass(frozen=True, slots=True)
class DailyPace:
    """per_day: votes a day, with its interval; `n` are days. why_not: no_votes, none_lately or
    few_votes; empty where there is a pace."""

    per_day: Interval
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Finish:
    """Days from now until the votes are in, and the range; latest None where it has no end or is
    beyond `LONGEST_DAYS`. why_not: as of the pace, or too_far."""

    days: float | None = None
    soonest: float | None = None
    latest: float | None = None
    why_not: str = ""


def daily_pace(votes: Sequence[int]) -> DailyPace:
    """votes: of each of the last days, oldest first, those without any too.

    The interval is a percentile bootstrap over days, which are taken as independent: where whole
    weeks differ (holidays, a campaign) the range is too narrow. None under `LEAST_UNITS` days.
    """
    if min(votes, default=0) < 0:
        raise ValueError("votes are counted from 0")
    counts = np.asarray(votes, dtype=np.float64)
    why = ""
    if not counts.sum():
        why = "no_votes"
    elif not counts[-LATELY_DAYS:].sum():
        why = "none_lately"
    elif counts.sum() < LEAST_VOTES:
        why = "few_votes"
    mean = float(counts.mean()) if len(counts) else None
    if len(counts) < LEAST_UNITS:
        few = reason("too_few", unit="days", n=len(counts), least=LEAST_UNITS)
        bare = Interval(value=mean, low=None, high=None, n=len(counts), no_interval=few)
        return DailyPace(bare, why)
    places = np.random.default_rng(0).integers(0, len(counts), size=(REPLICATES, len(counts)))
    means = counts[places].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5]).tolist()
    return DailyPace(Interval(value=mean, low=low, high=high, n=len(counts)), why)


def finish(votes: int, pace: DailyPace) -> Finish:
    """When so many votes are in, at this pace; the range is that of the pace."""
    if votes < 0:
        raise ValueError(f"votes are counted from 0: {votes}")
    if pace.why_not or not pace.per_day.value:
        return Finish(why_not=pace.why_not or "no_votes")
    days = votes / pace.per_day.value
    if days > LONGEST_DAYS:
        return Finish(why_not="too_far")
    low, high = pace.per_day.low, pace.per_day.high
    latest = votes / low if low else None
    return Finish(
        days=days,
        soonest=votes / high if high else None,
        latest=latest if latest is not None and latest <= LONGEST_DAYS else None,
    )

"""When a queue of votes will be empty, if people go on as they did lately."""

from dataclasses import dataclass

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

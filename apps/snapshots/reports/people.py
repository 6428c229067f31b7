"""Who judged, and when."""

import datetime as dt
from collections import Counter
from itertools import pairwise

import numpy as np

from apps.snapshots.reports.checks import LOOK, OK, STOP, UNKNOWN, Check, bars, check, percent
from apps.snapshots.reports.frame import Frame
from measures.splits import effective_sample_size

MOST_OF_ONE = 0.2  # of the votes by one person is much
FEW_PEOPLE = 5
DAY = 86_400
_STEPS = ((48, 1, "day"), (26 * 7, 7, "week"), (36 * 30.4, 30.4, "month"), (1e9, 365.25, "year"))


def annotators(frame: Frame) -> Check:
    title = "Annotators"
    per_person = Counter(vote.person for pair in frame.rows for vote in frame.votes_of(pair))
    if not per_person:
        return check(
            "annotators", title, UNKNOWN, "No vote stands behind the training rows.", advice=_WHO
        )
    counts = np.array(sorted(per_person.values(), reverse=True), dtype=np.float64)
    total, people = counts.sum(), len(counts)
    effective = effective_sample_size(counts).value or 0.0
    tenth = max(1, round(people / 10))
    top = float(counts[:tenth].sum() / total)
    largest = float(counts[0] / total)
    level = OK
    if effective < FEW_PEOPLE or largest > MOST_OF_ONE:
        level = STOP if effective < 2 else LOOK
    who = "one person" if tenth == 1 else f"{tenth:,} people"
    return check(
        "annotators",
        title,
        level,
        f"{total:,.0f} votes by {people:,} people decide the training rows, as many as "
        f"{effective:.1f} equally busy ones would be worth. The busiest tenth ({who}) cast "
        f"{percent(top)}, the busiest person {percent(largest)}. Votes of the median person: "
        f"{np.median(counts):,.0f}.",
        advice="A model learns the taste of whoever voted most. Give others the next pairs, weight "
        "votes by person, and hold annotators out to see how far the model carries.",
        basis="The effective number is (Σn)² / Σn² over votes per person (Kish 1965).",
        evidence=[bars("People by votes in the training rows", _bins(counts), unit="people")],
    )


_WHO = "Import votes with the ids of who cast them: without them nobody can be held out."


def _bins(counts: np.ndarray) -> list[tuple[str, float]]:
    edges = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10**9]
    found = []
    for low, high in pairwise(edges):
        n = float(((counts >= low) & (counts < high)).sum())
        name = (
            "1" if high == 2 else f"{low:,} or more" if high == 10**9 else f"{low:,}–{high - 1:,}"
        )
        found.append((name, n))
    filled = [place for place, (_, n) in enumerate(found) if n]
    return found[filled[0] : filled[-1] + 1]


def ages(frame: Frame) -> Check:
    """When the votes were cast. Ages are counted back from the newest vote, not from today."""
    title = "Age of the votes"
    at = np.array([vote.at for pair in frame.rows for vote in frame.votes_of(pair)])
    if not len(at):
        return check("ages", title, UNKNOWN, "No vote stands behind the training rows.")
    if np.ptp(at) < DAY:
        return check(
            "ages",
            title,
            UNKNOWN,
            f"All {len(at):,} votes were cast within a day, on {_day(float(at.min()))}.",
            advice="Imported votes without times carry that of their import. Import them with "
            "cast_at, or change over time cannot be seen.",
        )
    span = float(np.ptp(at)) / DAY
    median = float(np.median(at.max() - at)) / DAY
    return check(
        "ages",
        title,
        LOOK if span > 365 else OK,
        f"Cast from {_day(float(at.min()))} to {_day(float(at.max()))}; half of them are more than "
        f"{_days(median)} older than the newest.",
        advice="Over a year apart, people, guidelines and models change. See “Change over time”; "
        "leave old votes out by the time filter, or have some pairs voted on again.",
        evidence=[_histogram(at, span)],
    )


def _histogram(at: np.ndarray, span: float) -> dict[str, object]:
    step, unit = next((days, word) for most, days, word in _STEPS if span <= most)
    first = float(np.floor(at.min() / DAY)) * DAY
    place = ((at - first) / (step * DAY)).astype(int)
    counts = np.bincount(place)
    rows = [(_day(first + k * step * DAY), float(n)) for k, n in enumerate(counts)]
    return bars(f"Votes by {unit}", rows, unit="votes")


def _day(seconds: float) -> str:
    moment = dt.datetime.fromtimestamp(seconds, dt.UTC)
    return f"{moment.day} {moment:%b %Y}"


def _days(days: float) -> str:
    if days < 2:
        return f"{24 * days:.0f} hours"
    return f"{days:,.0f} days"

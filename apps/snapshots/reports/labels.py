"""Labels that may be swapped: known answers, empty answers, and what the words contradict."""

import datetime as dt
from collections import Counter
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from apps.common.numbers import share as percent
from apps.snapshots.reports.checks import (
    MOST_EXAMPLES,
    OK,
    STOP,
    UNKNOWN,
    WARN,
    Check,
    Evidence,
    bars,
    check,
    examples,
    excerpt,
    shares,
    with_interval,
    worst,
)
from apps.snapshots.reports.material import Frame
from measures.datasets.breadth import LISTED, SUREST, canaries, label_log_odds, sure_contradictions
from measures.datasets.drift import pair_share
from measures.estimate import Interval
from measures.splits import effective_sample_size
from measures.style import is_degenerate

Bools = NDArray[np.bool_]

KNOWN = "Known answers"
NOISE = 0.05  # of labels swapped: under it nobody need look
LEAST_PAIRS, LEAST_KNOWN, LEAST_BATCH = 200, 10, 50


def swapped(frame: Frame) -> Check:
    """STOP where known answers, empty answers or a whole batch say "the other way round"."""
    rows: list[tuple[str, Interval]] = []
    said: list[str] = []
    levels: list[str] = []
    for name, found, sentence in (_gold(frame), _empty(frame)):
        if found.n >= LEAST_KNOWN:
            rows.append((name, found))
            level = _known_level(found, most=1 - NOISE if name == KNOWN else 0.5)
            levels.append(level)
            if level != OK or name == KNOWN:
                said.append(sentence)
    shown: Evidence | None = None
    readable = frame.n >= LEAST_PAIRS
    agree: Interval | None = None
    if readable:
        agree = pair_share(
            (frame.margin > 0).astype(np.float64),
            frame.chosen,
            frame.rejected,
        )
        readable = agree.low is not None and agree.low > 0.55
    if readable and agree is not None:
        rows.append(("The text model agrees with the label", agree))
        levels += _by_words(frame, rows, said)
        shown = _suspects(frame)
    if not levels:
        return check(
            "swapped",
            "Swapped labels",
            UNKNOWN,
            "No pair has a known answer, and the words do not predict the labels.",
            advice=_GOLD,
        )
    if not any(name == KNOWN for name, _ in rows):
        said.append("Whether all of them are swapped only pairs with a known answer can tell.")
    return check(
        "swapped",
        "Swapped labels",
        worst(levels),
        " ".join(said),
        advice="Look at the list below, and at how the labels got in: a column read the other way "
        f"round swaps a whole batch. {_GOLD}",
        basis="The text model is a logistic model of words, tested on groups it has not seen. “At "
        f"most” is the share it contradicts among the {100 * SUREST:.0f} % of unanimous pairs it "
        "is surest about: where it is wrong itself the figure is too high, never too low.",
        evidence=[shares("Labels that are as they should be", rows), shown],
    )


_GOLD = f"Add at least {LEAST_KNOWN} gold pairs whose answer is beyond doubt."


def _known_level(found: Interval, *, most: float) -> str:
    """STOP where the wrong side wins more often; LOOK where fewer than `most` are right."""
    if found.high is not None and found.high < 0.5:
        return STOP
    return WARN if found.high is not None and found.high < most else OK


def _gold(frame: Frame) -> tuple[str, Interval, str]:
    known = [row for row, pair in enumerate(frame.rows) if pair.gold is not None]
    found = pair_share(
        [float(bool(frame.rows[row].gold)) for row in known],
        frame.chosen[known],
        frame.rejected[known],
    )
    return (
        KNOWN,
        found,
        f"Of the known answers {with_interval(found)} are labelled right.",
    )


def _empty(frame: Frame) -> tuple[str, Interval, str]:
    """Where one answer is no answer, the other should have won."""
    empty = np.array([is_degenerate(text) for text in frame.texts], dtype=bool)
    won, lost = empty[frame.chosen], empty[frame.rejected]
    apart = won != lost
    found = pair_share(lost[apart].astype(np.float64), frame.chosen[apart], frame.rejected[apart])
    return (
        "Real answers against hardly any",
        found,
        f"An answer of a few words, or of the same words over and over, loses to a real one in "
        f"{with_interval(found)}.",
    )


def _by_words(frame: Frame, rows: list[tuple[str, Interval]], said: list[str]) -> list[str]:
    """Levels from the text model; adds to what is shown and said."""
    certain = np.array([pair.share == 1 for pair in frame.rows], dtype=bool)
    won, lost = frame.chosen, frame.rejected
    levels = []
    wrong = sure_contradictions(frame.margin, certain, won, lost)
    if wrong.value is not None and wrong.n >= LEAST_KNOWN:
        rows.append(("… on unanimous pairs it is surest about", _complement(wrong)))
        level = WARN if wrong.low is not None and wrong.low > NOISE else OK
        levels.append(level)
        said.append(
            f"Judged by the words, at most {with_interval(wrong)} of the labels are swapped."
        )
    batches = Counter(pair.batch for pair in frame.rows)
    for batch, n in batches.most_common(12):
        if len(batches) < 2 or n < LEAST_BATCH:
            continue
        inside = np.array([pair.batch == batch for pair in frame.rows], dtype=bool)
        found = pair_share((frame.margin[inside] > 0).astype(np.float64), won[inside], lost[inside])
        rows.append((f"… in batch {batch or 'without a name'}", found))
        if found.high is not None and found.high < 0.5:
            levels.append(STOP)
            said.append(
                f"In batch {batch or 'without a name'} the words agree with only "
                f"{with_interval(found)} of the labels: it looks swapped as a whole."
            )
    return levels or [OK]


def _complement(found: Interval) -> Interval:
    flip = [None if bound is None else 1 - bound for bound in (found.value, found.high, found.low)]
    return Interval(value=flip[0], low=flip[1], high=flip[2], n=found.n)


def _suspects(frame: Frame) -> Evidence | None:
    shares_of = np.array([pair.share for pair in frame.rows])
    votes = np.array([len(pair.votes) for pair in frame.rows])
    doubt = label_log_odds(frame.margin, shares_of, votes)
    tested = canaries(frame.differences, frame.fold)
    order = [
        int(k) for k in np.argsort(doubt, kind="stable")[:MOST_EXAMPLES] if frame.margin[k] < 0
    ]
    return examples(
        f"The most doubtful labels, by words and votes. How good the list is: of {tested.n:,} "
        f"labels flipped on purpose, the most doubtful {100 * LISTED:.0f} % by words held "
        f"{percent(tested.found)}; a list drawn by lot holds {percent(LISTED)}.",
        (
            {
                "comparison": frame.rows[k].id,
                "left": excerpt(frame.rows[k].chosen),
                "right": excerpt(frame.rows[k].rejected),
                "note": f"{percent(frame.rows[k].share)} of "
                f"{votes[k]} votes for the winner; the words say "
                f"{percent(float(1 / (1 + np.exp(-frame.margin[k]))))}",
            }
            for k in order
        ),
    )


# Who judged, and when.

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
        level = STOP if effective < 2 else WARN
    who = "one person" if tenth == 1 else f"{tenth:,} people"
    return check(
        "annotators",
        title,
        level,
        f"{total:,.0f} votes by {people:,} people decide the training rows, as many as "
        f"{effective:.1f} equally busy ones would be worth. The busiest tenth ({who}) cast "
        f"{percent(top)}, the busiest person {percent(largest)}. Votes of the median person: "
        f"{np.median(counts):,.0f}.",
        advice="A model learns the bias of whoever voted most. Give others the next pairs, weight "
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
        WARN if span > 365 else OK,
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

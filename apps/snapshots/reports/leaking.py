"""Does anything but the answers' words give the label away?"""

import datetime as dt
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from apps.snapshots.reports.checks import (
    LOOK,
    OK,
    STOP,
    UNKNOWN,
    Check,
    check,
    shares,
    with_interval,
)
from apps.snapshots.reports.frame import Frame
from measures.datasets.leakage import blind_accuracy, leaks
from measures.textmodel import folds_of

Floats = NDArray[np.float64]

LEAST_PAIRS = 200
PLAIN = 0.6  # accuracy without a word read, from which on the label is as good as given away
_LEAST_ROWS, _MOST_KINDS = 20, 30  # of a label, to be a feature; of features of one kind
_FOLDS = 10


def leakage(frame: Frame) -> Check:
    title = "Label leakage"
    if frame.n < LEAST_PAIRS:
        return check(
            "leakage",
            title,
            UNKNOWN,
            f"Too few training pairs to tell: {frame.n:,} of {LEAST_PAIRS}.",
            advice="Collect more pairs.",
        )
    kinds = _features(frame)
    fold = folds_of(frame.groups, folds=_FOLDS)
    rows = [*kinds.items()]
    everything = np.hstack([values for _, values in rows])
    overall = blind_accuracy(everything, fold, frame.chosen, frame.rejected)
    parts = [
        (name, blind_accuracy(values, fold, frame.chosen, frame.rejected)) for name, values in rows
    ]
    giving = [name for name, found in parts if leaks(found)]
    low = overall.low if overall.low is not None else 0.0
    if not leaks(overall) and not giving:
        level, verdict = (
            OK,
            (
                f"Without a word of the answers, {with_interval(overall)} of the labels can be "
                "guessed, which is what a coin does."
            ),
        )
    else:
        level = STOP if low > PLAIN or any((f.low or 0) > PLAIN for _, f in parts) else LOOK
        best = max([("everything together", overall), *parts], key=lambda part: part[1].low or 0)
        verdict = (
            f"Without a word of the answers, {with_interval(best[1])} of the labels can be guessed "
            f"from {best[0][0].lower()}{best[0][1:]}. A coin gets 50 %."
        )
    return check(
        "leakage",
        title,
        level,
        verdict,
        advice="Find out how this came to tell the label: answers imported with the chosen one "
        "always first, one model for chosen and another for rejected, or people who click one "
        "side. Mix the order, pair answers of one origin, and leave out what cannot be mended.",
        basis="A logistic model that sees order, origin, side and circumstances only, tested on "
        "groups after those it learned from. Each line calls 1 clean dataset in 40 leaking by "
        "chance.",
        evidence=[
            shares("Labels guessed right without reading", [("all together", overall), *parts])
        ],
    )


def _features(frame: Frame) -> dict[str, Floats]:
    """(n, features) chosen − rejected of each kind; what both sides share, by the stored order."""
    order = np.array([1.0 if pair.won_first else -1.0 for pair in frame.rows])[:, None]
    found = {"Order in the store": order}
    won, lost = frame.origins
    origins = _kinds(won + lost)
    if len(origins) > 1:
        found["Origin of the answers"] = _is(origins, won) - _is(origins, lost)
    side = np.array([_side(frame, row) for row in range(frame.n)])[:, None]
    if side.any():
        found["Side they were shown on"] = side
    around = [
        [pair.topic for pair in frame.rows],
        [pair.batch for pair in frame.rows],
        [pair.source for pair in frame.rows],
        [pair.stratum for pair in frame.rows],
        [pair.language for pair in frame.rows],
        [_month(at) for at in frame.at],
    ]
    columns = [_is(_kinds(labels), labels) for labels in around]
    people = _kinds([str(v.person) for pair in frame.rows for v in frame.votes_of(pair)])
    columns.append(_voted(frame, people))
    together = np.hstack(columns)
    if together.shape[1]:
        found["Topic, batch, month and voters, with the order"] = together * order
    return found


def _kinds(labels: Sequence[str]) -> list[str]:
    common = Counter(label for label in labels if label).most_common(_MOST_KINDS)
    return [label for label, n in common if n >= _LEAST_ROWS]


def _is(kinds: Sequence[str], labels: Sequence[str]) -> Floats:
    return (np.array(labels, dtype=str)[:, None] == np.array(kinds, dtype=str)[None, :]).astype(
        np.float64
    )


def _voted(frame: Frame, people: Sequence[str]) -> Floats:
    column = {int(person): k for k, person in enumerate(people)}
    voted = np.zeros((frame.n, len(people)))
    for row, pair in enumerate(frame.rows):
        for vote in frame.votes_of(pair):
            if vote.person in column:
                voted[row, column[vote.person]] = 1.0
    return voted


def _side(frame: Frame, row: int) -> float:
    """How much more often the winner stood left, from −1 to 1; 0 where unknown."""
    known = [v.winner_left for v in frame.votes_of(frame.rows[row]) if v.winner_left is not None]
    return (2 * sum(known) - len(known)) / len(known) if known else 0.0


def _month(at: float) -> str:
    return "" if np.isnan(at) else f"{dt.datetime.fromtimestamp(at, dt.UTC):%Y-%m}"

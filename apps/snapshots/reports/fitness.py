"""Are the winners right, or only pleasant? What voters gave as reasons and by which criteria."""

import re
from collections import Counter
from collections.abc import Iterable

from apps.snapshots.reports.checks import (
    LOOK,
    OK,
    STOP,
    UNKNOWN,
    Check,
    bars,
    check,
    examples,
    excerpt,
    percent,
    with_interval,
)
from apps.snapshots.reports.frame import Frame
from apps.snapshots.reports.material import ReportPair, ReportVote
from measures.datasets.shares import pair_share

# Reasons and criteria that speak of being right, by what their words begin with.
_RIGHT = re.compile(r"\b(?:correct|accura|true|truth|fact|right|valid)", re.IGNORECASE)
SOME, MANY = 0.1, 0.3  # of winners with reasons, none of them correctness
LEAST = 30  # pairs, to say anything


def speaks_of_correctness(words: str) -> bool:
    return bool(_RIGHT.search(words))


def reasons(frame: Frame) -> Check:
    """Winners whose voters name reasons, and correctness is not among them."""
    title = "Reasons of the winners"
    offered = {*frame.material.reasons, *_given(frame)}
    right = {chip for chip in offered if speaks_of_correctness(chip)}
    told: list[tuple[ReportPair, int, bool, list[ReportVote]]] = []
    chips: Counter[str] = Counter()
    for row, pair in enumerate(frame.rows):
        votes = [v for v in frame.votes_of(pair) if v.for_winner and v.reasons]
        if votes:
            named = {chip for vote in votes for chip in vote.reasons}
            chips.update(named)
            told.append((pair, row, bool(named & right), votes))
    if len(told) < LEAST or not right:
        why = (
            f"Voters gave reasons for {len(told):,} winners in training; {LEAST} are needed."
            if right
            else "None of the reasons that voters are offered speaks of correctness."
        )
        return check("reasons", title, UNKNOWN, why, advice=_ASK)
    rows = [row for _, row, _, _ in told]
    missing = pair_share(
        [0.0 if correct else 1.0 for _, _, correct, _ in told],
        frame.chosen[rows],
        frame.rejected[rows],
    )
    value, low = missing.value or 0.0, missing.low or 0.0
    level = STOP if low > MANY else LOOK if value > SOME and low > SOME / 2 else OK
    return check(
        "reasons",
        title,
        level,
        f"Of the winners with reasons, {with_interval(missing)} won without anyone naming "
        f"correctness. That is {percent(len(told) / frame.n)} of the training pairs looked at.",
        advice="These may be warm but wrong: have a reviewer look at them, decide by correctness "
        "first in the guidelines, or leave them out of training.",
        basis=f"Reasons that count as correctness: {', '.join(sorted(right))}.",
        evidence=[
            bars(
                "Reasons for the winner",
                [(chip, float(n)) for chip, n in chips.most_common(12)],
                unit="pairs",
                marked=[k for k, (chip, _) in enumerate(chips.most_common(12)) if chip in right],
            ),
            examples(
                "Won without correctness",
                (
                    _example(
                        pair, "Reasons: " + ", ".join(sorted({c for v in votes for c in v.reasons}))
                    )
                    for pair, _, correct, votes in told
                    if not correct
                ),
            ),
        ],
    )


_ASK = (
    "Switch on reasons and a criterion such as “Correct” in the labeling settings. Without them "
    "nobody can see whether pleasant answers win over right ones."
)


def criteria(frame: Frame) -> Check:
    """Pairs whose winner is, by the votes' own criterion of correctness, the worse answer."""
    title = "Criteria against the choice"
    right = {
        key
        for key, label in frame.material.criteria.items()
        if speaks_of_correctness(f"{key} {label}")
    }
    judged: list[tuple[int, bool]] = []
    for row, pair in enumerate(frame.rows):
        ballots = Counter(
            vote.criteria[key]
            for vote in frame.votes_of(pair)
            for key in right & set(vote.criteria)
        )
        if ballots["winner"] or ballots["loser"]:
            judged.append((row, ballots["loser"] > ballots["winner"]))
    if len(judged) < LEAST:
        why = (
            f"Only {len(judged):,} training pairs were judged by a criterion of correctness; "
            f"{LEAST} are needed."
            if right
            else "Voters are not asked which answer is more correct."
        )
        return check("criteria", title, UNKNOWN, why, advice=_ASK)
    names = sorted(frame.material.criteria[key] for key in right)
    rows = [row for row, _ in judged]
    wrong = pair_share(
        [float(against) for _, against in judged], frame.chosen[rows], frame.rejected[rows]
    )
    value, low = wrong.value or 0.0, wrong.low or 0.0
    level = STOP if low > MANY / 2 else LOOK if value > SOME / 2 and low > 0.01 else OK
    return check(
        "criteria",
        title,
        level,
        f"In {with_interval(wrong)} of the pairs judged by correctness, the winner is the less "
        "correct answer by the same votes.",
        advice="Here something else won over being right. Read these pairs: leave them out, or "
        "send them to a reviewer with a guideline that puts correctness first.",
        basis=f"Criteria that count as correctness: {', '.join(names)}.",
        evidence=[
            examples(
                "The winner is less correct",
                (
                    _example(frame.rows[row], "by the votes’ own criterion")
                    for row, bad in judged
                    if bad
                ),
            )
        ],
    )


def _given(frame: Frame) -> Iterable[str]:
    return {chip for pair in frame.rows for vote in frame.votes_of(pair) for chip in vote.reasons}


def _example(pair: ReportPair, note: str) -> dict[str, object]:
    return {
        "comparison": pair.id,
        "left": excerpt(pair.chosen),
        "right": excerpt(pair.rejected),
        "note": note,
    }

"""Is there enough, would more help, and did preferences change on the way?"""

import re
from collections import Counter
from collections.abc import Iterable

import numpy as np

from apps.common.numbers import share as percent
from apps.snapshots.advice.facts import FEW_PAIRS, VERY_FEW_PAIRS
from apps.snapshots.assembling.tally import few_pairs
from apps.snapshots.reports.checks import (
    OK,
    STOP,
    UNKNOWN,
    WARN,
    Check,
    bars,
    check,
    curve,
    examples,
    excerpt,
    points,
    shares,
    with_interval,
)
from apps.snapshots.reports.labels import DAY
from apps.snapshots.reports.material import Frame, ReportPair, ReportVote
from measures.datasets.drift import learning_curve, pair_share, recency_weighting, time_split
from workers.contract.reasons import reason_words

LEAST_PAIRS = 200
NOTABLE_DROP = 0.02  # of accuracy; less is seen only in large data and matters little


def size(frame: Frame) -> Check:
    title, n = "Size", frame.n_frozen
    if n >= FEW_PAIRS:
        return check("size", title, OK, f"{n:,} training pairs.")
    return check(
        "size",
        title,
        STOP if n < VERY_FEW_PAIRS else WARN,
        few_pairs(n),
        advice="See the learning curve: where it still rises, more pairs are worth their price. A "
        "model initialised from a pretrained one needs fewer than one from scratch.",
    )


def growth(frame: Frame) -> Check:
    title = "Learning curve"
    if frame.n < LEAST_PAIRS:
        return check(
            "growth", title, UNKNOWN, f"Too few training pairs for one: {frame.n:,}.", advice=_MORE
        )
    found = learning_curve(frame.differences, frame.groups, frame.chosen, frame.rejected)
    gain = found.doubling
    rises = gain.low is not None and gain.low > 0
    last = found.accuracy[-1]
    verdict = f"A simple text model gets {with_interval(last)} of unseen pairs right. "
    verdict += (
        f"The last doubling of the data added {points(gain)}: more pairs would help."
        if rises
        else f"The last doubling of the data added {points(gain)}, which may be nothing: more of "
        "the same would teach this model little."
    )
    return check(
        "growth",
        title,
        WARN if rises else OK,
        verdict,
        advice=_MORE,
        basis="A logistic model of words, on groups it has not seen, trained on an eighth, a "
        "quarter, a half and all of the rest. A larger model starts higher and may gain longer.",
        evidence=[
            curve(
                "Accuracy on unseen groups",
                "training pairs",
                zip(found.pairs, found.accuracy, strict=True),
            )
        ],
    )


_MORE = "Collect more pairs, of new prompts rather than of known ones."


def drift(frame: Frame) -> Check:
    """Trained on earlier votes, tested on later ones, and the other way round."""
    title = "Change over time"
    at = frame.at
    known = np.flatnonzero(~np.isnan(at))
    if len(known) and np.ptp(at[known]) < DAY:
        return check(
            "drift",
            title,
            UNKNOWN,
            "Cannot be told: all votes were cast within a day, as imported votes without times "
            "seem to be.",
            advice="Import votes with the time they were cast at.",
        )
    found = time_split(
        frame.differences[known],
        at[known],
        [frame.groups[row] for row in known],
        frame.chosen[known],
        frame.rejected[known],
    )
    if found.undefined or found.by_time is None or found.at_random is None or found.drop is None:
        return check(
            "drift",
            title,
            UNKNOWN,
            f"Cannot be told: {reason_words(found.undefined)}.",
            advice="Import votes with the time they were cast at.",
        )
    recent = recency_weighting(
        frame.differences[known], at[known], frame.chosen[known], frame.rejected[known]
    )
    drop = found.drop.value or 0.0
    level = (STOP if drop > 0.1 else WARN) if found.fell and drop >= NOTABLE_DROP else OK
    verdict = (
        f"Across time a text model gets {with_interval(found.by_time)}; across random halves of "
        f"the same size {with_interval(found.at_random)}. "
    )
    verdict += (
        f"The drop of {points(found.drop).lstrip('+')} is more than chance: what people preferred "
        "has changed."
        if level != OK
        else "Nothing speaks for a change in what people prefer."
    )
    if level != OK and recent and recent.gain.low is not None and recent.gain.low > 0:
        verdict += f" Counting recent votes more gains {points(recent.gain)} on the newest pairs."
    return check(
        "drift",
        title,
        level,
        verdict,
        advice="Find out what changed: the guideline, the people, or the answers. Leave out the "
        "older votes, weight recent ones more, or have old pairs voted on again.",
        basis="Trained on the half with the earlier votes and tested on the later one, and the "
        "other way round; compared with random halves that share groups to the same degree. Steady "
        "data are called changed once in forty times. Where recent pairs count more, a pair’s "
        "weight halves with every quarter of the older pairs’ time span.",
        evidence=[
            shares(
                "Accuracy on the half not trained on",
                [("halves by time", found.by_time), ("random halves", found.at_random)],
            ),
            shares(
                "Accuracy on the newest fifth, trained on the older pairs",
                [
                    ("all older pairs alike", recent.alike),
                    ("recent ones weighted more", recent.weighted),
                ],
            )
            if recent
            else None,
        ],
    )


# Are the winners right, or only pleasant? What voters gave as reasons and by which criteria.

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
    level = STOP if low > MANY else WARN if value > SOME and low > SOME / 2 else OK
    return check(
        "reasons",
        title,
        level,
        f"Of the winners with reasons, {with_interval(missing)} won without anyone naming "
        f"correctness. That is {percent(len(told) / frame.n)} of the training pairs analysed.",
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
        given = Counter(
            vote.criteria[key]
            for vote in frame.votes_of(pair)
            for key in right & set(vote.criteria)
        )
        if given["winner"] or given["loser"]:
            judged.append((row, given["loser"] > given["winner"]))
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
    level = STOP if low > MANY / 2 else WARN if value > SOME / 2 and low > 0.01 else OK
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

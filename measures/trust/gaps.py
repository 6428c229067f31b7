"""Is it as right for what it has not met: unseen pairs, unseen people?

All intervals are 95 %; a gap is between parts that share no rows (`weighing.gap_between`).
"""

import numpy as np
from numpy.typing import NDArray

from measures.blocks import Intervals, Table, share
from measures.estimate import Interval
from measures.intervals import mean_interval
from measures.trust.findings import Finding, Verdict, unmeasured
from measures.trust.significance import (
    LEAST_PAIRS,
    Pairs,
    gap_between,
    half_width,
    more_needed,
    points,
    share_of,
    too_thin,
)

MOST_OVERFIT = 0.15  # SPEC: train − validation
PEOPLE_GAP = 0.10  # half-width from which on a gap between people could have been missed


def overfit(train: Pairs | None, held_out: Pairs | None) -> Finding:
    """Red: training accuracy is more than 15 points above held-out accuracy, and above it at all
    by more than chance.

    Assumes that the two share no clusters. The gap itself decides rather than its lower bound: a
    gap of 25 points from few pairs is no reason to believe in 14.
    """
    line = "overfit"
    if train is None or held_out is None or not len(train) or not len(held_out):
        missing = "training" if train is None or not len(train) else "unseen"
        return unmeasured(line, f"No {missing} pairs to compare with.")
    known = share_of(train, train.credit(), where=train.decided)
    unseen = share_of(held_out, held_out.credit(), where=held_out.decided)
    return _gap(
        line,
        known,
        unseen,
        ("Training pairs", "Unseen pairs"),
        limit=MOST_OVERFIT,
        bad="it has learned its training pairs by heart.",
        good="under 15 points.",
    )


def unseen_people(seen: Pairs | None, unseen: Pairs | None) -> Finding:
    """Red: more right for annotators that it learned from than for others, by more than chance.

    Both parts are of pairs unseen in training. The interval of each side is the wider of two: over
    what texts share, and over annotators, who are what the question is about. With fewer than ten
    annotators there is no interval over them, and the gap is one of those few: the sentence says
    how many they are.

    What several people agree on is easier to predict than one person's vote. A row of several
    therefore counts as right against one of them: c·p + (1 − c)(1 − p) for a credit of c and a
    chance p, the row's confidence, that another of them votes like that.
    """
    line = "unseen_people"
    if unseen is None or not len(unseen):
        return unmeasured(
            line,
            "No pairs of held-out annotators. Freeze a snapshot that holds some people out.",
        )
    if seen is None or not len(seen):
        return unmeasured(line, "No unseen pairs of the annotators that it learned from.")
    return _gap(
        line,
        _over_people(seen),
        _over_people(unseen),
        (f"People it learned from{_how_many(seen)}", f"People it never met{_how_many(unseen)}"),
        limit=0.0,
        most_half=PEOPLE_GAP,
        bad="it knows those people better than what people want.",
        good="no gap beyond chance.",
    )


def _how_many(pairs: Pairs) -> str:
    known = {str(name) for name in pairs.annotators if name}
    return f" ({len(known):,})" if known else ""


def _over_people(pairs: Pairs) -> Interval:
    credit = _against_one(pairs)
    found = share_of(pairs, credit, where=pairs.decided)
    if len(pairs.annotators) != len(pairs) or not all(pairs.annotators):
        return found
    names = np.asarray([str(name) for name in pairs.annotators])[pairs.decided]
    by_person = mean_interval(credit[pairs.decided], clusters=names, replicates=pairs.replicates)
    wider = half_width(by_person) > half_width(found) and by_person.low is not None
    return by_person if wider else found


def _against_one(pairs: Pairs) -> NDArray[np.float64]:
    credit, chance = pairs.credit(), np.asarray(pairs.confidence, dtype=float)
    several = np.array([not name for name in pairs.annotators] or [True] * len(pairs), dtype=bool)
    return np.where(several, credit * chance + (1 - credit) * (1 - chance), credit)


def _gap(
    line: str,
    one: Interval,
    other: Interval,
    names: tuple[str, str],
    *,
    limit: float,
    bad: str,
    good: str,
    most_half: float | None = None,
) -> Finding:
    gap = gap_between(one, other)
    if gap.value is None or gap.low is None or one.value is None or other.value is None:
        return too_thin(line, gap, LEAST_PAIRS)
    evidence = (
        Intervals(title="Right", rows=((names[0], one), (names[1], other))),
        Table(
            title="In numbers",
            columns=("", "Pairs", "Right", "From", "To"),
            formats=("text", "count", "share", "share", "share"),
            rows=tuple(
                (name, part.n, part.value, part.low, part.high)
                for name, part in zip(names, (one, other), strict=True)
            ),
        ),
    )
    said = (
        f"{names[0]}: {share(one)} right, n = {one.n:,}; {names[1][0].lower()}{names[1][1:]}: "
        f"{share(other)}, n = {other.n:,}. The gap is {points(gap)}"
    )
    facts = {"gap": gap.value, "gap_low": gap.low, "gap_high": gap.high}
    if gap.value > limit and gap.low > 0:
        verdict, says = Verdict.RED, f"{said}: {bad}"
    elif (other.low or 0.0) <= 0.5:
        return unmeasured(
            line,
            f"{said}, but it is not shown to be better than a coin on the latter, so there is "
            "nothing to compare.",
            evidence=evidence,
        )
    elif half_width(gap) > (most_half or limit):
        return unmeasured(
            line, f"{said}. {more_needed(gap, most_half or limit)}", evidence=evidence
        )
    elif min(one.n, other.n) < LEAST_PAIRS:
        return unmeasured(
            line, f"{said}, but under {LEAST_PAIRS} pairs are too few.", evidence=evidence
        )
    else:
        verdict, says = Verdict.GREEN, f"{said}: {good}"
    return Finding(
        line=line, verdict=verdict, says=says, figure=gap, evidence=evidence, facts=facts
    )

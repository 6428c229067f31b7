"""Is there enough, would more help, and did preferences change on the way?"""

import numpy as np

from apps.snapshots.assembling.tally import FEW_PAIRS, VERY_FEW_PAIRS
from apps.snapshots.reports.checks import (
    LOOK,
    OK,
    STOP,
    UNKNOWN,
    Check,
    check,
    curve,
    points,
    shares,
    with_interval,
)
from apps.snapshots.reports.frame import Frame
from apps.snapshots.reports.people import DAY
from measures.datasets.drift import recency_weighting, time_split
from measures.datasets.growth import learning_curve

LEAST_PAIRS = 200
NOTABLE_DROP = 0.02  # of accuracy; less is seen only in large data and matters little


def size(frame: Frame) -> Check:
    title, n = "Size", frame.n_frozen
    if n >= FEW_PAIRS:
        return check("size", title, OK, f"{n:,} training pairs.")
    said = (
        f"Only {n:,} training pairs: under {VERY_FEW_PAIRS:,} a reward model overfits easily."
        if n < VERY_FEW_PAIRS
        else f"{n:,} training pairs: at least {FEW_PAIRS:,} are advised."
    )
    return check(
        "size",
        title,
        STOP if n < VERY_FEW_PAIRS else LOOK,
        said,
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
        LOOK if rises else OK,
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
            f"Cannot be told: {found.undefined}.",
            advice="Import votes with the time they were cast at.",
        )
    recent = recency_weighting(
        frame.differences[known], at[known], frame.chosen[known], frame.rejected[known]
    )
    drop = found.drop.value or 0.0
    level = (STOP if drop > 0.1 else LOOK) if found.fell and drop >= NOTABLE_DROP else OK
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

"""The evidence of a flag in a sentence: what was counted, what honest people show, which test."""

from collections.abc import Callable

import numpy as np

from apps.common.numbers import fixed, points
from apps.common.numbers import share as percent
from measures.annotators.figures import Crowd
from measures.annotators.flags import (
    LEAST_GOLD,
    LEAST_SAME,
    LONGER_SLACK,
    MOST_FAST,
    NEITHER_SLACK,
    SIDE_SLACK,
    Kind,
    least_gold,
)
from measures.annotators.work import Means
from measures.intervals import wilson

LABELS = {
    Kind.REVERSE: "disagrees systematically",
    Kind.LEFT: "left bias",
    Kind.RIGHT: "right bias",
    Kind.GOLD: "low gold accuracy",
    Kind.SPEED: "very fast",
    Kind.AGREEMENT: "low agreement",
    Kind.SELF: "inconsistent with themselves",
    Kind.LONGER: "length bias",
    Kind.TIES: "too many ties",
    Kind.DRIFT: "agreement falls",
}


def sentence(kind: Kind, crowd: Crowd, person: int, p: float, n_tests: int) -> str:
    """`p` is corrected for the person's n_tests tests."""
    tested = f"p {_small(p)}"
    if n_tests > 1:
        tested += f", corrected for {n_tests} tests"
    return f"{_WORDS[kind](crowd, person)} ({tested})."


def _small(p: float) -> str:
    return "< 0.0001" if p < 0.0001 else f"= {p:.4f}"


def _counted(hits: int, n: int, noun: str) -> str:
    found = wilson(hits, n)
    shown = [percent(x) for x in (found.value, found.low, found.high) if x is not None]
    return f"{hits:,} of {n:,} {noun} ({shown[0]}; {shown[1]} to {shown[2]})"


def _side(side: str) -> Callable[[Crowd, int], str]:
    def words(crowd: Crowd, k: int) -> str:
        n = int(crowd.left.n[k])
        hits = int(crowd.left.hits[k]) if side == "left" else n - int(crowd.left.hits[k])
        limit = percent(0.5 + SIDE_SLACK)
        return (
            f"Chose the answer on the {side} in {_counted(hits, n, 'votes')}. Sides are drawn at "
            f"random, so about half is expected of anybody who reads; up to {limit} is let pass"
        )

    return words


def _gold(crowd: Crowd, k: int) -> str:
    counted = _counted(int(crowd.gold.hits[k]), int(crowd.gold.n[k]), "gold pairs")
    if np.isnan(crowd.gold_others[k]):
        return f"Right on {counted}; at least {percent(LEAST_GOLD)} is expected"
    return (
        f"Right on {counted}; at least {percent(least_gold(crowd)[k])} is expected, and others "
        f"reach {percent(crowd.gold_others[k])} on the same pairs"
    )


def _speed(crowd: Crowd, k: int) -> str:
    counted = _counted(int(crowd.fast.hits[k]), int(crowd.fast.n[k]), "answers")
    return (
        f"Answered in under {crowd.fast_ms / 1000:g} s in {counted}; up to {percent(MOST_FAST)} "
        f"is let pass. Median {crowd.median_ms[k] / 1000:.1f} s"
    )


def _agreement(crowd: Crowd, k: int) -> str:
    found = crowd.agreement
    where = "on the same pairs" if found.same_pairs[k] else "on other pairs"
    return (
        f"Agrees with {percent(found.others.mean[k])} of the other votes on {found.n_skill[k]:,} "
        f"pairs, where chance gives {percent(found.chance[k])} and the others agree among "
        f"themselves in {percent(found.among[k])} {where}. That is a skill of "
        f"{fixed(found.skill[k], 2)} ({fixed(found.skill_low[k], 2)} to "
        f"{fixed(found.skill_high[k], 2)}): 1 is like the others, 0 a coin, below 0 their reverse"
    )


def _self(crowd: Crowd, k: int) -> str:
    n = int(crowd.same.n[k])
    kept = int(crowd.kept_side.hits[k])
    counted = _counted(int(crowd.same.hits[k]), n, "hidden repeats with the sides swapped")
    return (
        f"Gave the same answer again in {counted}; a coin gives {percent(LEAST_SAME)}. In {kept:,} "
        f"of {n:,} the side stayed and the answer changed"
    )


def _longer(crowd: Crowd, k: int) -> str:
    found = crowd.longer
    expected = (
        f"an honest person who agrees with them as far would choose it in "
        f"{percent(found.expected[k])}"
        if found.judged[k]
        else f"the best judge among them would choose it in at most {percent(found.expected[k])}"
    )
    return (
        f"Chose the longer answer in {percent(found.own.mean[k])} of {found.own.n[k]:,} pairs, "
        f"others on the same pairs in {percent(found.others.mean[k])}; {expected}. Difference "
        f"{_gap(found.difference, k)}; up to {100 * LONGER_SLACK:.0f} points more is let pass"
    )


def _ties(crowd: Crowd, k: int) -> str:
    found = crowd.neither
    return (
        f"Chose neither answer in {percent(found.own.mean[k])} of {found.own.n[k]:,} pairs, others "
        f"on the same pairs in {percent(found.others.mean[k])}: {_gap(found.difference, k)}; "
        f"up to {100 * NEITHER_SLACK:.0f} points more is let pass"
    )


def _drift(crowd: Crowd, k: int) -> str:
    found = crowd.drift
    how = "measured against how far the others agree" if crowd.agreement.same_pairs[k] else "in all"
    return (
        f"Agreed with {percent(found.first.mean[k])} of the other votes in the first third of "
        f"{found.n[k]:,} votes and with {percent(found.last.mean[k])} in the last; {how}, a change "
        f"of {_points(found.change[k])} ({_points(found.low[k])} to {_points(found.high[k])})"
    )


def _gap(difference: Means, k: int) -> str:
    low, high = np.clip((difference.low[k], difference.high[k]), -1, 1)  # of two shares
    return f"{_points(difference.mean[k])} ({_points(low)} to {_points(high)})"


def _points(gap: float) -> str:
    return f"{points(gap)} points"


_WORDS: dict[Kind, Callable[[Crowd, int], str]] = {
    Kind.REVERSE: _agreement,
    Kind.LEFT: _side("left"),
    Kind.RIGHT: _side("right"),
    Kind.GOLD: _gold,
    Kind.SPEED: _speed,
    Kind.AGREEMENT: _agreement,
    Kind.SELF: _self,
    Kind.LONGER: _longer,
    Kind.TIES: _ties,
    Kind.DRIFT: _drift,
}

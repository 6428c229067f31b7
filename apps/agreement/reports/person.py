"""One person's figures and flags as plain data: what is stored, shown and written to CSV."""

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from apps.agreement.reports.flags import LABELS, sentence
from measures.annotators.agreeing import THIRD
from measures.annotators.figures import Compared, Counts, Crowd, Longer
from measures.annotators.flags import (
    LEAST_COMPARED,
    LEAST_CONTROLS,
    LEAST_VOTES,
    TESTS,
    Kind,
    Tested,
    tests_of,
)
from measures.annotators.work import LEAST_PAIRS, Means
from measures.intervals import wilson
from measures.position import binomial_test


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number with its 95 % interval, or why it is missing. `compared`: the others' figure on the
    same pairs; `difference` with bounds: own less theirs, pair by pair, or less what is `expected`
    where there is that. `few`: a value that stands, but on too little to be tested or bounded."""

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int
    compared: float | None = None
    expected: float | None = None
    difference: float | None = None
    difference_low: float | None = None
    difference_high: float | None = None
    undefined: str | None = None
    few: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _NAMES}


_NAMES = tuple(field.name for field in fields(Figure))


@dataclass(frozen=True, slots=True)
class Flag:
    """A habit that stands out; p is corrected for the person's tests."""

    kind: Kind
    label: str
    sentence: str
    p: float


@dataclass(frozen=True, slots=True)
class Person:
    """figures: JSON-ready, by name. n_tests: how many tests had enough votes; none means that it is
    too early to say anything."""

    n_votes: int
    figures: dict[str, Any]
    flags: tuple[Flag, ...]
    n_tests: int


def people_of(crowd: Crowd) -> list[Person]:
    """Everybody, in the order of the arrays."""
    tested = tests_of(crowd)
    return [
        Person(
            n_votes=int(crowd.n_votes[k]),
            figures=_figures(crowd, k),
            flags=_flags(crowd, tested, k),
            n_tests=int(tested.n_tests[k]),
        )
        for k in range(len(crowd.n_votes))
    ]


def _flags(crowd: Crowd, tested: Tested, k: int) -> tuple[Flag, ...]:
    raised = []
    for place in np.flatnonzero(tested.flagged[k]).tolist():
        kind = _kind(TESTS[place], crowd, k)
        p = float(tested.corrected[k, place])
        words = sentence(kind, crowd, k, p, int(tested.n_tests[k]))
        raised.append(Flag(kind, LABELS[kind], words, p))
    order = list(Kind)
    return tuple(sorted(raised, key=lambda flag: order.index(flag.kind)))


def _kind(test: str, crowd: Crowd, k: int) -> Kind:
    if test == "side":
        return Kind.LEFT if 2 * crowd.left.hits[k] > crowd.left.n[k] else Kind.RIGHT
    if test == "agreement" and crowd.agreement.skill_high[k] < 0:
        return Kind.REVERSE
    return Kind(test)


def _figures(crowd: Crowd, k: int) -> dict[str, Any]:
    left = _share(crowd.left, k, "no vote with a known side chose an answer", LEAST_VOTES)
    hits, n = int(crowd.left.hits[k]), int(crowd.left.n[k])
    found = {
        "fast": _share(crowd.fast, k, "no answer was timed", LEAST_VOTES),
        "left": left,
        "ties": _compared(crowd.neither, k, "nobody else voted on their pairs"),
        "longer": _compared(
            crowd.longer, k, "no other vote on their pairs chose between answers of unequal length"
        ),
        "gold": replace(
            _share(crowd.gold, k, "they answered no gold pair", LEAST_CONTROLS),
            compared=_number(crowd.gold_others[k]),
        ),
        "self": _share(crowd.same, k, _no_repeats(crowd, k), LEAST_CONTROLS),
        "agreement": _agreement(crowd, k),
        "skill": _skill(crowd, k),
        "drift": _drift(crowd, k),
    }
    return {name: figure.to_json() for name, figure in found.items()} | {
        "median_ms": _number(crowd.median_ms[k]),
        "n_timed": int(crowd.fast.n[k]),
        "fast_ms": crowd.fast_ms,
        "left_p": binomial_test(hits, n),
        "self_accuracy": _own_accuracy(crowd, k),
        "kept_side": [int(crowd.kept_side.hits[k]), int(crowd.kept_side.n[k])],
        "timeline": _timeline(crowd, k),
        "speeds": crowd.speeds[k].tolist(),
    }


def _share(counts: Counts, k: int, nothing: str, least: int) -> Figure:
    found = wilson(int(counts.hits[k]), int(counts.n[k]))
    if found.value is None:
        return Figure(value=None, n=0, undefined=nothing)
    few = f"too few to judge: {found.n} of {least}" if found.n < least else None
    return Figure(value=found.value, low=found.low, high=found.high, n=found.n, few=few)


def _compared(compared: Compared | Longer, k: int, nothing: str) -> Figure:
    n = int(compared.own.n[k])
    if not n:
        return Figure(value=None, n=0, undefined=nothing)
    few = f"too few to judge: {n} of {LEAST_COMPARED} pairs" if n < LEAST_COMPARED else None
    low, high = _bounds(compared.own, k)
    return Figure(
        value=_number(compared.own.mean[k]),
        low=low,
        high=high,
        n=n,
        compared=_number(compared.others.mean[k]),
        expected=_number(compared.expected[k]) if isinstance(compared, Longer) else None,
        difference=_number(compared.difference.mean[k]),
        difference_low=_number(np.maximum(compared.difference.low[k], -1)),
        difference_high=_number(np.minimum(compared.difference.high[k], 1)),
        few=few,
    )


def _agreement(crowd: Crowd, k: int) -> Figure:
    found = crowd.agreement
    n = int(found.others.n[k])
    if not n:
        return Figure(
            value=None, n=0, undefined="nobody else voted on their pairs of the random stratum"
        )
    few = f"too few for an interval: {n} of {LEAST_PAIRS} pairs" if n < LEAST_PAIRS else None
    low, high = _bounds(found.others, k)
    return Figure(
        value=_number(found.others.mean[k]),
        low=low,
        high=high,
        n=n,
        compared=_number(found.among[k]),
        few=few,
    )


def _skill(crowd: Crowd, k: int) -> Figure:
    found = crowd.agreement
    n = int(found.n_skill[k])
    if _number(found.skill[k]) is not None:
        return Figure(
            value=_number(found.skill[k]),
            low=_number(found.skill_low[k]),
            high=_number(found.skill_high[k]),
            n=n,
        )
    if found.others.n[k] < LEAST_COMPARED:
        reason = f"too few pairs shared with others: {found.others.n[k]} of {LEAST_COMPARED}"
    elif _number(found.among[k]) is None:
        reason = "there are too few pairs of other people to compare with"
    else:
        reason = "the others do not agree clearly more than chance would make them"
    return Figure(value=None, n=n, undefined=reason)


def _drift(crowd: Crowd, k: int) -> Figure:
    found = crowd.drift
    n = int(found.n[k])
    if not crowd.ordered[k]:
        return Figure(value=None, n=n, undefined="their votes carry no times of their own")
    if _number(found.change[k]) is None:
        reason = f"too few votes shared with others: {n} of {3 * THIRD}"
        return Figure(value=None, n=n, undefined=reason)
    return Figure(
        value=_number(found.change[k]),
        low=_number(found.low[k]),
        high=_number(found.high[k]),
        n=n,
    )


def _no_repeats(crowd: Crowd, k: int) -> str:
    if crowd.n_repeats[k]:
        return "none of their hidden repeats was answered by a side both times"
    return "they answered no hidden repeat"


def _own_accuracy(crowd: Crowd, k: int) -> dict[str, Any]:
    """q from q² + (1 − q)² = consistency: how often they would be right if their answers to a pair
    were independent draws; undefined where consistency is under one half."""
    n, hits = int(crowd.same.n[k]), int(crowd.same.hits[k])
    if n < LEAST_CONTROLS:
        return {"value": None, "undefined": f"too few repeats: {n} of {LEAST_CONTROLS}"}
    if 2 * hits < n:
        return {"value": None, "undefined": "consistency is under one half, a coin’s"}
    return {"value": (1 + math.sqrt(2 * hits / n - 1)) / 2, "undefined": None}


def _timeline(crowd: Crowd, k: int) -> list[dict[str, Any]]:
    part = crowd.timeline
    return [
        {
            "n": int(part.n[k, place]),
            "value": _number(part.mean[k, place]),
            "low": _number(part.low[k, place]),
            "high": _number(part.high[k, place]),
        }
        for place in range(int(crowd.n_bins[k]))
    ]


def _bounds(means: Means, k: int) -> tuple[float | None, float | None]:
    low, high = _number(means.low[k]), _number(means.high[k])
    if low is None or high is None:
        return None, None
    return max(low, 0.0), min(high, 1.0)


def _number(value: Any) -> float | None:
    return None if np.isnan(value) else float(value)

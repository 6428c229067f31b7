"""Is there a part of the data where it points the wrong way?

Rows are cut by what can be seen without knowing who won: how long the answers are and how far apart
in length, category, topic, origin, annotator, time, and how many people agreed. Every slice with
enough rows is tested against a coin; Holm's correction keeps the chance of any false alarm at
2.5 %.
"""

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from measures.accuracy import pair_credit
from measures.blocks import Block, Intervals, Table
from measures.estimate import Interval
from measures.trust.findings import Finding, Verdict, unmeasured
from measures.trust.significance import Pairs, holm, p_above, share_of
from workers.contract.numbers import percent, share
from workers.trust.wording import some

Bools = NDArray[np.bool_]
Cut = tuple[str, str, Bools]  # kind, name, rows

LEAST_ROWS = 50  # SPEC: of a slice
MOST_SLICES = 20  # of one kind, the largest
SHOWN = 12  # on the axis, the worst


def slices(pairs: Pairs) -> Finding:
    """Red: a slice of at least 50 pairs is worse than a coin, by more than chance.

    Slices overlap, which Holm's correction allows. A slice in which the model is as good as a coin
    is shown and is not red: nothing shows that it points the wrong way there. A model that is no
    better than a coin as a whole has no green parts.
    """
    line = "slices"
    found = [
        (kind, name, rows, share_of(pairs, pairs.credit(), where=rows))
        for kind, name, rows in cuts(pairs)
        if rows.sum() >= LEAST_ROWS
    ]
    tested = [one for one in found if one[3].low is not None]
    if not tested:
        small = by_category(pairs)
        return unmeasured(
            line,
            f"No part of {some(len(pairs))} has {LEAST_ROWS} of its own, of different prompts. "
            "Hold out more.",
            evidence=() if small is None else (small.table(),),
        )
    stands = holm([1 - p_above(of, 0.5) for *_, of in tested])
    bad = [one for one, yes in zip(tested, stands, strict=True) if yes]
    worst = min(tested, key=lambda one: one[3].value or 0.0)
    evidence: tuple[Block, ...] = _evidence(pairs, found)
    facts: dict[str, Any] = {
        "tested": len(tested),
        "wrong_way": [f"{kind}: {name}" for kind, name, *_ in bad],
        "worst": worst[3].value,
    }
    if (categories := by_category(pairs)) is not None:
        evidence, facts = (*evidence, categories.table()), facts | categories.facts()
    if bad:
        kind, name, _, of = min(bad, key=lambda one: one[3].value or 0.0)
        more = {1: "", 2: " and on one other part"}.get(
            len(bad), f" and on {len(bad) - 1} other parts"
        )
        return Finding(
            line=line,
            verdict=Verdict.RED,
            says=f"Worse than a coin on {_called(kind, name)}{more}: {share(of)} right, "
            f"n = {of.n:,}, after allowing for {len(tested)} parts looked at.",
            figure=of,
            evidence=evidence,
            facts=facts,
        )
    whole = share_of(pairs, pairs.credit(), where=pairs.decided)
    if (whole.low or 0.0) <= 0.5:
        return unmeasured(
            line,
            f"{share(whole)} right on all {some(whole.n)}: not shown to be better than a coin, so "
            "no part of them can stand out.",
            evidence=evidence,
        )
    kind, name, _, of = worst
    return Finding(
        line=line,
        verdict=Verdict.GREEN,
        says=f"None of {len(tested)} parts of the data is worse than a coin; the lowest is "
        f"{_called(kind, name)}, with {share(of)} right, n = {of.n:,}.",
        figure=of,
        evidence=evidence,
        facts=facts,
    )


def cuts(pairs: Pairs) -> Iterator[Cut]:
    """Every slice that the columns allow, of rows with a preferred side, however few."""
    decided = pairs.decided
    for kind, labels in (
        ("length", _by_length(pairs)),
        ("difference in length", _by_difference(pairs)),
        ("category", _largest([str(name) for name in pairs.categories], "other categories")),
        ("topic", _largest([str(name) for name in pairs.groups], "other topics")),
        ("origin", _largest(_origins(pairs), "other origins")),
        ("annotator", _largest([str(name) for name in pairs.annotators], "everyone else")),
        ("time", _by_time(pairs)),
        ("agreement", _by_agreement(pairs)),
    ):
        if len(labels) != len(pairs):
            continue
        names = np.asarray(labels, dtype=object)
        kinds = [name for name in dict.fromkeys(labels) if name]
        if kind not in ("length", "difference in length") and len(kinds) < 2:
            continue  # one slice that is everything tells nothing new
        for name in sorted(kinds) if kind == "time" else kinds:
            yield kind, name, (names == name) & decided


@dataclass(frozen=True, slots=True)
class ByCategory:
    """How often a model is right in each category of a suite, by name, and over them: the plain
    mean of their shares, None where one has no pair with a preferred side."""

    shares: Mapping[str, Interval]
    mean: float | None

    def facts(self) -> dict[str, Any]:
        """Plain numbers for API and tests."""
        return {
            "categories": {
                name: {"value": of.value, "low": of.low, "high": of.high, "n": of.n}
                for name, of in self.shares.items()
            },
            "mean_of_categories": self.mean,
        }

    def table(self) -> Table:
        mean = "" if self.mean is None else f" The plain mean of them is {percent(self.mean)}."
        return Table(
            title="By category",
            columns=("Category", "Pairs", "Right", "From", "To"),
            formats=("text", "count", "share", "share", "share"),
            rows=tuple((name, of.n, of.value, of.low, of.high) for name, of in self.shares.items()),
            note="A tie of the scores counts half. Intervals are 95 % each; a category of very few "
            f"prompts has none.{mean}",
        )


def by_category(pairs: Pairs) -> ByCategory | None:
    """None where no pair names a category. Every category is told, however small; pairs without
    one are told as such."""
    if not any(pairs.categories):
        return None
    labels = np.asarray([name or "(no category)" for name in pairs.categories], dtype=object)
    credit, decided = pairs.credit(), pairs.decided
    shares = {
        name: share_of(pairs, credit, where=(labels == name) & decided)
        for name in sorted(set(labels[decided]))
    }
    values = [of.value for of in shares.values()]
    known = [value for value in values if value is not None]
    return ByCategory(
        shares, float(np.mean(known)) if known and len(known) == len(values) else None
    )


def _by_length(pairs: Pairs) -> list[str]:
    one, two = pairs.lengths
    mean = (one + two) / 2
    if not len(mean):
        return []
    low, high = np.quantile(mean, [1 / 3, 2 / 3])
    names = (
        f"up to {low:,.0f} characters",
        f"{low:,.0f} to {high:,.0f} characters",
        f"over {high:,.0f} characters",
    )
    return [names[int(value > low) + int(value > high)] for value in mean]


def _by_difference(pairs: Pairs) -> list[str]:
    one, two = pairs.lengths
    apart = np.abs(one - two) / np.maximum(np.maximum(one, two), 1)
    names = ("under 10 %", "10 to 50 %", "over 50 %")
    return [names[int(value >= 0.1) + int(value > 0.5)] for value in apart]


def _origins(pairs: Pairs) -> list[str]:
    return [
        " and ".join(sorted({name or "unknown" for name in both})) if any(both) else ""
        for both in pairs.sources
    ]


def _by_time(pairs: Pairs) -> list[str]:
    """Quarters of the rows whose time is known, by date."""
    at = np.asarray(pairs.times, dtype=float)
    known = np.isfinite(at)
    if len(at) != len(pairs) or known.sum() < 2 or np.ptp(at[known]) == 0:
        return []
    edges = np.unique(np.quantile(at[known], [0.25, 0.5, 0.75]))
    part = np.searchsorted(edges, at, side="left")
    names = {}
    for k in np.unique(part[known]):
        of = at[known & (part == k)]
        names[int(k)] = f"{_day(of.min())} to {_day(of.max())}"
    return [names[int(k)] if yes else "" for k, yes in zip(part, known, strict=True)]


def _day(at: float) -> str:
    return f"{dt.datetime.fromtimestamp(at, dt.UTC):%Y-%m-%d}"


def _by_agreement(pairs: Pairs) -> list[str]:
    confidence = np.asarray(pairs.confidence, dtype=float)
    names = ("up to 70 % agree", "70 to 90 % agree", "over 90 % agree")
    return [names[int(value > 0.7) + int(value > 0.9)] for value in confidence]


def _largest(labels: Sequence[str], rest: str) -> list[str]:
    """The largest kinds by name, the others together; "" stays unknown."""
    counted = Counter(label for label in labels if label)
    kept = {name for name, n in counted.most_common(MOST_SLICES) if n >= LEAST_ROWS}
    return [label if label in kept or not label else rest for label in labels]


def _evidence(
    pairs: Pairs, found: Sequence[tuple[str, str, Bools, Interval]]
) -> tuple[Intervals, Table]:
    one, two = pairs.lengths
    by_length = pair_credit(one - two)
    worst = sorted(found, key=lambda part: part[3].value or 0.0)[:SHOWN]
    return (
        Intervals(
            title="The lowest parts" if len(found) > SHOWN else "Every part",
            rows=tuple((f"{kind}: {name}", of) for kind, name, _, of in worst),
            reference=0.5,
            reference_label="a coin",
        ),
        Table(
            title="Every part with at least 50 pairs",
            columns=("Cut by", "Part", "Pairs", "Right", "From", "To", "Length alone"),
            formats=("text", "text", "count", "share", "share", "share", "share"),
            rows=tuple(
                (kind, name, of.n, of.value, of.low, of.high, float(by_length[rows].mean()))
                for kind, name, rows, of in found
            ),
            note="Intervals are 95 % each; the verdict allows for how many there are.",
        ),
    )


def _called(kind: str, name: str) -> str:
    words = {
        "length": f"answers of {name}",
        "difference in length": f"pairs whose lengths differ by {name}",
        "category": f"the category “{name}”",
        "topic": f"the topic “{name}”",
        "origin": f"answers from {name}",
        "annotator": f"pairs of {name}",
        "time": f"pairs of {name}",
        "agreement": f"pairs on which {name}",
    }
    return words[kind]

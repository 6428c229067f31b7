"""Two reward models side by side: the lines in rows, what differs marked."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from apps.common.drawing.axes import bounds, words
from apps.evaluation.screens.page import LineView, line_view
from measures.trust.findings import Finding, Intervals
from measures.trust.lines import GROUPS, LINES


@dataclass(frozen=True, slots=True)
class ComparedLine:
    """`differs`: the verdicts are not the same."""

    a: LineView
    b: LineView
    differs: bool


@dataclass(frozen=True, slots=True)
class ComparedGroup:
    title: str
    rows: list[ComparedLine]


@dataclass(frozen=True, slots=True)
class Comparison:
    groups: list[ComparedGroup]
    n_different: int
    sentence: str


def compare(a: Sequence[Finding], b: Sequence[Finding]) -> Comparison:
    """Both have one finding for each line, in the order of the page."""
    rows = [
        ComparedLine(
            line_view(one, evidence=False),
            line_view(other, evidence=False),
            one.verdict != other.verdict,
        )
        for one, other in zip(a, b, strict=True)
    ]
    n = sum(row.differs for row in rows)
    only_a = sum(row.a.verdict == "red" != row.b.verdict for row in rows)
    only_b = sum(row.b.verdict == "red" != row.a.verdict for row in rows)
    both = sum(row.a.verdict == row.b.verdict == "red" for row in rows)
    if n:
        sentence = (
            f"{n} of {len(rows)} checks differ: {only_a} failed only for A, {only_b} only for B, "
            f"{both} for both."
        )
    else:
        sentence = f"All {len(rows)} verdicts are the same; {both} failed for both."
    groups = [
        ComparedGroup(title, [row for row in rows if LINES[row.a.name].group == title])
        for title in GROUPS
    ]
    return Comparison(groups, n, sentence)


# The model's accuracy with what it is read beside: rules that read little, and people.


class _Label(Protocol):
    low: float | None
    high: float | None
    says: str


class _Ceiling(Protocol):
    single: _Label
    decided: _Label


@dataclass(frozen=True, slots=True)
class AccuracyTile:
    label: str
    value: str
    basis: str


def beside_accuracy(accuracy: Finding, ceiling: _Ceiling | None) -> list[AccuracyTile]:
    """Empty before an assessment: a ceiling alone says nothing about the model."""
    block = next((one for one in accuracy.evidence if isinstance(one, Intervals)), None)
    if block is None:
        return []
    tiles = [
        AccuracyTile(label, words(of.value, block.unit), f"{bounds(of, block.unit)}, n = {of.n:,}")
        for label, of in block.rows
        if of.value is not None
    ]
    decided = ceiling.decided if ceiling else None
    if decided is not None and decided.low is not None and decided.high is not None:
        value = f"{100 * decided.low:.1f}–{100 * decided.high:.1f} %"
        tiles.append(AccuracyTile("Ceiling", value, "a second crowd to a perfect model"))
    return tiles if len(tiles) > 1 else []


def ceiling_says(ceiling: _Ceiling | None) -> list[str]:
    """Both ceilings in words; like is compared with like."""
    if ceiling is None:
        return []
    return list(dict.fromkeys((ceiling.decided.says, ceiling.single.says)))

"""What the page of a reward model prints: findings in, words out. No queries here."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from apps.common.report.axes import bounds, estimate, words
from apps.common.report.blocks import Part, parts
from apps.common.report.levels import LOOKS, Level, Look, look_of
from apps.evaluation.lines import GROUPS, LINES
from measures.blocks import Curve, Histogram, Intervals, Table, Texts
from measures.trust.findings import Finding, Verdict

# (tone, icon, word)


@dataclass(frozen=True, slots=True)
class LineView:
    """One line; `figure` and `spread` are the number that decided, where there is one."""

    name: str
    title: str
    rule: str
    why: str
    verdict: str
    look: Look
    says: str
    figure: str
    spread: str
    parts: list[Part]


@dataclass(frozen=True, slots=True)
class GroupView:
    title: str
    lines: list[LineView]


@dataclass(frozen=True, slots=True)
class VerdictView:
    """The answer to “may I optimise against this?” in a sentence, and how it came about."""

    look: Look
    sentence: str
    red: list[LineView]
    green: list[LineView]
    unmeasured: list[LineView]


def line_view(finding: Finding, *, evidence: bool = True) -> LineView:
    line = LINES[finding.line]
    figure, spread = estimate(finding.figure, finding.unit) if finding.figure else ("", "")
    return LineView(
        name=line.name,
        title=line.title,
        rule=line.rule,
        why=line.why,
        verdict=str(finding.verdict),
        look=look_of(finding.verdict),
        says=finding.says,
        figure=figure,
        spread=spread,
        parts=parts(finding.evidence) if evidence else [],
    )


def group_views(findings: Sequence[Finding]) -> list[GroupView]:
    views = [line_view(one) for one in findings]
    return [
        GroupView(group, [view for view in views if LINES[view.name].group == group])
        for group in GROUPS
    ]


def verdict_view(findings: Sequence[Finding]) -> VerdictView:
    views = [line_view(one, evidence=False) for one in findings]
    by = {verdict: [one for one in views if one.verdict == verdict] for verdict in Verdict}
    red, unmeasured = by[Verdict.RED], by[Verdict.UNMEASURED]
    level = Level.BAD if red else Level.NOTICE if unmeasured else Level.OK
    return VerdictView(
        look=LOOKS[level],
        sentence=verdict_sentence(len(red), len(unmeasured)),
        red=red,
        green=by[Verdict.GREEN],
        unmeasured=unmeasured,
    )


def verdict_sentence(red: int, unmeasured: int) -> str:
    """Few things are certain here: a page without red lines is only as good as what it measured."""
    if red:
        rest = f", {unmeasured} not measured" if unmeasured else ""
        return f"{red} failed{rest}: not fit for optimisation yet."
    if unmeasured == len(LINES):
        return "Nothing is measured yet: fitness for optimisation unknown."
    if unmeasured:
        return f"No check failed, but {_lines(unmeasured)} not measured."
    return f"All {len(LINES)} checks passed: fit for optimisation by this page."


def _lines(n: int) -> str:
    return f"{n} check is" if n == 1 else f"{n} checks are"


def turned_red(kept: Sequence[Finding], now: Sequence[Finding]) -> list[LineView]:
    """Lines that are red now and were not when the model was approved."""
    before = {one.line: one.verdict for one in kept}
    return [
        line_view(one, evidence=False)
        for one in now
        if one.verdict == Verdict.RED and before.get(one.line) != Verdict.RED
    ]


def open_lines(findings: Sequence[Finding]) -> str:
    """ "10 checks failed, 9 not measured"; empty where all were green."""
    red = sum(one.verdict == Verdict.RED for one in findings)
    unmeasured = sum(one.verdict == Verdict.UNMEASURED for one in findings)
    counts = [(n, word) for n, word in ((red, "failed"), (unmeasured, "not measured")) if n]
    if not counts:
        return ""
    (n, word), rest = counts[0], counts[1:]
    first = f"{n} check{'' if n == 1 else 's'} {word}"
    return ", ".join([first, *(f"{n} {word}" for n, word in rest)])


CSV_COLUMNS = ("line", "verdict", "figure", "row", "value", "low", "high", "n")


def csv_rows(finding: Finding) -> Iterator[dict[str, Any]]:
    """Every number of a line, one a row: shares as fractions; a table has a row for each cell."""
    about = {"line": finding.line, "verdict": str(finding.verdict)}
    yield about | {"figure": "in words", "row": finding.says} | _of(finding.figure)
    for block in finding.evidence:
        try:
            rows = list(_csv_block(block))
        except (TypeError, ValueError, LookupError, AttributeError):
            rows = [{"row": "these numbers do not fit together"}]
        for row in rows:
            yield about | {"figure": block.title} | row


def _csv_block(block: Any) -> Iterator[dict[str, Any]]:
    if isinstance(block, Table):
        for cells in block.rows:
            for name, value in zip(block.columns[1:], cells[1:], strict=False):
                yield {"row": f"{cells[0]}: {name}", "value": value}
    elif isinstance(block, Intervals):
        for label, of in block.rows:
            yield {"row": label} | _of(of)
    elif isinstance(block, Histogram):
        for name, shares in block.groups:
            for low, high, share in zip(block.edges, block.edges[1:], shares, strict=False):
                yield {"row": f"{name}: {low} to {high}", "value": share}
    elif isinstance(block, Curve):
        for one in block.series:
            empty = (None,) * len(one.x)
            lows, highs = one.low or empty, one.high or empty
            for x, y, low, high in zip(one.x, one.y, lows, highs, strict=False):
                yield {"row": f"{one.label} at {x}", "value": y, "low": low, "high": high}
    elif isinstance(block, Texts):
        for example in block.examples:
            yield {"row": f"{example.label}: {example.answer}", "value": example.score}


def _of(interval: Any) -> Mapping[str, Any]:
    if interval is None:
        return {}
    return {
        "value": interval.value,
        "low": interval.low,
        "high": interval.high,
        "n": interval.n,
    }


# Two reward models side by side: the lines in rows, what differs marked.


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

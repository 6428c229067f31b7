"""What the bias report prints: its stored JSON in, blocks to draw out."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from apps.common.report.axes import COUNT, NUMBER, SHARE, TEXT
from apps.common.report.blocks import Part, part_of
from apps.common.report.levels import LOOKS, WORST_FIRST, Level, Look, look_of
from measures.blocks import Bars, Curve, Intervals, Series, Table
from measures.estimate import Interval


@dataclass(frozen=True, slots=True)
class PairExamples:
    """Pairs to read, with a word about each; `sides` are the names of the two columns."""

    title: str
    examples: list[Mapping[str, Any]]
    sides: list[str]
    kind: str = "examples"


@dataclass(frozen=True, slots=True)
class ReportCheckView:
    key: str
    title: str
    level: str
    look: Look
    verdict: str
    advice: str
    basis: str
    evidence: list[Part | PairExamples]
    is_open: bool


@dataclass(frozen=True, slots=True)
class ReportView:
    """tallies: (look, n) of each level there is, worst first.

    n: training pairs; looked_at: how many of them.
    """

    checks: list[ReportCheckView]
    tallies: list[tuple[Look, int]]
    n: int
    looked_at: int


def report_view(report: Mapping[str, Any], *, folded: bool = False) -> ReportView:
    """Worst checks first, otherwise in their order; those to fix open unless `folded`."""
    checks = [_check(check, folded=folded) for check in report["checks"]]
    checks.sort(key=lambda check: WORST_FIRST.index(check.look.level))
    n_of = Counter(check.look.level for check in checks)
    return ReportView(
        checks,
        [(LOOKS[level], n_of[level]) for level in WORST_FIRST if n_of[level]],
        report["n"],
        report.get("looked_at", report["n"]),
    )


def _check(check: Mapping[str, Any], *, folded: bool) -> ReportCheckView:
    look = look_of(check["level"])
    return ReportCheckView(
        key=check["key"],
        title=check["title"],
        level=check["level"],
        look=look,
        verdict=check["verdict"],
        advice=check["advice"],
        basis=check["basis"],
        evidence=[_evidence(part) for part in check["evidence"]],
        is_open=look.level is Level.BAD and not folded,
    )


def _evidence(part: Mapping[str, Any]) -> Part | PairExamples:
    kind, title, rows = part["kind"], part["caption"], part["rows"]
    if kind == "examples":
        return PairExamples(title, rows, part["sides"])
    if kind == "table":
        cells = tuple(tuple(row) for row in rows)
        return part_of(
            Table(
                title=title,
                columns=tuple(name.removesuffix(" %") for name in part["columns"]),
                formats=tuple(
                    _unit(name, [row[k] for row in cells]) for k, name in enumerate(part["columns"])
                ),
                rows=cells,
            )
        )
    if kind == "bars":
        bars = tuple((row["label"], _marked(row)) for row in rows)
        parts = (part["unit"], "marked") if any(row["marked"] for row in rows) else ()
        return part_of(Bars(title=title, rows=bars, parts=parts, note=part["unit"].capitalize()))
    estimates = [(row["label"], _interval(row)) for row in rows]
    if kind == "shares":
        middle = part["middle"]
        return part_of(
            Intervals(
                title=title,
                rows=tuple(estimates),
                reference=middle,
                tones=tuple("accent" if _is_off(of, middle) else "plain" for _, of in estimates),
            )
        )
    known = [(label, of) for label, of in estimates if of.value is not None]
    series = Series(
        label=title,
        x=tuple(range(len(known))),
        y=tuple(of.value for _, of in known),
        low=tuple(of.low for _, of in known),
        high=tuple(of.high for _, of in known),
    )
    return part_of(
        Curve(
            title=title,
            series=(series,),
            x_label=part["unit"],
            y_label="",
            x_names=tuple((float(k), label) for k, (label, _) in enumerate(known)),
            y_unit=SHARE,
        )
    )


def _interval(row: Mapping[str, Any]) -> Interval:
    value, why = row["value"], row.get("why") or None
    return Interval(
        value=value,
        low=row["low"],
        high=row["high"],
        n=row["n"],
        undefined=why if value is None else None,
        no_interval=why if value is not None else None,
    )


def _is_off(of: Interval, middle: float | None) -> bool:
    """Whether the interval lies wholly on one side of the middle."""
    if middle is None or of.low is None or of.high is None:
        return False
    return of.low > middle or of.high < middle


def _marked(row: Mapping[str, Any]) -> tuple[float, float]:
    """A marked bar has the second colour."""
    return (0.0, row["n"]) if row["marked"] else (row["n"], 0.0)


def _unit(column: str, values: list[Any]) -> str:
    """How a table's column is printed; its name says which shares are in per cent."""
    known = [value for value in values if value is not None]
    if any(isinstance(value, str) for value in known):
        return TEXT
    if column.endswith(" %"):
        return SHARE
    return COUNT if all(float(value).is_integer() for value in known) else NUMBER


COLUMNS = ("check", "verdict", "figure", "row", "value", "low", "high", "n")


def csv_rows(report: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every number of a report, one a line: shares as fractions, tables a cell a line."""
    for check in report["checks"]:
        about = {"check": check["title"], "verdict": look_of(check["level"]).word}
        yield about | {"figure": "in words", "row": check["verdict"]}
        for part in check["evidence"]:
            for line in _csv_part(part):
                yield about | line


def _csv_part(part: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    caption = part["caption"]
    for row in part["rows"]:
        if part["kind"] in ("shares", "curve"):
            named = {k: row[k] for k in ("value", "low", "high", "n")}
            yield {"figure": caption, "row": row["label"]} | named
        elif part["kind"] == "bars":
            yield {"figure": caption, "row": row["label"], "n": row["n"]}
        elif part["kind"] == "table":
            for name, value in zip(part["columns"][1:], row[1:], strict=True):
                yield {
                    "figure": f"{caption}: {name.removesuffix(' %')}",
                    "row": row[0],
                    "value": value,
                }
        else:
            named = f"comparison {row['comparison']}: " if row.get("comparison") else ""
            yield {"figure": caption, "row": f"{named}{row['note']}"}

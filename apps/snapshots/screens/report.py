"""What the bias report prints: its stored JSON in, words and SVG geometry out."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from apps.snapshots.reports.checks import LEVELS, OK, STOP, UNKNOWN, WARN

BAR = 200  # units of a row's drawing; its width on the page is the stylesheet's
# The learning curve's drawing, in pixels.
WIDTH, HEIGHT, LEFT, RIGHT, TOP, FLOOR = 420, 190, 46, 14, 14, 156

# (tone, icon, words for one check, words for a count of them)
LEVEL_WORDS = {
    STOP: ("bad", "circle-alert", "Critical", "critical"),
    WARN: ("warn", "triangle-alert", "Warning", "warnings"),
    UNKNOWN: ("", "circle-help", "Not enough data", "without enough data"),
    OK: ("good", "circle-check", "OK", "OK"),
}


@dataclass(frozen=True, slots=True)
class DotRow:
    """A share with its interval on a line from 0 to 1; `words` and `bounds` say it in figures."""

    label: str
    words: str
    bounds: str
    n: int
    x: float | None
    low: float | None
    width: float
    off: bool  # the interval lies wholly on one side of the middle


@dataclass(frozen=True, slots=True)
class BarRow:
    label: str
    n: float
    width: float
    marked: bool


@dataclass(frozen=True, slots=True)
class Point:
    x: float
    y: float
    low: float | None
    high: float | None
    label: str
    words: str
    anchor: str


@dataclass(frozen=True, slots=True)
class Curve:
    points: list[Point]
    line: str
    ticks: list[tuple[float, str]]  # y, words


@dataclass(frozen=True, slots=True)
class Evidence:
    """One piece; the fields that its kind does not have are empty."""

    kind: str
    caption: str
    dots: list[DotRow] = field(default_factory=list)
    middle: float | None = None
    bars: list[BarRow] = field(default_factory=list)
    unit: str = ""
    curve: Curve | None = None
    columns: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    examples: list[Mapping[str, Any]] = field(default_factory=list)
    sides: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ReportCheckView:
    key: str
    title: str
    level: str
    tone: str
    icon: str
    word: str
    verdict: str
    advice: str
    basis: str
    evidence: list[Evidence]
    is_open: bool


@dataclass(frozen=True, slots=True)
class ReportView:
    """tallies: (tone, icon, n, words) of each level there is, worst first.

    n: training pairs; looked_at: how many of them.
    """

    checks: list[ReportCheckView]
    tallies: list[tuple[str, str, int, str]]
    n: int
    looked_at: int


def report_view(report: Mapping[str, Any], *, folded: bool = False) -> ReportView:
    """Worst checks first, otherwise in their order; those to fix open unless `folded`."""
    ordered = sorted(report["checks"], key=lambda check: LEVELS.index(check["level"]))
    n_of = Counter(check["level"] for check in ordered)
    return ReportView(
        [_check(check, folded=folded) for check in ordered],
        [
            (LEVEL_WORDS[level][0], LEVEL_WORDS[level][1], n_of[level], LEVEL_WORDS[level][3])
            for level in LEVELS
            if n_of[level]
        ],
        report["n"],
        report.get("looked_at", report["n"]),
    )


def _check(check: Mapping[str, Any], *, folded: bool) -> ReportCheckView:
    tone, icon, word, _ = LEVEL_WORDS[check["level"]]
    return ReportCheckView(
        key=check["key"],
        title=check["title"],
        level=check["level"],
        tone=tone,
        icon=icon,
        word=word,
        verdict=check["verdict"],
        advice=check["advice"],
        basis=check["basis"],
        evidence=[_evidence(part) for part in check["evidence"]],
        is_open=check["level"] == STOP and not folded,
    )


def _evidence(part: Mapping[str, Any]) -> Evidence:
    kind, caption, rows = part["kind"], part["caption"], part["rows"]
    if kind == "shares":
        middle = part["middle"]
        dots = [_dot(row, middle) for row in rows]
        return Evidence(kind, caption, dots=dots, middle=None if middle is None else BAR * middle)
    if kind == "bars":
        most = max((row["n"] for row in rows), default=0) or 1
        bars = [
            BarRow(r["label"], r["n"], round(BAR * r["n"] / most, 1), r["marked"]) for r in rows
        ]
        return Evidence(kind, caption, bars=bars, unit=part["unit"])
    if kind == "curve":
        return Evidence(kind, caption, unit=part["unit"], curve=_curve(rows))
    if kind == "table":
        columns = part["columns"]
        cells = [[_cell(columns[k], value) for k, value in enumerate(row)] for row in rows]
        names = [name.removesuffix(" %") for name in columns]
        return Evidence(kind, caption, columns=names, rows=cells)
    return Evidence(kind, caption, examples=rows, sides=part["sides"])


def _dot(row: Mapping[str, Any], middle: float | None) -> DotRow:
    value, low, high = row["value"], row["low"], row["high"]
    if value is None:
        return DotRow(row["label"], row["why"], "", row["n"], None, None, 0.0, False)
    whole = low is not None and high is not None
    off = whole and middle is not None and (low > middle or high < middle)
    return DotRow(
        label=row["label"],
        words=f"{100 * value:.1f} %",
        bounds=f"({100 * low:.1f}–{100 * high:.1f} %)" if whole else f"({row['why']})",
        n=row["n"],
        x=round(BAR * value, 1),
        low=round(BAR * low, 1) if whole else None,
        width=round(BAR * (high - low), 1) if whole else 0.0,
        off=off,
    )


def _share(value: float, low: float | None, high: float | None) -> str:
    said = f"{100 * value:.1f} %"
    return said if low is None or high is None else f"{said} ({100 * low:.1f}–{100 * high:.1f} %)"


def _cell(column: str, value: Any) -> str:
    if value is None:
        return "—"
    if isinstance(value, str):
        return value
    if column.endswith(" %"):
        return f"{100 * value:.1f} %"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.3g}"


def _curve(rows: list[Mapping[str, Any]]) -> Curve:
    known = [row for row in rows if row["value"] is not None]
    bounds = [
        row[name] for row in known for name in ("value", "low", "high") if row[name] is not None
    ]
    floor, ceiling = (min(bounds), max(bounds)) if bounds else (0.0, 1.0)
    least, most = int(20 * floor) / 20, min(1.0, (int(20 * ceiling) + 1) / 20)

    def at(share: float | None) -> float | None:
        if share is None:
            return None
        return round(FLOOR - (FLOOR - TOP) * (share - least) / (most - least), 1)

    step = (WIDTH - LEFT - RIGHT) / max(1, len(known) - 1)
    points = []
    for place, row in enumerate(known):
        last = place == len(known) - 1
        points.append(
            Point(
                x=round(LEFT + step * place, 1),
                y=at(row["value"]) or 0.0,
                low=at(row["low"]),
                high=at(row["high"]),
                label=row["label"],
                words=_share(row["value"], row["low"], row["high"]),
                anchor="start" if not place else "end" if last else "middle",
            )
        )
    ticks = [(at(least) or 0.0, f"{100 * least:.0f} %"), (at(most) or 0.0, f"{100 * most:.0f} %")]
    return Curve(points, " ".join(f"{p.x},{p.y}" for p in points), ticks)


COLUMNS = ("check", "verdict", "figure", "row", "value", "low", "high", "n")


def csv_rows(report: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every number of a report, one a line: shares as fractions, tables a cell a line."""
    for check in report["checks"]:
        about = {"check": check["title"], "verdict": LEVEL_WORDS[check["level"]][2]}
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

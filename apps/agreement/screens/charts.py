"""Geometry of the charts that several agreement pages draw: dots with whiskers, lines with a band.

Dots stand at percent of a row's width, so that a chart fills its card; lines are in pixels of the
SVG's own coordinates. Values are fractions, drawn on a scale of percent.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

LONGEST_LABEL = 56
PLOT_HEIGHT = 180


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a row shows. `tone` picks its colour and is said in the table beside the chart."""

    label: str
    value: float | None
    low: float | None = None
    high: float | None = None
    tone: str = ""
    without: str = ""  # printed where there is no value


@dataclass(frozen=True, slots=True)
class ChartDot:
    """x, low, high: percent of the scale's width."""

    label: str
    title: str
    value: str
    x: float | None
    low: float | None
    high: float | None
    tone: str


@dataclass(frozen=True, slots=True)
class Tick:
    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Whiskers:
    """Rows of dots over a scale; `line` is where the project as a whole stands."""

    rows: list[ChartDot]
    ticks: list[Tick]
    line: float | None = None


def percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"


def whiskers(estimates: Sequence[Estimate], *, line: float | None = None) -> Whiskers:
    """Dots and whiskers on the part of 0 to 100 % that is used, in tens."""
    known = [x for e in estimates for x in (e.value, e.low, e.high) if x is not None]
    start, end = _range([*known, *([] if line is None else [line])])

    def at(fraction: float | None) -> float | None:
        if fraction is None:
            return None
        place = min(max((fraction - start) / (end - start), 0.0), 1.0)
        return round(100 * place, 2)

    return Whiskers(
        rows=[
            ChartDot(
                label=shortened(estimate.label),
                title=estimate.label,
                value=estimate.without if estimate.value is None else percent(estimate.value),
                x=at(estimate.value),
                low=at(estimate.low),
                high=at(estimate.high),
                tone=estimate.tone,
            )
            for estimate in estimates
        ],
        ticks=[Tick(at(x) or 0.0, f"{round(100 * x)} %") for x in _tens(start, end)],
        line=at(line),
    )


def shortened(label: str) -> str:
    return label if len(label) <= LONGEST_LABEL else label[: LONGEST_LABEL - 1].rstrip() + "…"


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Tens around the values, at least thirty points wide, within 0 to 100 %."""
    if not values:
        return 0.0, 1.0
    start = max(0.0, math.floor(10 * min(values) - 1e-9) / 10)
    end = min(1.0, math.ceil(10 * max(values) + 1e-9) / 10)
    while end - start < 0.3 - 1e-9:
        start, end = max(0.0, start - 0.1), min(1.0, end + 0.1)
    return start, end


def _tens(start: float, end: float) -> list[float]:
    step = 0.1 if end - start <= 0.61 else 0.2
    first = math.ceil(start / step - 1e-9)
    return [first * step + k * step for k in range(int((end - first * step) / step + 1e-9) + 1)]


@dataclass(frozen=True, slots=True)
class Point:
    x: float
    y: float
    title: str
    tone: str


@dataclass(frozen=True, slots=True)
class LineChart:
    """A series over time. band: the points of the polygon between the bounds, for each stretch
    that has them; path: the line's points, for each stretch without a gap."""

    points: list[Point]
    paths: list[str]
    bands: list[str]
    width: int
    height: int
    left: int
    right: int
    bottom: int
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    line: float | None = None


@dataclass(slots=True)
class _Stretch:
    line: list[str] = field(default_factory=list)
    upper: list[str] = field(default_factory=list)
    lower: list[str] = field(default_factory=list)


def line_over(
    estimates: Sequence[Estimate], positions: Sequence[float], *, line: float | None = None
) -> LineChart:
    """positions: where each estimate stands, any unit (days). Gaps in values break the line."""
    known = [x for e in estimates for x in (e.value, e.low, e.high) if x is not None]
    start, end = _range([*known, *([] if line is None else [line])])
    left, width, top = 48, 640, 10
    first, span = min(positions), max(max(positions) - min(positions), 1e-9)

    def x_at(position: float) -> float:
        return round(left + width * (position - first) / span, 1)

    def y_at(fraction: float) -> float:
        return round(top + PLOT_HEIGHT * (end - fraction) / (end - start), 1)

    points, stretches = [], [_Stretch()]
    for estimate, position in zip(estimates, positions, strict=True):
        if estimate.value is None:
            stretches.append(_Stretch())
            continue
        x = x_at(position)
        y = y_at(estimate.value)
        points.append(Point(x, y, estimate.label, estimate.tone))
        stretches[-1].line.append(f"{x},{y}")
        if estimate.low is not None and estimate.high is not None:
            stretches[-1].upper.append(f"{x},{y_at(estimate.high)}")
            stretches[-1].lower.append(f"{x},{y_at(estimate.low)}")
    labelled = range(0, len(estimates), max(1, math.ceil(len(estimates) / 7)))
    return LineChart(
        points=points,
        paths=[" ".join(s.line) for s in stretches if len(s.line) > 1],
        bands=[" ".join([*s.upper, *reversed(s.lower)]) for s in stretches if len(s.upper) > 1],
        width=left + width + 40,
        height=top + PLOT_HEIGHT + 28,
        left=left,
        right=left + width,
        bottom=top + PLOT_HEIGHT,
        x_ticks=[Tick(x_at(positions[i]), estimates[i].label) for i in labelled],
        y_ticks=[Tick(y_at(x), f"{round(100 * x)} %") for x in _tens(start, end)],
        line=None if line is None else y_at(line),
    )


# Cards of the agreement page: alarms, the pull of the left side, what labels cost.

TONES = {
    "critical": ("bad", "circle-alert"),
    "bad": ("bad", "circle-alert"),
    "unsure": ("warn", "triangle-alert"),
    "too_few": ("", "info"),
    "undefined": ("", "info"),
    "no_alarm": ("good", "circle-check"),
}


@dataclass(frozen=True, slots=True)
class Note:
    tone: str
    icon: str
    sentence: str


def note_of(estimate: dict[str, Any]) -> Note:
    tone, icon = TONES[estimate["level"]]
    return Note(tone, icon, estimate["sentence"])


def alarms(statistics: dict[str, Any]) -> list[Note]:
    """What percent agreement says, and what alpha says where that is no reassurance."""
    notes = [note_of(statistics["percent"])]
    if statistics["alpha"]["level"] != "no_alarm":
        notes.append(note_of(statistics["alpha"]))
    return notes


def position_card(position: dict[str, Any]) -> dict[str, Any]:
    """The pull of the left side: its sentence, and the two shares as a chart."""
    rate = position["left_rate"]
    rows = []
    if rate["value"] is not None:
        rows.append(
            Estimate("Choices that fell on the left", rate["value"], rate["low"], rate["high"])
        )
    if position["value"] is not None:
        shares = (position["value"], position["low"], position["high"])
        rows.append(Estimate("Left chosen, answers equally good", *shares, tone="ours"))
    tone, icon = TONES[position["level"]]
    return {
        "note": Note(tone, icon, position["sentence"]),
        "chart": whiskers(rows, line=0.5) if rows else None,
        "n": position["n"],
        "n_flipped": position["n_flipped"],
    }


PURPOSES = {
    "first": "first votes on a comparison",
    "extra": "extra votes on contested comparisons",
    "round": "second rounds",
    "repeat": "hidden repeats",
    "audit": "audits",
    "gold": "on gold comparisons",
}


def cost_card(cost: dict[str, Any]) -> dict[str, Any]:
    """What labels cost, as rows of name and value; what is not known says why."""
    currency = cost["currency"]

    def shown(quantity: dict[str, Any], unit: str, places: int) -> str:
        if quantity["value"] is None:
            return f"not known: {quantity['undefined']}"
        return f"{quantity['value']:,.{places}f} {unit}".strip()

    split = [
        f"{cost['by_purpose'][purpose]:,} {words}"
        for purpose, words in PURPOSES.items()
        if cost["by_purpose"][purpose]
    ]
    rows = [
        ("Votes", f"{cost['n_votes']:,}: {', '.join(split)}" if split else "none"),
        ("Accepted comparisons", f"{cost['n_kept']:,}"),
        ("Votes per accepted comparison", shown(cost["votes_per_kept"], "", 2)),
        ("Active time", shown(cost["hours"], "hours", 1)),
        ("Active time per accepted comparison", shown(cost["seconds_per_kept"], "s", 0)),
        ("Money", shown(cost["money"], currency, 2)),
        ("Cost per accepted comparison", shown(cost["money_per_kept"], currency, 2)),
    ]
    note = ""
    if cost["n_votes"] > cost["timed"] > 0:
        note = (
            f"The time of {cost['timed']:,} votes is known; the others are assumed to be similar."
        )
    return {"rows": rows, "note": note, "stated": cost["vote_price"] > 0}

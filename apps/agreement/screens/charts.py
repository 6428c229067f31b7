"""Geometry of the charts that several agreement pages draw: dots with whiskers, lines with a band.

Sizes are in pixels of the SVG's own coordinates; templates print them as they are. Values are
fractions, drawn on a scale of percent.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

# Dots and whiskers: the words of a row stand above its line, so that a phone shows both.
ROW = 36
MARGIN, WIDTH = 14, 400
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
class Dot:
    y: int
    text_y: int
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

    rows: list[Dot]
    width: int
    height: int
    axis_y: int
    value_x: int
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
        return round(MARGIN + WIDTH * place, 1)

    axis_y = len(estimates) * ROW + 2
    return Whiskers(
        rows=[
            Dot(
                y=place * ROW + 25,
                text_y=place * ROW + 13,
                label=shortened(estimate.label),
                title=estimate.label,
                value=estimate.without if estimate.value is None else percent(estimate.value),
                x=at(estimate.value),
                low=at(estimate.low),
                high=at(estimate.high),
                tone=estimate.tone,
            )
            for place, estimate in enumerate(estimates)
        ],
        width=2 * MARGIN + WIDTH,
        height=axis_y + 20,
        axis_y=axis_y,
        value_x=2 * MARGIN + WIDTH - 2,
        ticks=[Tick(at(x) or 0.0, f"{round(100 * x)} %") for x in _tens(start, end)],
        line=at(line),
    )


def shortened(label: str) -> str:
    return label if len(label) <= LONGEST_LABEL else label[: LONGEST_LABEL - 1].rstrip() + "…"


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Tens around the values, at least thirty apart, within 0 to 100 %."""
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
class Line:
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
) -> Line:
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
    return Line(
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

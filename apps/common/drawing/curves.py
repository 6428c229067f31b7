"""Curves: reliability diagrams, best-of-n, learning curves. Series differ by dashes and marks as
well as by colour."""

from dataclasses import dataclass

from apps.common.drawing.axes import Axis, Tick, short, words
from measures.trust.findings import Curve, Series

WIDTH, HEIGHT, LEFT, RIGHT, TOP, FLOOR = 480, 280, 54, 466, 16, 232
_MARK_ROW = 18


@dataclass(frozen=True, slots=True)
class Dot:
    x: float
    y: float
    low: float | None
    high: float | None
    title: str


@dataclass(frozen=True, slots=True)
class SeriesView:
    """paths: the line's points, for each stretch without a gap; bands: polygons of the interval."""

    label: str
    number: int  # 1 to 6: colour and dashes
    points: bool
    paths: list[str]
    bands: list[str]
    dots: list[Dot]


@dataclass(frozen=True, slots=True)
class Mark:
    x: float
    y: int
    words: str
    anchor: str
    text_x: float


@dataclass(frozen=True, slots=True)
class CurveView:
    series: list[SeriesView]
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    x_label: str
    y_label: str
    diagonal: tuple[float, float, float, float] | None
    marks: list[Mark]
    summary: str
    rows: list[tuple[str, str, str, str]]  # series, x, y, interval
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = RIGHT
    top: int = TOP
    floor: int = FLOOR
    middle: int = (LEFT + RIGHT) // 2


def curve_view(block: Curve) -> CurveView:
    """Raises ValueError when a series has not one y per x."""
    xs = [x for one in block.series for x in one.x] + [x for x, _ in block.marks]
    ys = [y for one in block.series for y in (*one.y, *one.low, *one.high) if y is not None]
    if block.diagonal:
        xs, ys = xs + ys, xs + ys
    x_axis = Axis(xs, LEFT, RIGHT, log=block.log_x)
    y_axis = Axis(ys, FLOOR, TOP)
    return CurveView(
        series=[_series(one, k % 6 + 1, x_axis, y_axis) for k, one in enumerate(block.series)],
        x_ticks=x_axis.ticks,
        y_ticks=y_axis.ticks,
        x_label=block.x_label,
        y_label=block.y_label,
        diagonal=_diagonal(x_axis, y_axis) if block.diagonal else None,
        marks=[_mark(x, said, k, x_axis) for k, (x, said) in enumerate(block.marks)],
        summary=_summary(block),
        rows=[row for one in block.series for row in _rows(one)],
    )


def _series(one: Series, number: int, x_axis: Axis, y_axis: Axis) -> SeriesView:
    lows, highs = one.low or (None,) * len(one.x), one.high or (None,) * len(one.x)
    dots: list[Dot | None] = []
    for x, y, low, high in zip(one.x, one.y, lows, highs, strict=True):
        at_x, at_y = x_axis.at(x), y_axis.at(y)
        title = f"{one.label}: {words(y)} at {short(x)}"
        dots.append(
            None
            if at_x is None or at_y is None
            else Dot(at_x, at_y, y_axis.at(low), y_axis.at(high), title)
        )
    stretches: list[list[Dot]] = [[]]
    for dot in dots:
        if dot is None:
            stretches.append([])
        else:
            stretches[-1].append(dot)
    known = [dot for dot in dots if dot is not None]
    return SeriesView(
        label=one.label,
        number=number,
        points=one.points,
        paths=[] if one.points else [_path(s) for s in stretches if len(s) > 1],
        bands=[] if one.points else [_band(s) for s in stretches if _has_band(s)],
        dots=known if one.points or len(known) <= 40 else [],
    )


def _path(dots: list[Dot]) -> str:
    return " ".join(f"{dot.x},{dot.y}" for dot in dots)


def _has_band(dots: list[Dot]) -> bool:
    return len(dots) > 1 and all(dot.low is not None and dot.high is not None for dot in dots)


def _band(dots: list[Dot]) -> str:
    above = [f"{dot.x},{dot.high}" for dot in dots]
    return " ".join([*above, *(f"{dot.x},{dot.low}" for dot in reversed(dots))])


def _diagonal(x_axis: Axis, y_axis: Axis) -> tuple[float, float, float, float]:
    low, high = max(x_axis.least, y_axis.least), min(x_axis.most, y_axis.most)
    ends = (x_axis.at(low), y_axis.at(low), x_axis.at(high), y_axis.at(high))
    return tuple(end or 0.0 for end in ends)  # type: ignore[return-value] # two ends, as the type says


def _mark(x: float, said: str, place: int, axis: Axis) -> Mark:
    at = axis.at(x) or LEFT
    left = at < (LEFT + RIGHT) / 2
    return Mark(
        at,
        TOP + 10 + place * _MARK_ROW,
        said,
        "start" if left else "end",
        round(at + (4 if left else -4), 1),
    )


def _summary(block: Curve) -> str:
    said = []
    for one in block.series:
        known = [(x, y) for x, y in zip(one.x, one.y, strict=True) if y is not None]
        if not known:
            said.append(f"{one.label}: no values.")
            continue
        (first_x, first), (last_x, last) = known[0], known[-1]
        top_x, top = max(known, key=lambda point: point[1])
        text = f"{one.label}: {words(first)} at {short(first_x)}, {words(last)} at {short(last_x)}"
        if len(known) > 2 and top_x not in (first_x, last_x):
            text += f", highest {words(top)} at {short(top_x)}"
        said.append(f"{text}.")
    said += [f"{mark} at {short(x)}." for x, mark in block.marks]
    return " ".join(said)


def _rows(one: Series) -> list[tuple[str, str, str, str]]:
    lows, highs = one.low or (None,) * len(one.x), one.high or (None,) * len(one.x)
    return [
        (
            one.label,
            short(x),
            words(y),
            f"{words(low)} … {words(high)}" if low is not None and high is not None else "",
        )
        for x, y, low, high in zip(one.x, one.y, lows, highs, strict=True)
    ]

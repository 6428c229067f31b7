"""Curves: reliability diagrams, best-of-n, learning curves, measurements over time. Series differ
by dashes and marks as well as by colour."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from apps.common.report.axes import TIME, Axis, Tick, short, words
from measures.blocks import Curve, Series

_MARK_ROW = 18
_MOST_DOTS = 60  # of a line; where something was found there is always one


@dataclass(frozen=True, slots=True)
class Frame:
    """The drawing's size and where its axes lie, in pixels of its own."""

    width: int
    height: int
    left: int
    right: int
    top: int
    floor: int

    @property
    def middle(self) -> int:
        return (self.left + self.right) // 2


LARGE = Frame(480, 280, 54, 466, 16, 232)
SMALL = Frame(400, 170, 52, 390, 12, 136)  # without a name of its axis, several beside each other


@dataclass(frozen=True, slots=True)
class Dot:
    x: float
    y: float
    low: float | None
    high: float | None
    title: str
    marked: bool


@dataclass(frozen=True, slots=True)
class SeriesView:
    """paths: the line's points, for each stretch without a gap; bands: polygons of the interval."""

    label: str
    number: int  # 1 to 6: colour and dashes
    points: bool
    behind: bool
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
    frame: Frame
    series: list[SeriesView]
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    x_label: str
    y_label: str
    diagonal: tuple[float, float, float, float] | None
    reference: float | None
    reference_label: str
    marks: list[Mark]
    summary: str
    rows: list[tuple[str, str, str, str]]  # series, x, y, interval

    @property
    def legend(self) -> list[SeriesView]:
        """Empty where one line speaks for itself."""
        told = [one for one in self.series if not one.behind]
        return told if len(told) > 1 or self.diagonal else []


def curve_view(block: Curve, frame: Frame = LARGE) -> CurveView:
    """Raises ValueError when a series has not one y per x."""
    xs = [x for one in block.series for x in one.x] + [x for x, _ in block.marks]
    xs += block.x_range
    ys = [y for one in block.series for y in (*one.y, *one.low, *one.high) if y is not None]
    ys += [] if block.reference is None else [block.reference]
    ys = list(block.y_range) or ys
    if block.diagonal:
        xs, ys = xs + ys, xs + ys
    x_axis = Axis(xs, frame.left, frame.right, log=block.log_x, unit=block.x_unit)
    y_axis = Axis(ys, frame.floor, frame.top, unit=block.y_unit)
    named = [Tick(x_axis.at(x) or 0.0, name) for x, name in block.x_names]
    told = [one for one in block.series if not one.behind]
    drawn = [*told, *(one for one in block.series if one.behind)]
    views = [_series(block, one, k % 6 + 1, x_axis, y_axis) for k, one in enumerate(drawn)]
    return CurveView(
        frame=frame,
        series=sorted(views, key=lambda view: not view.behind),
        x_ticks=named[:: max(1, -(-len(named) // 7))] or x_axis.ticks,
        y_ticks=y_axis.ticks,
        x_label="" if frame is SMALL else block.x_label,
        y_label=block.y_label,
        diagonal=_diagonal(x_axis, y_axis) if block.diagonal else None,
        reference=y_axis.at(block.reference),
        reference_label=block.reference_label,
        marks=[_mark(x, said, k, x_axis, frame) for k, (x, said) in enumerate(block.marks)],
        summary=_summary(block),
        rows=[row for one in told for row in _rows(block, one)],
    )


def _x_words(block: Curve, x: float) -> str:
    if block.x_names:
        return dict(block.x_names).get(x, short(x))
    return words(x, TIME) if block.x_unit == TIME else short(x)


def _series(block: Curve, one: Series, number: int, x_axis: Axis, y_axis: Axis) -> SeriesView:
    nothing = (None,) * len(one.x)
    marked = one.marked or (False,) * len(one.x)
    dots: list[Dot | None] = []
    for x, y, low, high, found in zip(
        one.x, one.y, one.low or nothing, one.high or nothing, marked, strict=True
    ):
        at_x, at_y = x_axis.at(x), y_axis.at(y)
        title = f"{one.label}: {words(y, block.y_unit)} at {_x_words(block, x)}"
        dots.append(
            None
            if at_x is None or at_y is None
            else Dot(at_x, at_y, y_axis.at(low), y_axis.at(high), title, found)
        )
    stretches: list[list[Dot]] = [[]]
    for dot in dots:
        if dot is None:
            stretches.append([])
        else:
            stretches[-1].append(dot)
    known = [dot for dot in dots if dot is not None]
    alone = {id(stretch[0]) for stretch in stretches if len(stretch) == 1}
    few = one.points or len(known) <= _MOST_DOTS
    return SeriesView(
        label=one.label,
        number=number,
        points=one.points,
        behind=one.behind,
        paths=[] if one.points else [_path(s) for s in stretches if len(s) > 1],
        bands=[] if one.points else [_band(run) for s in stretches for run in _bounded(s)],
        dots=[dot for dot in known if (few and not one.behind) or dot.marked or id(dot) in alone],
    )


def _path(dots: list[Dot]) -> str:
    return " ".join(f"{dot.x},{dot.y}" for dot in dots)


def _bounded(dots: list[Dot]) -> Iterator[list[Dot]]:
    """Stretches of two or more that all have an interval."""
    for has, run in groupby(dots, lambda dot: dot.low is not None and dot.high is not None):
        found = list(run)
        if has and len(found) > 1:
            yield found


def _band(dots: list[Dot]) -> str:
    above = [f"{dot.x},{dot.high}" for dot in dots]
    return " ".join([*above, *(f"{dot.x},{dot.low}" for dot in reversed(dots))])


def _diagonal(x_axis: Axis, y_axis: Axis) -> tuple[float, float, float, float]:
    low, high = max(x_axis.least, y_axis.least), min(x_axis.most, y_axis.most)
    ends = (x_axis.at(low), y_axis.at(low), x_axis.at(high), y_axis.at(high))
    return tuple(end or 0.0 for end in ends)  # type: ignore[return-value] # two ends, as the type says


def _mark(x: float, said: str, place: int, axis: Axis, frame: Frame) -> Mark:
    at = axis.at(x) or frame.left
    left = at < frame.middle
    return Mark(
        at,
        frame.top + 10 + place % ((frame.floor - frame.top) // _MARK_ROW) * _MARK_ROW,
        said,
        "start" if left else "end",
        round(at + (4 if left else -4), 1),
    )


def _summary(block: Curve) -> str:
    said = []
    for one in block.series:
        if one.behind:
            continue
        known = [(x, y) for x, y in zip(one.x, one.y, strict=True) if y is not None]
        if not known:
            said.append(f"{one.label}: no values.")
            continue
        ends = dict.fromkeys((known[0], known[-1]))
        text = f"{one.label}: " + ", ".join(_point(block, x, y) for x, y in ends)
        for word, chosen in (("lowest", min), ("highest", max)):
            x, y = chosen(known, key=lambda point: point[1])
            if len(known) > 2 and (x, y) not in ends:
                text += f", {word} {_point(block, x, y)}"
        found = sum(one.marked)
        said.append(text + (f", {found} with a finding." if found else "."))
    if block.reference is not None:
        said.append(f"{block.reference_label or 'Line'}: {words(block.reference, block.y_unit)}.")
    said += [f"{mark} at {_x_words(block, x)}." for x, mark in block.marks]
    return " ".join(said)


def _point(block: Curve, x: float, y: float) -> str:
    return f"{words(y, block.y_unit)} at {_x_words(block, x)}"


def _rows(block: Curve, one: Series) -> Iterator[tuple[str, str, str, str]]:
    unit, nothing = block.y_unit, (None,) * len(one.x)
    for x, y, low, high in zip(one.x, one.y, one.low or nothing, one.high or nothing, strict=True):
        between = f"{words(low, unit)} … {words(high, unit)}"
        whole = low is not None and high is not None
        yield one.label, _x_words(block, x), words(y, unit), between if whole else ""

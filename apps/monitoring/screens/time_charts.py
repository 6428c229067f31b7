"""Figures over calendar time, small: a line with its interval, a baseline, marks where it fired."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils.timezone import localtime

from apps.common.drawing.axes import Axis, Tick
from apps.common.numbers import figure

WIDTH, HEIGHT, LEFT, RIGHT, TOP, FLOOR = 400, 170, 48, 390, 12, 136
SPARK_WIDTH, SPARK_HEIGHT = 120, 28
_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class TimePoint:
    """`marked`: something was found in this measurement."""

    at: datetime
    value: float
    low: float | None = None
    high: float | None = None
    marked: bool = False


@dataclass(frozen=True, slots=True)
class Dot:
    x: float
    y: float
    title: str
    marked: bool


@dataclass(frozen=True, slots=True)
class TimeChart:
    """`summary` says in words what is drawn; `number` is the series' colour."""

    title: str
    line: str
    band: str
    dots: list[Dot]
    baseline: float | None
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    summary: str
    number: int
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = RIGHT
    top: int = TOP
    floor: int = FLOOR


@dataclass(frozen=True, slots=True)
class Spark:
    """A line as high as its row; `last` is where it ends, `annotations` where something was
    found."""

    line: str
    last: tuple[float, float]
    annotations: list[tuple[float, float]]
    baseline: float | None
    summary: str
    width: int = SPARK_WIDTH
    height: int = SPARK_HEIGHT


def time_chart(
    title: str,
    points: Sequence[TimePoint],
    *,
    baseline: float | None = None,
    number: int = 1,
    start: datetime | None = None,
    end: datetime | None = None,
) -> TimeChart | None:
    """None without points. `start` and `end` widen the axis, so that charts stand above each other
    in the same time."""
    if not points:
        return None
    times = [one.at for one in points] + [at for at in (start, end) if at is not None]
    first, last = min(times), max(times)
    if last - first < timedelta(minutes=1):
        first, last = first - timedelta(minutes=30), last + timedelta(minutes=30)
    bounds = [x for one in points for x in (one.low, one.high) if x is not None]
    known = [one.value for one in points] + bounds
    y = Axis(known + ([baseline] if baseline is not None else []), FLOOR, TOP)
    ticks = y.ticks
    placed = [(_place(one.at, first, last), one) for one in points]
    whole = [(x, one) for x, one in placed if one.low is not None and one.high is not None]
    band = [f"{x},{y.at(one.high)}" for x, one in whole]
    band += [f"{x},{y.at(one.low)}" for x, one in reversed(whole)]
    few = len(points) <= 60
    dots = [
        Dot(x, y.at(one.value) or 0.0, f"{figure(one.value)}, {_when(one.at)}", one.marked)
        for x, one in placed
        if few or one.marked
    ]
    return TimeChart(
        title=title,
        line=" ".join(f"{x},{y.at(one.value)}" for x, one in placed) if len(placed) > 1 else "",
        band=" ".join(band) if len(whole) > 1 else "",
        dots=dots,
        baseline=y.at(baseline),
        x_ticks=_time_ticks(first, last),
        y_ticks=ticks,
        summary=_summary(title, points, baseline),
        number=number,
    )


def spark(name: str, points: Sequence[TimePoint], *, baseline: float | None = None) -> Spark | None:
    """None for fewer than two points: a line needs them."""
    if len(points) < 2:
        return None
    values = [one.value for one in points]
    axis = Axis(values + ([baseline] if baseline is not None else []), SPARK_HEIGHT - 4, 4)
    step = (SPARK_WIDTH - 8) / (len(points) - 1)
    placed = [(round(4 + k * step, 1), axis.at(value) or 0.0) for k, value in enumerate(values)]
    return Spark(
        line=" ".join(f"{x},{y}" for x, y in placed),
        last=placed[-1],
        annotations=[place for place, one in zip(placed, points, strict=True) if one.marked],
        baseline=axis.at(baseline),
        summary=_summary(name, points, baseline),
    )


def _place(at: datetime, first: datetime, last: datetime) -> float:
    share = (at - first) / (last - first)
    return round(LEFT + (RIGHT - LEFT) * share, 1)


def _time_ticks(first: datetime, last: datetime) -> list[Tick]:
    """At most four; days as dates, shorter spans as times of the day."""
    span = (last - first).total_seconds()
    form = "%H:%M" if span < 2 * _DAY else "%-d %b"
    ticks, seen = [], set()
    for k in range(4):
        at = first + (last - first) * (k / 3)
        label = f"{localtime(at):{form}}"
        if label not in seen:
            seen.add(label)
            ticks.append(Tick(_place(at, first, last), label))
    return ticks


def _when(at: datetime) -> str:
    return f"{localtime(at):%-d %b %Y %H:%M %Z}"


def _summary(name: str, points: Sequence[TimePoint], baseline: float | None) -> str:
    first, last = points[0], points[-1]
    said = f"{name}: {figure(last.value)} on {_when(last.at)}"
    if len(points) > 1:
        values = [one.value for one in points]
        said += (
            f"; {len(points)} measurements since {_when(first.at)}, "
            f"from {figure(min(values))} to {figure(max(values))}"
        )
    marked = sum(one.marked for one in points)
    said += f", {marked} with a finding" if marked else ""
    return said + (f". Baseline {figure(baseline)}." if baseline is not None else ".")

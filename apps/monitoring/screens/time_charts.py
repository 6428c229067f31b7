"""Measurements over calendar time: a curve with its interval and baseline, marked where something
was found; and the same as a line within a row of a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from apps.common.report.axes import TIME, Axis, words
from apps.common.report.blocks import Part, part_of
from measures.blocks import Curve, Series

SPARK_WIDTH, SPARK_HEIGHT = 120, 28


@dataclass(frozen=True, slots=True)
class TimePoint:
    """`marked`: something was found in this measurement."""

    at: datetime
    value: float
    low: float | None = None
    high: float | None = None
    marked: bool = False


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
    start: datetime | None = None,
    end: datetime | None = None,
) -> Part | None:
    """None without points. `start` and `end` widen the axis, so that charts stand above each other
    in the same time."""
    if not points:
        return None
    series = Series(
        label=title,
        x=tuple(one.at.timestamp() for one in points),
        y=tuple(one.value for one in points),
        low=tuple(one.low for one in points),
        high=tuple(one.high for one in points),
        marked=tuple(one.marked for one in points),
    )
    block = Curve(
        title=title,
        series=(series,),
        x_label="When",
        y_label="",
        x_unit=TIME,
        x_range=tuple(at.timestamp() for at in (start, end) if at is not None),
        reference=baseline,
        reference_label="baseline",
    )
    return part_of(block, small=True)


def spark(name: str, points: Sequence[TimePoint], *, baseline: float | None = None) -> Spark | None:
    """None for fewer than two points: a line needs them."""
    if len(points) < 2:
        return None
    values = [one.value for one in points]
    axis = Axis(values + ([baseline] if baseline is not None else []), SPARK_HEIGHT - 4, 4)
    step = (SPARK_WIDTH - 8) / (len(points) - 1)
    placed = [(round(4 + k * step, 1), axis.at(value) or 0.0) for k, value in enumerate(values)]
    marked = [place for place, one in zip(placed, points, strict=True) if one.marked]
    return Spark(
        line=" ".join(f"{x},{y}" for x, y in placed),
        last=placed[-1],
        annotations=marked,
        baseline=axis.at(baseline),
        summary=f"{name}: {words(values[-1])}; {len(values)} measurements from "
        f"{words(min(values))} to {words(max(values))}, {len(marked)} with a finding.",
    )

"""Measurements over calendar time: a curve with its interval and baseline, marked where something
was found; and the same as a line within a row of a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby, islice

from apps.common.report.axes import TIME, Axis, words
from apps.common.report.blocks import Part, part_of
from measures.blocks import Curve, Series

SPARK_WIDTH, SPARK_HEIGHT = 120, 28


@dataclass(frozen=True, slots=True)
class TimePoint:
    """`marked`: something was found in this measurement. `protocol`: the hash of what it was
    measured by, empty where that is not known; no line joins points of two protocols."""

    at: datetime
    value: float
    low: float | None = None
    high: float | None = None
    marked: bool = False
    protocol: str = ""


@dataclass(frozen=True, slots=True)
class Spark:
    """Lines as high as their row, one for each protocol in turn; `last` is where the last one ends,
    `annotations` where something was found."""

    lines: list[str]
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
    in the same time. Where the protocol changes the line is broken, and a mark says so."""
    if not points:
        return None
    parts = by_protocol(points)
    shown: list[TimePoint | None] = []
    for part in parts:
        shown += [None, *part] if shown else part
    times = [
        one.at.timestamp() if one else _between(shown[k - 1], shown[k + 1])
        for k, one in enumerate(shown)
    ]
    series = Series(
        label=title,
        x=tuple(times),
        y=tuple(one.value if one else None for one in shown),
        low=tuple(one.low if one else None for one in shown),
        high=tuple(one.high if one else None for one in shown),
        marked=tuple(bool(one and one.marked) for one in shown),
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
        marks=tuple((part[0].at.timestamp(), "other protocol") for part in parts[1:]),
    )
    return part_of(block, small=True)


def by_protocol(points: Sequence[TimePoint]) -> list[list[TimePoint]]:
    """In order of time: stretches that one protocol measured."""
    return [list(part) for _, part in groupby(points, lambda point: point.protocol)]


def _between(before: TimePoint | None, after: TimePoint | None) -> float:
    """The middle of two moments, in seconds of the Unix epoch."""
    return sum(one.at.timestamp() for one in (before, after) if one) / 2


def spark(name: str, points: Sequence[TimePoint], *, baseline: float | None = None) -> Spark | None:
    """None for fewer than two points: a line needs them."""
    if len(points) < 2:
        return None
    values = [one.value for one in points]
    axis = Axis(values + ([baseline] if baseline is not None else []), SPARK_HEIGHT - 4, 4)
    step = (SPARK_WIDTH - 8) / (len(points) - 1)
    placed = [(round(4 + k * step, 1), axis.at(value) or 0.0) for k, value in enumerate(values)]
    left, lines = iter(placed), []
    for part in by_protocol(points):
        lines.append(" ".join(f"{x},{y}" for x, y in islice(left, len(part))))
    marked = [place for place, one in zip(placed, points, strict=True) if one.marked]
    return Spark(
        lines=lines,
        last=placed[-1],
        annotations=marked,
        baseline=axis.at(baseline),
        summary=f"{name}: {words(values[-1])}; {len(values)} measurements from "
        f"{words(min(values))} to {words(max(values))}, {len(marked)} with a finding.",
    )

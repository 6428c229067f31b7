"""The metric that broke first as a small chart, with its start step marked."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from apps.common.numbers import figure
from apps.common.report.axes import Axis, Tick
from apps.training.metric_blocks import Point
from workers.rules.choices import BY_NAME
from workers.rules.diagnosis import Finding

WIDTH, HEIGHT, LEFT, RIGHT, TOP, FLOOR = 640, 200, 58, 626, 22, 162


@dataclass(frozen=True, slots=True)
class StartChart:
    """`lines` are polylines, cut where there is no number; `broken` are x of those steps."""

    metric: str
    lines: list[str]
    dots: list[tuple[float, float]]
    broken: list[float]
    start: float | None
    start_words: str
    start_anchor: str
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    summary: str
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = RIGHT
    top: int = TOP
    floor: int = FLOOR


def metric_of(rule: str) -> str:
    """The metric a rule reads; empty where it reads none (a contract that ended the run)."""
    known = BY_NAME.get(rule)
    return known.metric if known is not None else ""


def start_chart(finding: Finding, metric: str, points: Sequence[Point]) -> StartChart | None:
    """None where there is nothing to draw."""
    known = [(step, _number(value)) for step, value in points]
    numbers = [(step, value) for step, value in known if value is not None]
    if len(numbers) < 2:
        return None
    x = Axis([step for step, _ in numbers] + [finding.start_step], LEFT, RIGHT)
    y = Axis([value for _, value in numbers], FLOOR, TOP)
    runs = [list(part) for has, part in groupby(known, lambda p: p[1] is not None) if has]
    place = x.at(finding.start_step)
    before = [v for step, v in numbers if step < finding.start_step]
    after = [v for step, v in numbers if step >= finding.start_step]
    return StartChart(
        metric=metric,
        lines=[" ".join(f"{x.at(s)},{y.at(v)}" for s, v in part) for part in runs if len(part) > 1],
        dots=[(x.at(s) or 0.0, y.at(v) or 0.0) for part in runs if len(part) == 1 for s, v in part],
        broken=[x.at(step) or 0.0 for step, value in points if isinstance(value, str)],
        start=place,
        start_words=f"start, step {finding.start_step:,}",
        start_anchor="end" if place and place > (LEFT + RIGHT) / 2 else "start",
        x_ticks=x.ticks,
        y_ticks=y.ticks,
        summary=f"{metric} from step {numbers[0][0]:,} to {numbers[-1][0]:,}: "
        f"{_mean('before', before)}{_mean('from', after)}start at step {finding.start_step:,}.",
    )


def _mean(word: str, values: Sequence[float]) -> str:
    if not values:
        return ""
    mean = math.fsum(values) / len(values)
    return f"mean {figure(mean)} {word} the start{' on' if word == 'from' else ''}, "


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None

"""A group of seeds as its page shows it: rows, figures with their intervals, and band charts.

A mean over seeds is shown with how many seeds it stands on, and no seed is left out in silence.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from apps.common.numbers import figure, fixed
from apps.common.report.axes import Axis, Tick, short
from apps.training.models import Run
from apps.training.selectors.pages import SeedMetric
from measures.estimate import Interval
from workers.contract.metrics import HEADLINES

ENOUGH = 3  # runs: fewer are drawn, and said to be no result
WIDTH, HEIGHT, LEFT, RIGHT, TOP, FLOOR = 480, 250, 58, 466, 12, 208
MOST_POINTS = 150  # of a drawn curve; the CSV has them all


@dataclass(frozen=True, slots=True)
class BandLine:
    """A polyline; `is_whole` where all runs of the group stand behind it."""

    points: str
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class Band:
    lines: list[BandLine]
    bands: list[str]
    seeds: list[str]
    dots: list[tuple[float, float, str]]
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    summary: str
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = RIGHT
    floor: int = FLOOR


@dataclass(frozen=True, slots=True)
class SeedMetricView:
    """One metric: its final mean in words, what each run came to, and its chart."""

    name: str
    label: str
    unit: str
    value: str
    spread: str
    basis: str
    least: str
    greatest: str
    seeds: list[tuple[Run, str]]  # a run and its last figure in words
    band: Band | None
    broken: list[Run]


def seed_metric_views(runs: Sequence[Run], metrics: Sequence[SeedMetric]) -> list[SeedMetricView]:
    known = {run.pk: run for run in runs}
    names = {
        name: headline for headline in HEADLINES.get(runs[0].kind, ()) for name in headline.names
    }
    views = []
    for one in metrics:
        headline = names.get(one.name)
        finals = [
            one.last[run.pk][1]
            for run in runs
            if run.pk in one.last and run.state == Run.State.FINISHED
        ]
        views.append(
            SeedMetricView(
                name=one.name,
                label=headline.title if headline else "",
                unit=headline.said if headline else "",
                value=_mean(one.final),
                spread=_bounds(one.final),
                basis=_basis(one.final, len(runs)),
                least=figure(min(finals)) if finals else "—",
                greatest=figure(max(finals)) if finals else "—",
                seeds=[(run, _last(one, run)) for run in runs],
                band=_band(one, len(runs)),
                broken=[known[key] for key in one.broken],
            )
        )
    return views


def verdict(runs: Sequence[Run]) -> list[str]:
    """What must be said before any mean: how many seeds it stands on, and which are not in it."""
    finished = [run for run in runs if run.state == Run.State.FINISHED]
    lost = [run for run in runs if run.state in (Run.State.FAILED, Run.State.CANCELLED)]
    live = [run for run in runs if run.is_live]
    said = []
    if len(finished) < ENOUGH:
        count = {
            0: "No seed has finished, so there is no final mean",
            1: "One seed has finished",
            2: "Two seeds have finished",
        }[len(finished)]
        said.append(
            f"{count}. One or two seeds are not a result: differences may be chance. "
            "Use at least three, better five."
        )
    if lost:
        words = ", ".join(
            f"seed {run.seed} ({run.state} at step {run.step:,}"
            + (f", {run.failure_kind}" if run.failure_kind else "")
            + ")"
            for run in lost
        )
        said.append(
            f"Not in the final means: {words}. Failed seeds are part of the result: a "
            "configuration that fails on some seeds is not as good as the mean of the others."
        )
    if live:
        words = ", ".join(f"seed {run.seed} ({run.get_state_display()})" for run in live)
        said.append(f"Not in the final means yet: {words}.")
    return said


def csv_rows(metrics: Sequence[SeedMetric], runs: Sequence[Run]) -> Iterator[Mapping[str, Any]]:
    """A row for each metric and step: mean, interval, and every seed's own value."""
    for one in metrics:
        values = {key: dict(points) for key, points in one.curves.items()}
        for step, at in one.steps:
            yield {
                "metric": one.name,
                "step": step,
                "mean": at.value,
                "low": at.low,
                "high": at.high,
                "seeds": at.n,
            } | {f"seed {run.seed}": values.get(run.pk, {}).get(step) for run in runs}


def csv_columns(runs: Sequence[Run]) -> list[str]:
    own = [f"seed {run.seed}" for run in runs]
    return ["metric", "step", "mean", "low", "high", "seeds", *own]


# --- words ---


def _mean(of: Interval) -> str:
    if of.value is None:
        return "—"
    return fixed(of.value, _places(of)) if of.low is not None else figure(of.value)


def _bounds(of: Interval) -> str:
    if of.value is None:
        return ""
    if of.low is None or of.high is None:
        return of.no_interval or ""
    places = _places(of)
    return f"{fixed(of.low, places)} … {fixed(of.high, places)}"


def _places(of: Interval) -> int:
    """Decimals with which an interval of this width is told: three digits of the width."""
    if of.low is None or of.high is None or not 0 < of.high - of.low < float("inf"):
        return 3
    width, places = of.high - of.low, 0
    while width < 100 and places < 6:
        width, places = width * 10, places + 1
    return places


def _basis(of: Interval, runs: int) -> str:
    return f"n = {of.n} of {runs} seeds" if of.n else f"no seed of {runs} has finished with it"


def _last(one: SeedMetric, run: Run) -> str:
    if run.pk not in one.last:
        return "—"
    step, value = one.last[run.pk]
    return f"{figure(value)} at step {step:,}"


# --- geometry ---


def _band(one: SeedMetric, runs: int) -> Band | None:
    """Mean and interval by step, each seed's own line thin behind it. None without two steps."""
    steps = _thinned(one.steps)
    if len(steps) < 2:
        return None
    means = [(step, at.value) for step, at in steps if at.value is not None]
    values = [value for _, value in means]
    values += [value for points in one.curves.values() for _, value in points]
    # Of two seeds the interval is often a hundred times as wide as the curve: it may leave the
    # drawing, and is in the table.
    low, high = min(values), max(values)
    room = (high - low) or abs(high) or 1.0
    bounds = [at.low for _, at in steps if at.low is not None and at.low > low - room]
    bounds += [at.high for _, at in steps if at.high is not None and at.high < high + room]
    x_axis = Axis([float(step) for step, _ in steps], LEFT, RIGHT)
    y_axis = Axis([*values, *bounds], FLOOR, TOP)
    return Band(
        lines=_lines(steps, runs, x_axis, y_axis),
        bands=_bands(steps, x_axis, y_axis),
        seeds=[
            _path([(float(s), v) for s, v in _thinned(points)], x_axis, y_axis)
            for points in one.curves.values()
            if len(points) > 1
        ],
        dots=_dots(means, x_axis, y_axis),
        x_ticks=x_axis.ticks,
        y_ticks=y_axis.ticks,
        summary=_summary(one, steps),
    )


def _dots(
    means: Sequence[tuple[int, float]], x_axis: Axis, y_axis: Axis
) -> list[tuple[float, float, str]]:
    """A mark for each mean, unless there are so many that they would be a line of their own."""
    if len(means) > 40:
        return []
    return [
        (x_axis.at(x) or LEFT, y_axis.at(y) or FLOOR, f"{figure(y)} at step {x:,}")
        for x, y in means
    ]


def _thinned(rows: Sequence[Any]) -> list[Any]:
    stride = max(1, -(-len(rows) // MOST_POINTS))
    kept = list(rows[::stride])
    return kept if not rows or kept[-1] == rows[-1] else [*kept, rows[-1]]


def _lines(
    steps: Sequence[tuple[int, Interval]], runs: int, x_axis: Axis, y_axis: Axis
) -> list[BandLine]:
    """The mean, cut where seeds drop out or come in: there it jumps for that reason alone."""
    lines: list[BandLine] = []
    stretch = [steps[0]]
    for (_, before), now in pairwise(steps):
        if now[1].n != before.n:
            lines.append(_line(stretch, runs, x_axis, y_axis))
            stretch = []
        stretch.append(now)
    lines.append(_line(stretch, runs, x_axis, y_axis))
    return [line for line in lines if " " in line.points]


def _line(
    stretch: Sequence[tuple[int, Interval]], runs: int, x_axis: Axis, y_axis: Axis
) -> BandLine:
    points = [(float(step), at.value) for step, at in stretch if at.value is not None]
    return BandLine(_path(points, x_axis, y_axis), is_whole=stretch[0][1].n == runs)


def _path(points: Sequence[tuple[float, float]], x_axis: Axis, y_axis: Axis) -> str:
    placed = [(x_axis.at(x), y_axis.at(y)) for x, y in points]
    return " ".join(f"{x},{y}" for x, y in placed if x is not None and y is not None)


def _bands(steps: Sequence[tuple[int, Interval]], x_axis: Axis, y_axis: Axis) -> list[str]:
    stretches: list[list[tuple[int, float, float]]] = [[]]
    for step, at in steps:
        if at.low is None or at.high is None:
            stretches.append([])
        else:
            stretches[-1].append((step, at.low, at.high))
    bands = []
    for stretch in stretches:
        if len(stretch) > 1:
            above = [(float(step), high) for step, _, high in stretch]
            below = [(float(step), low) for step, low, _ in reversed(stretch)]
            bands.append(_path([*above, *below], x_axis, y_axis))
    return bands


def _summary(one: SeedMetric, steps: Sequence[tuple[int, Interval]]) -> str:
    (first_step, first), (last_step, last) = steps[0], steps[-1]
    said = (
        f"{one.name}, mean over seeds: {figure(first.value)} at step {short(first_step)} "
        f"({first.n} seeds), {figure(last.value)} at step {short(last_step)} ({last.n} seeds)"
    )
    return f"{said}, 95 % interval {_bounds(last)}." if last.low is not None else f"{said}."

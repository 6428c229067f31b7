"""A group of seeds as its page shows it: rows, figures with their intervals, and band charts.

A mean over seeds is shown with how many seeds it stands on, and no seed is left out in silence.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apps.common.numbers import figure
from apps.common.report.axes import NUMBER, estimate
from apps.common.report.blocks import Part, part_of
from apps.training.models import Run
from apps.training.selectors.pages import SeedMetric
from measures.blocks import Curve, Series
from measures.estimate import Interval
from measures.intervals import t_interval
from workers.config import recipe_config
from workers.contract.metrics import HEADLINES

ENOUGH = 3  # runs: fewer are drawn, and said to be no result
_WIDE = 20  # times the least value: over it a sweep is drawn on a log axis
MOST_POINTS = 150  # of a drawn curve; the CSV has them all


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
    band: Part | None
    broken: list[Run]


def seed_metric_views(runs: Sequence[Run], metrics: Sequence[SeedMetric]) -> list[SeedMetricView]:
    known = {run.pk: run for run in runs}
    names = {
        name: headline for headline in HEADLINES.get(runs[0].kind, ()) for name in headline.names
    }
    views = []
    for one in metrics:
        headline = names.get(one.name)
        finals = _finals(runs, one)
        value, spread = estimate(one.final, NUMBER)
        views.append(
            SeedMetricView(
                name=one.name,
                label=headline.title if headline else "",
                unit=headline.said if headline else "",
                value=value or "—",
                spread=spread,
                basis=_basis(one.final, len(runs)),
                least=figure(min(finals)) if finals else "—",
                greatest=figure(max(finals)) if finals else "—",
                seeds=[(run, _last(one, run)) for run in runs],
                band=_band(one, len(runs)),
                broken=[known[key] for key in one.broken],
            )
        )
    return views


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One combination of the swept settings: its values and runs, and for each of the sweep's
    metrics the mean over its finished runs, the interval, and how many those are."""

    values: list[str]
    runs: list[Run]
    figures: list[tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class SweepView:
    settings: list[str]
    metrics: list[SeedMetricView]
    rows: list[SweepRow]
    charts: list[tuple[SeedMetricView, Part]]


def sweep_of(
    runs: Sequence[Run], metrics: Sequence[SeedMetric], shown: Sequence[SeedMetricView]
) -> SweepView | None:
    """`shown`: views of the metrics, in their order. None where only seeds differ."""
    configs = {run.pk: recipe_config(run.kind, run.config) for run in runs}
    names = sorted({name for config in configs.values() for name in config})
    settings = [
        name for name in names if len({repr(config.get(name)) for config in configs.values()}) > 1
    ]
    if not settings:
        return None
    groups: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault(tuple(configs[run.pk].get(name) for name in settings), []).append(run)
    ordered = sorted(groups.items(), key=lambda one: [_sortable(value) for value in one[0]])
    found = {
        (values, one.name): t_interval(_finals(members, one))
        for values, members in ordered
        for one in metrics
    }
    rows = [
        SweepRow(
            values=[_value(value) for value in values],
            runs=members,
            figures=[_figure(found[values, one.name], members) for one in metrics],
        )
        for values, members in ordered
    ]
    charts = []
    for view in shown:
        of = {values: found[values, view.name] for values, _ in ordered}
        if (part := _sweep_chart(settings, of)) is not None:
            charts.append((view, part))
    return SweepView(settings, list(shown), rows, charts)


def _finals(runs: Sequence[Run], one: SeedMetric) -> list[float]:
    """The last values of those that finished."""
    return [
        one.last[run.pk][1]
        for run in runs
        if run.pk in one.last and run.state == Run.State.FINISHED
    ]


def _figure(of: Interval, runs: Sequence[Run]) -> tuple[str, str, str]:
    value, spread = estimate(of, NUMBER)
    return value or "—", spread or "—", f"{of.n} of {len(runs)}"


def _value(value: Any) -> str:
    return figure(value) if isinstance(value, float) else str(value)


def _sortable(value: Any) -> tuple[int, float, str]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return 0, float(value), ""
    return 1, 0.0, str(value)


def _sweep_chart(settings: Sequence[str], of: Mapping[tuple[Any, ...], Interval]) -> Part | None:
    """The mean by the first setting that is a number, a line for each value of the other one. None
    where no setting is a number, or nothing has finished."""
    numeric = [
        place
        for place, _ in enumerate(settings)
        if all(_sortable(values[place])[0] == 0 for values in of)
    ]
    if not numeric or len(settings) > 2 or all(at.value is None for at in of.values()):
        return None
    along = numeric[0]
    lines: dict[str, list[tuple[float, Interval]]] = {}
    for values, at in of.items():
        rest = [
            f"{name} {_value(value)}"
            for place, (name, value) in enumerate(zip(settings, values, strict=True))
            if place != along
        ]
        lines.setdefault(", ".join(rest) or "mean of its runs", []).append(
            (float(values[along]), at)
        )
    xs = [x for line in lines.values() for x, _ in line]
    return part_of(
        Curve(
            title="",
            series=tuple(
                Series(
                    label=label,
                    x=tuple(x for x, _ in line),
                    y=tuple(at.value for _, at in line),
                    low=tuple(at.low for _, at in line),
                    high=tuple(at.high for _, at in line),
                )
                for label, line in lines.items()
            ),
            x_label=settings[along],
            y_label="",
            log_x=min(xs) > 0 and max(xs) >= _WIDE * min(xs),
            x_names=tuple((x, figure(x)) for x in sorted(set(xs))),
        )
    )


def verdict(runs: Sequence[Run], *, swept: bool = False) -> list[str]:
    """What must be said before any mean: how many seeds it stands on, and which are not in it. Of a
    sweep the table says how many, and runs go by their names."""
    finished = [run for run in runs if run.state == Run.State.FINISHED]
    lost = [run for run in runs if run.state in (Run.State.FAILED, Run.State.CANCELLED)]
    live = [run for run in runs if run.is_live]
    said = []
    if len(finished) < ENOUGH and not swept:
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
            f"{_called(run, swept)} ({run.state} at step {run.step:,}"
            + (f", {run.failure_kind}" if run.failure_kind else "")
            + ")"
            for run in lost
        )
        said.append(
            f"Not in the final means: {words}. Failed seeds are part of the result: a "
            "configuration that fails on some seeds is not as good as the mean of the others."
        )
    if live:
        each = [f"{_called(run, swept)} ({run.get_state_display()})" for run in live]
        words = f"{len(live)} runs" if swept else ", ".join(each)
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


def _called(run: Run, swept: bool) -> str:
    return run.name if swept else f"seed {run.seed}"


def _basis(of: Interval, runs: int) -> str:
    return f"n = {of.n} of {runs} seeds" if of.n else f"no seed of {runs} has finished with it"


def _last(one: SeedMetric, run: Run) -> str:
    if run.pk not in one.last:
        return "—"
    step, value = one.last[run.pk]
    return f"{figure(value)} at step {step:,}"


# --- the chart ---


def _band(one: SeedMetric, runs: int) -> Part | None:
    """Mean and interval by step, each seed's own line thin behind it. None without two steps."""
    steps = _thinned(one.steps)
    if len(steps) < 2:
        return None
    values = [at.value for _, at in steps if at.value is not None]
    values += [value for points in one.curves.values() for _, value in points]
    return part_of(
        Curve(
            title="",
            series=(*_means(steps, runs), *_seeds(one)),
            x_label="step",
            y_label="",
            y_range=_drawn(values, [at for _, at in steps]),
        )
    )


def _means(steps: Sequence[tuple[int, Interval]], runs: int) -> Iterator[Series]:
    """A line for each number of seeds: where seeds drop out the mean jumps for that alone."""
    for n in sorted({at.n for _, at in steps if at.value is not None}, reverse=True):
        shown = [at if at.n == n else None for _, at in steps]
        yield Series(
            label=f"mean of {'all ' if n == runs else ''}{n} {'seed' if n == 1 else 'seeds'}",
            x=tuple(float(step) for step, _ in steps),
            y=tuple(at.value if at else None for at in shown),
            low=tuple(at.low if at else None for at in shown),
            high=tuple(at.high if at else None for at in shown),
        )


def _seeds(one: SeedMetric) -> Iterator[Series]:
    for points in one.curves.values():
        if len(points) > 1:
            steps, values = zip(*_thinned(points), strict=True)
            yield Series(label="", x=tuple(map(float, steps)), y=values, behind=True)


def _drawn(values: Sequence[float], at: Sequence[Interval]) -> tuple[float, float]:
    """Of two seeds the interval is often a hundred times as wide as the curve: it may leave the
    drawing, and is in the table."""
    low, high = min(values), max(values)
    room = (high - low) or abs(high) or 1.0
    ends = [x for one in at for x in (one.low, one.high) if x is not None]
    near = [x for x in ends if low - room < x < high + room]
    return min([low, *near]), max([high, *near])


def _thinned(rows: Sequence[Any]) -> list[Any]:
    stride = max(1, -(-len(rows) // MOST_POINTS))
    kept = list(rows[::stride])
    return kept if not rows or kept[-1] == rows[-1] else [*kept, rows[-1]]

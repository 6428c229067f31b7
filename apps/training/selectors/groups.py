"""Groups of seeds: runs that differ in their seed only, and what their figures come to together."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.db.models import Count

from apps.accounts.models import Project
from apps.common.errors import Missing
from apps.training.headline import metric_names
from apps.training.models import Run
from apps.training.selectors.metrics import metric_series
from measures.estimate import Interval
from measures.intervals import t_interval

EVALUATION = "eval/"  # every metric whose name begins so was measured on held-out data
EVERY_POINT = 10**9
LARGEST = 1e100  # beyond it a square is infinite; a model that measures so has diverged


@dataclass(frozen=True, slots=True)
class SeedFigure:
    """A metric over the runs of a group.

    final: over the last figures of the finished runs; last: {run id: (step, its last number)} of
    every run that has one; steps: (step, interval over the runs that measured there), ascending.
    broken: ids of runs whose figure was no number at some step.
    """

    name: str
    final: Interval
    last: dict[str, tuple[int, float]]
    curves: dict[str, list[tuple[int, float]]]
    steps: list[tuple[int, Interval]]
    broken: list[str]


def group_runs(*, project: Project, group: str) -> list[Run]:
    """The runs of a group by seed, then by age. Raises `Missing`."""
    rows = (
        Run.objects.filter(project=project, group=group) if _askable(group) else Run.objects.none()
    )
    runs = list(rows.select_related("project", "created_by").order_by("seed", "created_at"))
    if not runs:
        raise Missing("There is no such group of seeds in this project.", field="group")
    return runs


def _askable(group: str) -> bool:
    """PostgreSQL refuses to look for a NUL; the empty group is that of all runs without one."""
    return bool(group) and "\x00" not in group


def group_sizes(project: Project, groups: Iterable[str]) -> dict[str, int]:
    """How many runs each of these groups has."""
    rows = Run.objects.filter(project=project, group__in={one for one in groups if one})
    return dict(rows.order_by().values_list("group").annotate(Count("pk")))


def group_figures(runs: Sequence[Run]) -> list[SeedFigure]:
    """The headline and evaluation metrics that any of the runs measured: headlines first.

    A run counts in `final` once it has finished; one that failed or was cancelled has no final
    figure, which the page says by name.
    """
    headlines = metric_names(runs[0].kind)
    places = {name: place for place, name in enumerate(headlines)}
    found = {
        run.pk: metric_series(run=run, names=headlines, prefix=EVALUATION, max_points=EVERY_POINT)
        for run in runs
    }
    names = {name for series in found.values() for name in series}
    order = sorted(names, key=lambda name: (places.get(name, len(places)), name))
    return [_figure(name, runs, found) for name in order]


def _figure(
    name: str, runs: Sequence[Run], found: dict[str, dict[str, list[tuple[int, object]]]]
) -> SeedFigure:
    points = {run.pk: found[run.pk].get(name, []) for run in runs}
    curves = {
        key: [(step, float(value)) for step, value in rows if _is_number(value)]
        for key, rows in points.items()
    }
    last = {key: rows[-1] for key, rows in curves.items() if rows}
    finished = [run.pk for run in runs if run.state == Run.State.FINISHED]
    at: dict[int, list[float]] = {}
    for rows in curves.values():
        for step, value in rows:
            at.setdefault(step, []).append(value)
    return SeedFigure(
        name=name,
        final=t_interval([last[key][1] for key in finished if key in last]),
        last=last,
        curves={key: rows for key, rows in curves.items() if rows},
        steps=[(step, t_interval(values)) for step, values in sorted(at.items())],
        broken=[key for key, rows in points.items() if any(_is_broken(v) for _, v in rows)],
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) < LARGEST


def _is_broken(value: object) -> bool:
    """Measured, and no number that can be averaged; None is a value that was not defined."""
    return value is not None and not _is_number(value)

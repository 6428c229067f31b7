"""Metric points of a run over all its attempts, thinned for a screen."""

from collections.abc import Iterable
from math import inf

from apps.training.models import Run, RunEvent
from apps.training.selectors.checkpoints import attempt_ends

Value = float | str | None  # "nan", "inf", "-inf" as words; None is undefined at that step
Point = tuple[int, Value]


def metric_series(
    *,
    run: Run,
    names: Iterable[str] | None = None,
    prefix: str | None = None,
    max_points: int = 2000,
) -> dict[str, list[Point]]:
    """{name: [(step, value), …]} by step, at most `max_points` each; of all metrics, or of those
    in `names` and those that begin with `prefix`.

    Points of an attempt count up to the step that the next one resumed from, so a run that was
    cut shows no gap and no point twice. A step measured twice in one attempt shows its last value.
    """
    wanted = None if names is None else set(names)
    ends = attempt_ends(run)
    points: dict[str, dict[int, Value]] = {}
    blocks = (
        RunEvent.objects.filter(run=run, type="Metrics")
        .order_by("attempt", "seq")
        .values_list("attempt", "body")
    )
    for attempt, body in blocks.iterator(chunk_size=1000):
        end = ends.get(attempt, inf)
        for name, values in body["values"].items():
            if wanted is None or name in wanted or (prefix and name.startswith(prefix)):
                series = points.setdefault(name, {})
                series.update(
                    (step, value)
                    for step, value in zip(body["steps"], values, strict=True)
                    if step <= end
                )
    return {
        name: thin(sorted(series.items()), max_points)
        for name, series in sorted(points.items())
        if series
    }


def thin(points: list[Point], max_points: int) -> list[Point]:
    """At most `max_points` of them, with the first, the last, and of each stretch between its
    least and greatest value, so a spike of one step is still seen. What is no number is treated
    as the greatest of its stretch: it is what a person must not miss."""
    if len(points) <= max_points:
        return points
    if max_points < 4:
        return points[:: max(1, len(points) - 1)][:max_points]
    inner = points[1:-1]
    stretches = (max_points - 2) // 2
    kept = [points[0]]
    for i in range(stretches):
        stretch = inner[i * len(inner) // stretches : (i + 1) * len(inner) // stretches]
        ends = {stretch.index(low) for low in [min(stretch, key=_height)]}
        ends.add(stretch.index(max(stretch, key=_height)))
        kept += [stretch[k] for k in sorted(ends)]
    return [*kept, points[-1]]


def _height(point: Point) -> float:
    return float(point[1]) if isinstance(point[1], int | float) else inf

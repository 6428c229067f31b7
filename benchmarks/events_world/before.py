"""How points were stored before: each Metrics event is a row with a JSON body, and a page decodes
all of them. Kept as it was, to be measured beside the blocks.

    celery -A benchmarks.events_world.before worker    the event worker, storing in the old way
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Any

from celery.signals import worker_process_init

from config.celery import app  # noqa: F401  (Celery looks for it here)


@contextmanager
def old_storage() -> Iterator[None]:
    """`events_apply` makes a row of each Metrics event."""
    from apps.training.models import RunEvent
    from apps.training.services import applying

    def kept(run: Any, attempt: Any, envelope: Any, at: Any, body: Any) -> RunEvent:
        if isinstance(envelope.event, applying.Metrics):
            applying.check_points(envelope.event)
        return RunEvent(
            run=run,
            attempt=attempt.number,
            seq=attempt.last_seq,
            at=at,
            type=type(envelope.event).__name__,
            body=body,
        )

    new, applying._kept = applying._kept, kept
    try:
        yield
    finally:
        applying._kept = new


@worker_process_init.connect
def _start(**_: Any) -> None:
    old_storage().__enter__()  # for as long as the worker lives


def metric_series(
    *, run: Any, names: Iterable[str] | None = None, max_points: int = 2000, **_: Any
) -> dict[str, list[Any]]:
    from apps.training.models import RunEvent
    from apps.training.selectors.runs import attempt_ends

    wanted = None if names is None else set(names)
    ends = attempt_ends(run)
    points: dict[str, dict[int, Any]] = {}
    blocks = (
        RunEvent.objects.filter(run=run, type="Metrics")
        .order_by("attempt", "seq")
        .values_list("attempt", "body")
    )
    for attempt, body in blocks.iterator(chunk_size=1000):
        end = ends.get(attempt, inf)
        for name, values in body["values"].items():
            if wanted is None or name in wanted:
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


def thin(points: list[Any], max_points: int) -> list[Any]:
    if len(points) <= max_points:
        return points
    inner = points[1:-1]
    stretches = (max_points - 2) // 2
    kept = [points[0]]
    for i in range(stretches):
        stretch = inner[i * len(inner) // stretches : (i + 1) * len(inner) // stretches]
        ends = {stretch.index(low) for low in [min(stretch, key=_height)]}
        ends.add(stretch.index(max(stretch, key=_height)))
        kept += [stretch[k] for k in sorted(ends)]
    return [*kept, points[-1]]


def _height(point: Any) -> float:
    return float(point[1]) if isinstance(point[1], int | float) else inf

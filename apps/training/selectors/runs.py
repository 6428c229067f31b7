"""Reading runs for pages and API."""

from collections.abc import Iterable
from math import inf
from typing import Any

from django.db.models import QuerySet

from apps.accounts.models import Project
from apps.common.errors import Missing
from apps.training.models import PARKED, Run, RunEvent, Sample
from apps.training.selectors.checkpoints import attempt_ends

EVENTS_PAGE = 500
LOG_LINES = 200


def run_list(
    *, project: Project, states: Iterable[str] = (), kinds: Iterable[str] = ()
) -> QuerySet[Run]:
    """Newest first."""
    runs = Run.objects.filter(project=project).select_related("created_by")
    if states := list(states):
        runs = runs.filter(state__in=states)
    if kinds := list(kinds):
        runs = runs.filter(kind__in=kinds)
    return runs


def run_get(*, project: Project, run_id: str) -> Run:
    """Raises `Missing`."""
    run = (
        Run.objects.filter(project=project, pk=run_id)
        .select_related("project", "created_by")
        .first()
    )
    if run is None:
        raise Missing("There is no such run in this project.", field="run")
    return run


def run_events_after(
    *, run: Run, cursor: int = 0, limit: int = EVENTS_PAGE
) -> tuple[list[RunEvent], int]:
    """(events in the order they were committed, cursor for the next call)."""
    events = list(RunEvent.objects.filter(run=run, pk__gt=cursor).order_by("pk")[:limit])
    return events, events[-1].pk if events else cursor


def parked_count(run: Run) -> int:
    """Events of a newer worker that wait until this side is upgraded."""
    return RunEvent.objects.filter(run=run, type=PARKED).count()


def samples(*, run: Run, bucket: str | None = None, limit: int = 50) -> list[Sample]:
    """Latest step first, of one bucket or of all; only steps that count (see `attempt_ends`)."""
    rows = Sample.objects.filter(run=run)
    if bucket is not None:
        rows = rows.filter(bucket=bucket)
    ends = attempt_ends(run)
    kept = (row for row in rows.order_by("-step", "-pk") if row.step <= ends.get(row.attempt, inf))
    return [row for row, _ in zip(kept, range(limit), strict=False)]


def log_tail(*, run: Run, lines: int = LOG_LINES) -> list[dict[str, Any]]:
    """The last `lines` lines of all attempts, oldest first: {attempt, at, level, text}."""
    tail: list[dict[str, Any]] = []
    rows = RunEvent.objects.filter(run=run, type="Log").order_by("-attempt", "-seq")
    for event in rows[:lines].iterator(chunk_size=100):  # each holds at least one line
        said = event.body.get("lines") or []
        for text in reversed(said):
            tail.append(
                {
                    "attempt": event.attempt,
                    "at": event.at,
                    "level": event.body.get("level", "info"),
                    "text": str(text),
                }
            )
        if len(tail) >= lines:
            break
    return tail[:lines][::-1]

"""Runs as their events leave them, without a worker."""

from typing import Any

from django.utils import timezone

from apps.accounts.models import Project, User
from apps.training.models import Run, RunAttempt, RunEvent
from apps.training.services import metrics_store


def run_make(project: Project, *, by: User | None = None, **fields: Any) -> Run:
    """A running drill at step 40 of 100, unless told otherwise."""
    values: dict[str, Any] = {
        "name": "warm-up",
        "kind": "drill",
        "state": "running",
        "attempt": 1,
        "step": 40,
        "total_steps": 100,
        "config": {"steps": 100},
        "started_at": timezone.now(),
        "heard_at": timezone.now(),
    } | fields
    if values["state"] in Run.ENDED_STATES:
        values.setdefault("ended_at", timezone.now())
    if values["state"] == "failed":
        values.setdefault("failure_kind", "bad_data")
    run = Run.objects.create(project=project, created_by=by, **values)
    RunAttempt.objects.create(
        run=run, number=1, opened_at=timezone.now(), environment={"host": "box", "gpus": []}
    )
    return run


def event_add(run: Run, seq: int, type_: str, body: dict[str, Any], attempt: int = 1) -> RunEvent:
    _heard(run, seq, attempt)
    return RunEvent.objects.create(
        run=run, attempt=attempt, seq=seq, at=timezone.now(), type=type_, body=body
    )


def metrics_add(run: Run, seq: int, steps: list[int], **values: list[Any]) -> None:
    _heard(run, seq - 1, 1)
    series = {
        name.replace("__", "/"): list(zip(steps, points, strict=True))
        for name, points in values.items()
    }
    metrics_store(run=run, attempt=1, series=series)


def _heard(run: Run, seq: int, attempt: int) -> None:
    """The attempt's events up to `seq` are in, as after a batch."""
    RunAttempt.objects.filter(run=run, number=attempt, last_seq__lt=seq).update(last_seq=seq)

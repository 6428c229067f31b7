"""Tasks of the web side's workers."""

from typing import Any

from celery import shared_task

from apps.training import services
from workers.contract import wire


@shared_task(name=wire.TASK_RECORD_EVENTS)
def record_events(batch: Any) -> None:
    """A batch from a supervisor (queue `events`). When the database is away it is not
    acknowledged, and comes again."""
    services.batch_receive(batch=batch)


@shared_task(name=wire.TASK_SWEEP_RUNS)
def sweep_runs() -> None:
    """Every few seconds, by the scheduler (queue `default`)."""
    services.runs_sweep()

"""Tasks of the web side's workers."""

import logging
from typing import Any

from celery import shared_task

from apps.training import services
from apps.training.services.scanning import run_scan
from workers.artifacts import StoreUnreachable
from workers.contract import wire

log = logging.getLogger(__name__)


@shared_task(name=wire.TASK_RECORD_EVENTS)
def record_events(batch: Any) -> None:
    """A batch from a supervisor (queue `events`). When the database is away it is not
    acknowledged, and comes again."""
    services.batch_receive(batch=batch)


@shared_task(name=wire.TASK_SCAN_ANSWERS)
def scan_answers(run: str) -> int:
    """Of a run that has ended (queue `imports`)."""
    try:
        return run_scan(run_id=run)
    except StoreUnreachable as error:
        log.warning("run %s waits for the store, to be looked through: %s", run, error)
        return 0


@shared_task(name=wire.TASK_SWEEP_RUNS)
def sweep_runs() -> None:
    """Every few seconds, by the scheduler (queue `default`)."""
    services.runs_sweep()

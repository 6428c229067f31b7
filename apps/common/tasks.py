"""Work of the web side's workers that belongs to no app."""

from celery import shared_task

from apps.common.scratch import scratch_sweep


@shared_task
def sweep_scratch() -> int:
    """Every hour, by the scheduler (queue `default`)."""
    return scratch_sweep()

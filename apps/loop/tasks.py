"""Scheduled work of the circle."""

from celery import shared_task

from apps.loop import selectors, services


@shared_task(name="apps.loop.tasks.queue_fresh_pairs")
def queue_fresh_pairs() -> int:
    """The safety net behind the signal in `apps.py`: pairs whose queueing was cut off."""
    waiting = sorted(selectors.runs_awaiting_queueing())
    for run_id in waiting:
        services.fresh_pairs_try(run_id=run_id)
    return len(waiting)

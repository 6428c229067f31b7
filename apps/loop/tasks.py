"""Work of the circle: by the scheduler, and after its runs."""

from celery import shared_task

from apps.loop import selectors, services
from apps.loop.round_end import round_end_try
from apps.loop.services.rounds import rounds_sweep
from workers.contract import wire


@shared_task(name="apps.loop.tasks.queue_fresh_pairs")
def queue_fresh_pairs() -> int:
    """The safety net behind the signal in `apps.py`: pairs whose queueing was cut off."""
    waiting = sorted(selectors.runs_awaiting_queueing())
    for run_id in waiting:
        services.fresh_pairs_try(run_id=run_id)
    return len(waiting)


@shared_task(name=wire.TASK_END_ROUND)
def end_round(run_id: str) -> None:
    """After an evaluation or the generation of the demo's round: its people, gate and card once all
    its evaluations are done, and its pipeline and next round once its pairs are written."""
    round_end_try(run_id=run_id)


@shared_task(name="apps.loop.tasks.sweep_rounds")
def sweep_rounds() -> int:
    """Start the rounds whose trigger holds and move all that can move."""
    return rounds_sweep()

"""Work of the web side's workers."""

from celery import shared_task

from apps.snapshots.services import freezing
from apps.snapshots.services.selection import selection_replays_run
from workers.contract import wire


@shared_task(name=wire.TASK_FREEZE)
def freeze(snapshot: str) -> str:
    """Make one dataset (queue `imports`)."""
    return freezing.snapshot_run(snapshot=snapshot)


@shared_task(name=wire.TASK_SWEEP_FREEZES)
def sweep_freezes() -> int:
    """Every few seconds, by the scheduler (queue `default`)."""
    return freezing.snapshots_sweep()


@shared_task(name="apps.snapshots.tasks.replay_selections")
def replay_selections() -> int:
    """Every few seconds, by the scheduler (queue `statistics`): replays that somebody asked for."""
    return selection_replays_run()

"""Work of the web side's workers."""

from celery import shared_task

from apps.labeling import services
from workers.contract import wire


@shared_task(name=wire.TASK_RUN_IMPORT)
def run_import(job: str) -> str:
    """Check or bring in one file (queue `imports`)."""
    return services.import_job_run(job=job)


@shared_task(name="apps.labeling.tasks.sweep_comparisons")
def sweep_comparisons() -> int:
    """Contest what nobody is left to vote on, open what somebody is left for again."""
    return services.comparisons_sweep()


@shared_task(name="apps.labeling.tasks.index_comparisons")
def index_comparisons() -> int:
    """Every few seconds, by the scheduler: the words of what was imported since."""
    return services.comparisons_index()


@shared_task(name=wire.TASK_SWEEP_IMPORTS)
def sweep_imports() -> int:
    """Every few seconds, by the scheduler (queue `default`)."""
    return services.import_jobs_sweep()

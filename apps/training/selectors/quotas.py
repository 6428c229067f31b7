"""How much of the machines a project has used, and what it may use.

A project has quotas of its own, which its admins set, and those of the site (PROJECT_SPACE_GB,
PROJECT_GPU_HOURS): the smaller one holds.
"""

from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from apps.accounts.models import Project
from apps.training.models import Run, RunAttempt, RunQuota
from workers.contract.wire import QUEUE_GPU, QUEUE_GPU_LARGE

GPU_QUEUES = (QUEUE_GPU, QUEUE_GPU_LARGE)
PERIOD = timedelta(days=30)  # of GPU hours


def least(*limits: int | None) -> int | None:
    """The smallest limit that there is; None and 0 are none."""
    return min((limit for limit in limits if limit), default=None)


def space_quota(project: Project) -> int | None:
    """Bytes."""
    own = RunQuota.objects.filter(project=project).values_list("space_bytes", flat=True).first()
    return least(own, settings.PROJECT_SPACE_GB * 10**9)


def gpu_hours(
    runs: QuerySet[Run], *, since: datetime | None = None, now: datetime | None = None
) -> float:
    """Hours that processes of these runs had GPUs, attempt by attempt, from `since` on; one that is
    at work counts until now."""
    now = now or timezone.now()
    attempts = RunAttempt.objects.filter(
        run__in=runs, run__queue__in=GPU_QUEUES, opened_at__isnull=False
    )
    if since is not None:
        attempts = attempts.filter(Q(ended_at=None) | Q(ended_at__gt=since))
    rows = attempts.values_list(
        "opened_at", "ended_at", "environment__world_size", F("run__processes")
    )
    seconds = 0.0
    for opened, ended, world, processes in rows:
        began = max(opened, since) if since else opened
        seconds += max(0.0, ((ended or now) - began).total_seconds()) * (world or processes or 1)
    return seconds / 3600


def gpu_hours_used(project_id: str, *, now: datetime | None = None) -> float:
    """Of the last 30 days."""
    now = now or timezone.now()
    return gpu_hours(Run.objects.filter(project=project_id), since=now - PERIOD, now=now)

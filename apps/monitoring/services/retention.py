"""Which old runs are thinned, and which stay whole.

Whole stay: runs that go on; runs with an approved checkpoint, a monitored one, or one that a
watched policy's answers are scored by; the probe a watch's baseline is from; runs with an open
incident; and the newest healthy runs of each kind, with which new runs are compared step by step.
"""

from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import F, Q, Window
from django.db.models.functions import RowNumber
from django.utils import timezone

from apps.monitoring.models import Incident, Watch
from apps.training.models import Checkpoint, Run
from apps.training.selectors.reference import COMPARED_KINDS, MOST_RUNS
from apps.training.services import Thinned, runs_thin

RUNS_AT_ONCE = 20  # a pass; the rest waits for the next one


def points_thin(*, now: datetime | None = None) -> Thinned:
    """One pass. METRICS_KEEP_DAYS = 0 keeps everything."""
    now = now or timezone.now()
    if not settings.METRICS_KEEP_DAYS:
        return Thinned()
    return runs_thin(
        ended_before=now - timedelta(days=settings.METRICS_KEEP_DAYS),
        now=now,
        kept=runs_kept_whole(),
        most_points=settings.METRICS_KEEP_POINTS,
        most=RUNS_AT_ONCE,
    )


def runs_kept_whole() -> set[str]:
    """Ids of ended runs whose every point may still be asked for."""
    relied_on = Checkpoint.objects.filter(
        Q(status=Checkpoint.Status.APPROVED)
        | Q(pk__in=Watch.objects.values("checkpoint"))
        | Q(pk__in=Watch.objects.exclude(reward=None).values("reward"))
    )
    rows = (
        relied_on.values_list("run", flat=True),
        Watch.objects.exclude(baseline_run=None).values_list("baseline_run", flat=True),
        Incident.objects.exclude(state=Incident.State.RESOLVED)
        .exclude(run=None)
        .values_list("run", flat=True),
        _compared_with(),
    )
    return {pk for found in rows for pk in found}


def _compared_with() -> list[str]:
    """The newest healthy runs of each project and kind."""
    newest = Window(
        RowNumber(),
        partition_by=[F("project"), F("kind")],
        order_by=F("created_at").desc(),
    )
    healthy = Run.objects.filter(
        state=Run.State.FINISHED, kind__in=COMPARED_KINDS, about=None, thinned_at=None
    ).exclude(alerts__severity__in=["warning", "critical"])
    rows = healthy.annotate(recency=newest).filter(recency__lte=MOST_RUNS)
    return list(rows.order_by().values_list("pk", flat=True))


def run_uses(run: Run) -> list[str]:
    """What of monitoring would be lost or broken if the run were deleted."""
    models = Checkpoint.objects.filter(run=run)
    watches = Watch.objects.filter(
        Q(checkpoint__in=models) | Q(reward__in=models) | Q(baseline_run=run)
    )
    found = [f"the monitoring of {name} uses it" for name in watches.values_list("name", flat=True)]
    incidents = Incident.objects.filter(Q(run=run) | Q(run__about=run))
    return found + [
        f"the incident {title} is about it" for title in incidents.values_list("title", flat=True)
    ]

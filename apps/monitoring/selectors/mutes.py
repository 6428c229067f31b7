"""Reads: what is muted, and until when."""

from datetime import datetime

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from apps.accounts.models import Project
from apps.monitoring.models import Incident, Mute


def mutes_now(*, project: Project, at: datetime | None = None) -> QuerySet[Mute]:
    """Those in force, the one that ends last first. A mute ends by the clock alone: no job."""
    now = at or timezone.now()
    return (
        Mute.objects.filter(project=project, until__gt=now, ended_at__isnull=True)
        .select_related("run", "by")
        .order_by("-until", "-pk")
    )


def mutes_past(*, project: Project, most: int = 20) -> list[Mute]:
    """Those that ran out or were lifted, newest first."""
    over = Q(until__lte=timezone.now()) | Q(ended_at__isnull=False)
    rows = Mute.objects.filter(over, project=project).select_related("run", "by")
    return list(rows.order_by("-pk")[:most])


def mute_of(incident: Incident) -> Mute | None:
    """The mute that keeps this incident quiet now: of several, the one that ends last."""
    fits = (
        (Q(run__isnull=True) | Q(run=incident.run_id))
        & Q(link__in=("", incident.link))
        & Q(rule__in=("", incident.rule))
    )
    return mutes_now(project=incident.project).filter(fits).first()


def is_muted(now: datetime | None = None) -> Exists:
    """As a condition on incidents, for lists and the bell."""
    return Exists(
        Mute.objects.filter(
            Q(run__isnull=True) | Q(run=OuterRef("run")),
            Q(link="") | Q(link=OuterRef("link")),
            Q(rule="") | Q(rule=OuterRef("rule")),
            project=OuterRef("project"),
            until__gt=now or timezone.now(),
            ended_at__isnull=True,
        )
    )

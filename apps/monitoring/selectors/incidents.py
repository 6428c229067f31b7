"""Reads: the inbox, the bell, one incident, and what was learned from those that are closed."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db.models import Case, Count, Exists, IntegerField, OuterRef, Q, QuerySet, Value, When
from django.utils import timezone

from apps.accounts.models import Project
from apps.common.errors import Missing
from apps.monitoring.models import Channel, Delivery, Incident, IncidentEntry, Mute
from apps.training.models import Run, Sample

# Reads: what is muted, and until when.


def mutes_now(*, project: Project, at: datetime | None = None) -> QuerySet[Mute]:
    """Active ones, the one that ends last first. A mute ends by the clock alone: no job."""
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


STATES = {
    "": "open or acknowledged",
    "open": "open",
    "acknowledged": "acknowledged",
    "resolved": "resolved",
    "any": "any",
}
SORTS = {
    "": "open first, worst first",
    "newest": "newest first",
    "heard": "last seen first",
    "alerts": "most alerts first",
}
_ORDERS: dict[str, tuple[str, ...]] = {
    "": ("place", "-rank", "-opened_at"),
    "newest": ("-opened_at",),
    "heard": ("-heard_at",),
    "alerts": ("-alerts", "-opened_at"),
}
_UNRESOLVED = ~Q(state=Incident.State.RESOLVED)


@dataclass(frozen=True, slots=True)
class IncidentFilters:
    """What the inbox is narrowed to; empty fields narrow nothing but the state."""

    state: str = ""
    severity: str = ""
    link: str = ""
    run: str = ""
    rule: str = ""
    muted: str = ""  # yes, no
    search: str = ""
    sort: str = ""


def incident_get(*, project: Project, incident_id: str, lock: bool = False) -> Incident:
    """Raises `Missing`."""
    rows = Incident.objects.select_related(
        "project", "run", "checkpoint", "acknowledged_by", "resolved_by"
    )
    if lock:
        rows = rows.select_for_update(of=("self",))
    found = rows.filter(project=project, pk=incident_id).first()
    if found is None:
        raise Missing("There is no such incident in this project.", field="incident")
    return found


def incident_shown(*, project: Project, incident_id: str) -> Incident:
    """With `muted`, as in the list. Raises `Missing`."""
    found = incident_get(project=project, incident_id=incident_id)
    return incidents(project=project, filters=IncidentFilters(state="any")).get(pk=found.pk)


def incidents(*, project: Project, filters: IncidentFilters | None = None) -> QuerySet[Incident]:
    """Each with `muted`, whether its notifications are muted now."""
    given = filters or IncidentFilters()
    rows = Incident.objects.filter(project=project).select_related("run", "acknowledged_by")
    if given.state == "":
        rows = rows.filter(_UNRESOLVED)
    elif given.state != "any":
        rows = rows.filter(state=given.state)
    for name in ("severity", "link", "rule"):
        if value := getattr(given, name):
            rows = rows.filter(**{name: value})
    if given.run:
        rows = rows.filter(run_id=given.run)
    if given.search:
        words = Q()
        for name in (
            "title",
            "message",
            "rule",
            "symptom",
            "assumption",
            "root_cause",
            "fix",
            "lesson",
            "run__name",
        ):
            words |= Q(**{f"{name}__icontains": given.search})
        rows = rows.filter(words | Q(pk=given.search) | Q(run_id=given.search))
    rows = rows.annotate(muted=is_muted())
    if given.muted:
        rows = rows.filter(muted=given.muted == "yes")
    whole = IntegerField()
    return rows.annotate(
        rank=Case(
            When(severity="critical", then=Value(2)),
            When(severity="warning", then=Value(1)),
            default=Value(0),
            output_field=whole,
        ),
        place=Case(
            When(state="open", then=Value(0)),
            When(state="acknowledged", then=Value(1)),
            default=Value(2),
            output_field=whole,
        ),
    ).order_by(*_ORDERS[given.sort], "-pk")


def bell_count(project: Project) -> int:
    """Incidents that nobody has resolved and nobody has muted: one look at a partial index."""
    return Incident.objects.filter(_UNRESOLVED, ~is_muted(), project=project).count()


def runs_with_incidents(*, project: Project, most: int = 100) -> list[Run]:
    """For the filter: runs that have any, newest first."""
    rows = Run.objects.filter(project=project, incidents__isnull=False).distinct()
    return list(rows.order_by("-created_at")[:most])


def entries_of(incident: Incident) -> list[IncidentEntry]:
    """The timeline, oldest first. Alerts that nobody was sent stand for themselves in a count:
    of thousands, the first and last hundred."""
    rows = incident.entries.select_related("by", "alert").order_by("at", "pk")
    n = rows.count()
    if n <= 200:
        return list(rows)
    return [*rows[:100], *rows[n - 100 :]]


def checks_of(incident: Incident) -> list[Run]:
    """The checks and experiments that look into its run, newest first."""
    if incident.run_id is None:
        return []
    return list(Run.objects.filter(about=incident.run_id).order_by("-created_at")[:20])


def samples_near(incident: Incident, *, most: int = 3) -> list[Sample]:
    """Answers that the run kept at the start step or right after it; else the last before it."""
    if incident.run_id is None or incident.onset_step is None:
        return []
    rows = Sample.objects.filter(run=incident.run_id)
    after = list(rows.filter(step__gte=incident.onset_step).order_by("step", "pk")[:most])
    return after or list(rows.order_by("-step", "-pk")[:most])


def deliveries_of(incident: Incident) -> list[Delivery]:
    return list(incident.deliveries.select_related("channel").order_by("pk"))


def lessons_of(*, project: Project, rules: Collection[str], most: int = 10) -> list[Incident]:
    """Closed incidents of any of the rules, with what was learned; newest first."""
    return list(_closed(project).filter(rule__in=rules)[:most])


def lessons(
    *, project: Project, rule: str = "", link: str = "", leave_out: str = "", most: int = 10
) -> list[Incident]:
    """Closed incidents of a rule that somebody wrote something about, then those of the stage;
    newest first."""
    rows = _closed(project).exclude(pk=leave_out)
    found = list(rows.filter(rule=rule)[:most]) if rule else []
    if link and len(found) < most:
        found += list(rows.filter(link=link).exclude(rule=rule)[: most - len(found)])
    return found


def _closed(project: Project) -> QuerySet[Incident]:
    rows = Incident.objects.filter(project=project, state=Incident.State.RESOLVED)
    told = rows.exclude(Q(root_cause="", fix="", lesson=""))
    return told.select_related("run", "resolved_by").order_by("-resolved_at")


# Reads: a project's channels, and what was sent to them.

SHOWN = 10  # messages of a channel


def channels(*, project: Project) -> QuerySet[Channel]:
    """Each with how many messages wait, and how many were given up."""
    return (
        Channel.objects.filter(project=project)
        .annotate(
            waiting=Count("deliveries", filter=Q(deliveries__state=Delivery.State.PENDING)),
            given_up=Count("deliveries", filter=Q(deliveries__state=Delivery.State.FAILED)),
            sent=Count("deliveries", filter=Q(deliveries__state=Delivery.State.SENT)),
        )
        .order_by("kind", "address")
    )


def channel_get(*, project: Project, channel_id: int, lock: bool = False) -> Channel:
    """Raises `Missing`."""
    rows = Channel.objects.select_related("project")
    if lock:
        rows = rows.select_for_update(of=("self",), no_key=True)
    found = rows.filter(project=project, pk=channel_id).first()
    if found is None:
        raise Missing("There is no such channel in this project.", field="channel")
    return found


def messages_to(channel: Channel) -> list[Delivery]:
    """The last ones, newest first."""
    return list(channel.deliveries.select_related("incident").order_by("-pk")[:SHOWN])


def mail_missing() -> str:
    """What to say where an e-mail channel cannot reach anybody; empty where it can."""
    if settings.EMAIL_URL:
        return ""
    if not settings.MAIL_READY:
        return "No mail server is configured, so no e-mail is sent. Set EMAIL_URL."
    return (
        "No mail server is configured: e-mails are written as files to the folder mail below "
        "VAR_DIR, and reach nobody. Set EMAIL_URL."
    )


def channels_without_mail() -> int:
    """E-mail channels that are switched on although no mail server is configured."""
    if settings.EMAIL_URL:
        return 0
    return Channel.objects.filter(kind=Channel.Kind.EMAIL, enabled=True).count()

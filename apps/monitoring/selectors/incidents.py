"""Reads: the inbox, the bell, one incident, and what was learned from those that are closed."""

from collections.abc import Collection
from dataclasses import dataclass

from django.db.models import Case, IntegerField, Q, QuerySet, Value, When

from apps.accounts.models import Project
from apps.common.errors import Missing
from apps.monitoring.models import Delivery, Incident, IncidentEntry
from apps.monitoring.selectors.mutes import is_muted
from apps.training.models import Run, Sample

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
    "heard": "last heard of first",
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
class Filters:
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
    return incidents(project=project, filters=Filters(state="any")).get(pk=found.pk)


def incidents(*, project: Project, filters: Filters | None = None) -> QuerySet[Incident]:
    """Each with `muted`, whether nobody is told of it now."""
    given = filters or Filters()
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
        for name in ("title", "message", "rule", "symptom", "assumption", "root_cause", "fix",
                     "lesson", "run__name"):  # fmt: skip
            words |= Q(**{f"{name}__icontains": given.search})
        rows = rows.filter(words | Q(pk=given.search) | Q(run_id=given.search))
    rows = rows.annotate(muted=is_muted())
    if given.muted:
        rows = rows.filter(muted=given.muted == "yes")
    whole = IntegerField()
    return rows.annotate(
        rank=Case(When(severity="critical", then=Value(2)), When(severity="warning", then=Value(1)),
                  default=Value(0), output_field=whole),
        place=Case(When(state="open", then=Value(0)), When(state="acknowledged", then=Value(1)),
                   default=Value(2), output_field=whole),
    ).order_by(*_ORDERS[given.sort], "-pk")  # fmt: skip


def bell_count(project: Project) -> int:
    """Incidents that nobody has resolved and nobody has muted: one look at a partial index."""
    return Incident.objects.filter(_UNRESOLVED, ~is_muted(), project=project).count()


def runs_with_incidents(*, project: Project, most: int = 100) -> list[Run]:
    """For the filter: runs that have any, newest first."""
    rows = Run.objects.filter(project=project, incidents__isnull=False).distinct()
    return list(rows.order_by("-created_at")[:most])


def entries_of(incident: Incident) -> list[IncidentEntry]:
    """The timeline, oldest first. Alerts that nobody was told of stand for themselves in a count:
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
    """Answers that the run kept at the onset or right after it; else the last before it."""
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
    """Closed incidents of a rule that somebody wrote something about, then those of the link;
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

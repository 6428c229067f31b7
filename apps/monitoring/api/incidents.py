"""The API of incidents: read them, say that somebody looks, close them with what was learned."""

from datetime import datetime
from typing import Any, Literal

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema

from apps.accounts.api_auth import needs
from apps.accounts.permissions import STAFF, project_for
from apps.monitoring.models import Incident, IncidentEntry
from apps.monitoring.selectors import incidents as reads
from apps.monitoring.services import incidents as services

router = Router(tags=["incidents"])
BASE = "/projects/{slug}/incidents"


class IncidentOut(Schema):
    id: str
    title: str
    message: str
    severity: str = Field(description="info, warning or critical")
    state: str = Field(description="open, acknowledged or resolved")
    muted: bool = Field(description="whether its notifications are muted now")
    link: str = Field(description="of the chain; may be empty")
    rule: str
    run: str | None
    checkpoint: str | None
    onset_step: int | None
    alerts: int
    opened_at: datetime
    heard_at: datetime
    acknowledged_at: datetime | None
    acknowledged_by: str | None
    resolved_at: datetime | None
    resolved_by: str | None
    symptom: str
    assumption: str
    root_cause: str
    fix: str
    lesson: str

    @classmethod
    def of(cls, row: Incident) -> "IncidentOut":
        return cls(**_values(row, cls))


class EntryOut(Schema):
    kind: str = Field(description="alert, note or state")
    at: datetime
    by: str | None
    body: dict[str, Any]

    @classmethod
    def of(cls, row: IncidentEntry) -> "EntryOut":
        return cls(kind=row.kind, at=row.at, by=_name(row.by), body=row.body)


class IncidentDetailOut(IncidentOut):
    entries: list[EntryOut] = Field(description="its timeline, oldest first; at most 200")


class IncidentPage(Schema):
    count: int
    items: list[IncidentOut]


class LearnedIn(Schema):
    """Fields that are left out stay as they are. A critical incident needs `root_cause` and
    `fix`."""

    symptom: str | None = Field(None, max_length=services.LONGEST)
    assumption: str | None = Field(None, max_length=services.LONGEST)
    root_cause: str | None = Field(None, max_length=services.LONGEST)
    fix: str | None = Field(None, max_length=services.LONGEST)
    lesson: str | None = Field(None, max_length=services.LONGEST)


def _values(row: Incident, schema: type[Schema]) -> dict[str, Any]:
    special = {
        "muted": bool(getattr(row, "muted", False)),
        "run": row.run_id,
        "checkpoint": row.checkpoint_id,
        "acknowledged_by": _name(row.acknowledged_by),
        "resolved_by": _name(row.resolved_by),
    }
    names = [name for name in schema.model_fields if name not in special and name != "entries"]
    return {name: getattr(row, name) for name in names} | special


def _name(user: Any) -> str | None:
    return user.username if user is not None else None


def _detail(project: Any, incident_id: str) -> IncidentDetailOut:
    row = reads.incident_shown(project=project, incident_id=incident_id)
    entries = [EntryOut.of(entry) for entry in reads.entries_of(row)]
    return IncidentDetailOut(**_values(row, IncidentOut), entries=entries)


@router.get(BASE, auth=needs("read"), response=IncidentPage, summary="Incidents, worst first")
def incident_list(
    request: HttpRequest,
    slug: str,
    state: Literal["", "open", "acknowledged", "resolved", "any"] = Query(
        "", description="without it: open and acknowledged ones"
    ),
    severity: Literal["", "info", "warning", "critical"] = "",
    link: str = Query("", max_length=12),
    run: str = Query("", max_length=16),
    rule: str = Query("", max_length=60),
    search: str = Query("", max_length=200),
    sort: Literal["", "newest", "heard", "alerts"] = "",
    limit: int = Query(50, ge=1, le=500),
    offset: int = Query(0, ge=0, le=10**9),
) -> IncidentPage:
    project, _ = project_for(request.user, slug, STAFF)
    filters = reads.IncidentFilters(
        state=state, severity=severity, link=link, run=run, rule=rule, search=search, sort=sort
    )
    rows = reads.incidents(project=project, filters=filters).select_related(
        "acknowledged_by", "resolved_by"
    )
    items = [IncidentOut.of(row) for row in rows[offset : offset + limit]]
    return IncidentPage(count=rows.count(), items=items)


@router.get(
    BASE + "/{incident_id}",
    auth=needs("read"),
    response=IncidentDetailOut,
    summary="One incident with its timeline",
)
def incident_get(request: HttpRequest, slug: str, incident_id: str) -> IncidentDetailOut:
    project, _ = project_for(request.user, slug, STAFF)
    return _detail(project, incident_id)


@router.post(
    BASE + "/{incident_id}/acknowledge",
    auth=needs("train"),
    response=IncidentDetailOut,
    summary="Acknowledge an incident",
)
def incident_acknowledge(request: HttpRequest, slug: str, incident_id: str) -> IncidentDetailOut:
    """The first to say so stays; saying it again changes nothing. Its alerts count as seen."""
    project, _ = project_for(request.user, slug, STAFF)
    services.incident_acknowledge(project=project, incident_id=incident_id, user=request.user)
    return _detail(project, incident_id)


@router.post(
    BASE + "/{incident_id}/resolve",
    auth=needs("train"),
    response=IncidentDetailOut,
    summary="Resolve an incident with its root cause, fix and lesson",
)
def incident_resolve(
    request: HttpRequest, slug: str, incident_id: str, payload: LearnedIn
) -> IncidentDetailOut:
    """Closing it again with the same words changes nothing; with other words it is a conflict."""
    project, _ = project_for(request.user, slug, STAFF)
    learned = {name: text for name, text in payload.dict().items() if text is not None}
    services.incident_resolve(
        project=project, incident_id=incident_id, user=request.user, learned=learned
    )
    return _detail(project, incident_id)

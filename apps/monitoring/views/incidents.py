"""The inbox of incidents, one incident, and what is done about it."""

from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.timezone import localtime
from django.views.decorators.http import require_POST, require_safe

from apps.accounts.permissions import STAFF, project_page
from apps.common import registry
from apps.common.errors import DomainError
from apps.common.http import Request
from apps.monitoring import forms
from apps.monitoring.models import Incident
from apps.monitoring.screens import incidents as screen
from apps.monitoring.selectors import incidents as reads
from apps.monitoring.selectors.incidents import mute_of
from apps.monitoring.selectors.people import project_rule
from apps.monitoring.services import incidents as services
from apps.monitoring.services.alerting import incident_findings
from apps.monitoring.services.channels import incident_mute

PER_PAGE = 50
_KEPT = ("q", "state", "severity", "link", "run", "rule", "muted", "sort", "page")


@require_safe
@project_page(STAFF)
def incident_list(request: Request) -> HttpResponse:
    return _list(request)


def _list(
    request: Request,
    *,
    refused: DomainError | None = None,
    typed: QueryDict | None = None,
    status: int = 200,
) -> HttpResponse:
    filters = forms.filters_of(request.GET)
    page = Paginator(reads.incidents(project=request.project, filters=filters), PER_PAGE).get_page(
        request.GET.get("page")
    )
    narrowed = any(
        getattr(filters, name) for name in ("severity", "link", "run", "rule", "muted", "search")
    )
    context = {
        "page_title": "Incidents",
        "nav": "monitoring",
        "tab": "incidents",
        "filters": filters,
        "page": page,
        "rows": [
            {
                "incident": one,
                "tone": screen.TONES[one.severity],
                "state_tone": screen.STATE_TONES[one.state],
                "stage": screen.stage_name(one.link),
            }
            for one in page
        ],
        "states": reads.STATES.items(),
        "severities": forms.SEVERITIES,
        "stages": screen.stages(),
        "runs": reads.runs_with_incidents(project=request.project),
        "sorts": reads.SORTS.items(),
        "narrowed": narrowed,
        "kept": _kept(request.GET),
        "refused": refused,
        "typed": typed or {},
        "ticked": typed.getlist("incident") if typed else [],
    }
    return render(request, "monitoring/incidents.html", context, status=status)


@require_POST
@project_page(STAFF)
def incidents_bulk(request: Request) -> HttpResponse:
    """Acknowledge or resolve those that are ticked."""
    try:
        said = _bulk(request)
    except DomainError as error:
        return _list(request, refused=error, typed=request.POST, status=error.status)
    messages.success(request, said)
    address = reverse("monitoring:incidents", args=[request.project.slug])
    kept = _kept(request.GET)
    return redirect(f"{address}?{kept}" if kept else address)


def _bulk(request: Request) -> str:
    chosen = forms.chosen_of(request.POST)
    common: dict[str, Any] = {"project": request.project, "user": request.user}
    if request.POST.get("action") == "resolve":
        learned, _ = forms.learned_of(request.POST)
        if not learned.get("root_cause", "").strip():
            raise DomainError("Describe the root cause in a sentence.", field="root_cause")
        learned = {name: text for name, text in learned.items() if text.strip()}
        done, refused = services.incidents_resolve(incident_ids=chosen, learned=learned, **common)
        if refused:
            incident, error = refused[0]
            raise DomainError(
                f"{len(done)} resolved, {len(refused)} still open. {incident.title}: "
                f"{error.message}",
                field=error.field,
            )
        return f"{len(done)} resolved."
    for one in chosen:
        services.incident_acknowledge(incident_id=one, **common)
    return f"{len(chosen)} acknowledged."


@require_safe
@project_page(STAFF)
def incident_detail(request: Request, incident_id: str) -> HttpResponse:
    return _page(request, incident_id)


def _page(
    request: Request,
    incident_id: str,
    *,
    refused: DomainError | None = None,
    typed: dict[str, Any] | None = None,
    status: int = 200,
) -> HttpResponse:
    incident = reads.incident_get(project=request.project, incident_id=incident_id)
    draft = screen.judged(incident, incident_findings(incident))
    checks = reads.checks_of(incident)
    entries = reads.entries_of(incident)
    shown = {
        "incident": incident,
        "tone": screen.TONES[incident.severity],
        "state_tone": screen.STATE_TONES[incident.state],
        "stage": screen.stage_name(incident.link),
        "watch": incident.key.partition(":")[2] if incident.key.startswith("watch:") else "",
        "project_rule": project_rule(incident),
        "is_open": incident.state != Incident.State.RESOLVED,
        "muted": mute_of(incident),
        "judged": draft,
        "fields": screen.learned_fields(incident, draft, typed),
        "checks": checks,
        "samples": reads.samples_near(incident),
        "lines": screen.timeline(entries, reads.deliveries_of(incident), checks),
        "left_out": max(0, incident.alerts - 200) if len(entries) >= 200 else 0,
        "lessons": reads.lessons(
            project=request.project,
            rule=incident.rule,
            link=incident.link,
            leave_out=incident.pk,
        ),
        "playbook": registry.playbook_url(request.project.slug, incident.rule),
        "presets": forms.presets(),
        "refused": refused,
        "typed": typed or {},
        "page_title": incident.title,
        "nav": "monitoring",
    }
    return render(request, "monitoring/incident.html", shown, status=status)


@require_POST
@project_page(STAFF)
def incident_acknowledge(request: Request, incident_id: str) -> HttpResponse:
    services.incident_acknowledge(
        project=request.project, incident_id=incident_id, user=request.user
    )
    return _back(request, incident_id)


@require_POST
@project_page(STAFF)
def incident_note(request: Request, incident_id: str) -> HttpResponse:
    text = forms.text_of(request.POST)
    try:
        services.incident_note(
            project=request.project, incident_id=incident_id, user=request.user, text=text
        )
    except DomainError as error:
        return _refused(request, incident_id, error, {"text": text})
    return _back(request, incident_id, "#timeline")


@require_POST
@project_page(STAFF)
def incident_resolve(request: Request, incident_id: str) -> HttpResponse:
    """Resolve an incident with its root cause, fix and lesson, or only keep what is written so
    far."""
    learned, seen = forms.learned_of(request.POST)
    given = {
        "project": request.project,
        "incident_id": incident_id,
        "user": request.user,
        "learned": learned,
        "seen": seen,
    }
    try:
        if request.POST.get("action") == "save":
            services.incident_write_up(**given)
            messages.success(request, "Kept.")
        else:
            services.incident_resolve(**given)
            messages.success(request, "Resolved.")
    except DomainError as error:
        return _refused(request, incident_id, error, learned)
    return _back(request, incident_id)


@require_POST
@project_page(STAFF)
def incident_silence(request: Request, incident_id: str) -> HttpResponse:
    incident = reads.incident_get(project=request.project, incident_id=incident_id)
    sent = {name: request.POST.get(name, "") for name in ("what", "until", "until_date", "reason")}
    try:
        mute = incident_mute(
            incident=incident,
            user=request.user,
            what=sent["what"],
            until=forms.mute_end(request.POST),
            reason=sent["reason"],
        )
    except DomainError as error:
        return _refused(request, incident_id, error, sent)
    messages.success(request, f"No notifications until {localtime(mute.until):%-d %b %Y %H:%M %Z}.")
    return _back(request, incident_id)


def _refused(
    request: Request, incident_id: str, error: DomainError, typed: dict[str, Any]
) -> HttpResponse:
    """The page again, with the reason beside the field and what was typed kept."""
    if error.status == 404:
        raise error
    status = 422 if error.status == 400 else error.status
    return _page(request, incident_id, refused=error, typed=typed, status=status)


def _back(request: Request, incident_id: str, anchor: str = "") -> HttpResponse:
    return redirect(
        reverse("monitoring:incident", args=[request.project.slug, incident_id]) + anchor
    )


def _kept(sent: QueryDict) -> str:
    kept = QueryDict(mutable=True)
    for name in _KEPT:
        if value := sent.get(name, ""):
            kept[name] = value
    return kept.urlencode()

"""The Diagnosis tab of a run: what broke first, with evidence and the next checks."""

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from apps.accounts.permissions import STAFF, project_page
from apps.common import playbook
from apps.common.errors import Conflict, DomainError, Missing
from apps.common.http import Request
from apps.common.report.blocks import Part
from apps.monitoring.forms import RunImportForm
from apps.monitoring.models import Incident
from apps.monitoring.screens.diagnosis import diagnosis_view, tab_url
from apps.monitoring.screens.next_checks import FILE, ChecksView, checks_view
from apps.monitoring.screens.playbook import entry_view, sections
from apps.monitoring.screens.start_chart import metric_of, start_chart
from apps.monitoring.selectors.checks import experiment_states
from apps.monitoring.selectors.diagnosis import run_diagnosis, trained_kind
from apps.monitoring.selectors.incidents import lessons_of
from apps.monitoring.services.checks import check_launch as launch
from apps.monitoring.services.imports import run_import as store
from apps.monitoring.stages import STAGE_NAMES
from apps.training import selectors
from apps.training.models import Run
from apps.training.selectors.results import report_read
from workers.rules.diagnosis import Finding

CHART_POINTS = 300
CHECK_POLL_S, RUN_POLL_S = 3, 15


@require_safe
@project_page(STAFF)
def diagnosis(request: Request, run_id: str) -> HttpResponse:
    """The tab's fragment, or a page of its own; 204 when nothing has changed since `seen`."""
    run = selectors.run_get(project=request.project, run_id=run_id)
    context = _context(run)
    if request.htmx and request.GET.get("seen") == context["seen"]:
        return HttpResponse(status=204)
    return _shown(request, context)


@require_POST
@project_page(STAFF)
def check_launch(request: Request, run_id: str) -> HttpResponse:
    """Launch one of the next checks; a form's `key` launches once."""
    run = selectors.run_get(project=request.project, run_id=run_id)
    first = _first(run)
    made = launch(
        run=run,
        experiment=request.POST.get("experiment", ""),
        user=request.user,
        key=request.POST.get("key", "")[:64],
        step=first.start_step if first else None,
    )
    if request.htmx:
        return _shown(request, _context(run))
    messages.success(request, f"{made.name} is {made.get_state_display()}.")
    return redirect(tab_url(run))


def _shown(request: Request, context: dict[str, Any]) -> HttpResponse:
    context |= {"page_title": f"Diagnosis of {context['run'].name}", "nav": "runs"}
    template = "_diagnosis" if request.htmx else "diagnosis"
    return render(request, f"monitoring/{template}.html", context)


def _context(run: Run) -> dict[str, Any]:
    if not trained_kind(run):
        return {"run": run, "view": None, "seen": "", "every": 0}
    found = run_diagnosis(run)
    view = diagnosis_view(run, found)
    first = view.first.finding if view.first else None
    checks = _checks(run, first)
    return {
        "run": run,
        "view": view,
        "chart": _chart(run, first) if first else None,
        "checks": checks,
        "incident": Incident.objects.filter(run=run).exclude(state=Incident.State.RESOLVED).first(),
        "seen": f"{found.at:.3f}-{checks.seen}",
        "every": CHECK_POLL_S if checks.any_live else RUN_POLL_S if run.is_live else 0,
    }


def _first(run: Run) -> Finding | None:
    said = run_diagnosis(run).verdict if trained_kind(run) else None
    return said.first if said else None


def _checks(run: Run, first: Finding | None) -> ChecksView:
    """An imported run has left nothing that a check could look at."""
    if run.kind == Run.Kind.IMPORTED:
        return checks_view(first, [], {})
    states = experiment_states(run, step=first.start_step if first else None)
    ended = [one.run for one in states if one.run is not None and not one.run.is_live]
    reports = {one.pk: report_read(one, FILE, version=None).data for one in ended}
    return checks_view(first, states, reports)


def _chart(run: Run, first: Finding) -> Part | None:
    metric = metric_of(first.rule)
    if not metric:
        return None
    points = selectors.metric_series(run=run, names=[metric], max_points=CHART_POINTS)
    return start_chart(first, metric, points.get(metric, []))


# The playbook: found by words, by stage, or from the rule that fired.


@require_safe
@project_page(STAFF)
def playbook_list(request: Request) -> HttpResponse:
    words, link = request.GET.get("q", "").strip()[:200], request.GET.get("link", "")
    found = playbook.search(words, stage=link)
    context = {
        "page_title": "Playbook",
        "nav": "monitoring",
        "search": words,
        "link": link,
        "stages": STAGE_NAMES.items(),
        "run": _run(request),
        "found": found if words else [],
        "sections": [] if words else sections(found),
        "n": len(found),
        "filtered": bool(words or link),
    }
    return render(request, "monitoring/playbook.html", context)


@require_safe
@project_page(STAFF)
def playbook_entry(request: Request, entry: str) -> HttpResponse:
    """One entry; with `?run=` its checks become buttons and links of that run."""
    known = playbook.pages().get(entry)
    if known is None:
        raise Missing("There is no such entry in the playbook.", field="entry")
    run = _run(request)
    context = {
        "page_title": known.title,
        "nav": "monitoring",
        "run": run,
        "entry": entry_view(known, run),
        "lessons": lessons_of(project=request.project, rules=known.rules),
    }
    return render(request, "monitoring/playbook_entry.html", context)


def _run(request: Request) -> Run | None:
    run_id = request.GET.get("run", "")
    return selectors.run_get(project=request.project, run_id=run_id) if run_id else None


# Uploading the metrics of a run that was trained elsewhere.


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def run_import(request: Request) -> HttpResponse:
    """The form; a POST stores the run and leads to its diagnosis."""
    if request.method != "POST":
        return _page(request, RunImportForm())
    form = RunImportForm(request.POST, request.FILES)
    if not form.is_valid():
        return _page(request, form)
    file = form.cleaned_data["file"]
    try:
        run = store(
            project=request.project,
            user=request.user,
            file_name=file.name,
            data=file.read(),
            trained_as=form.cleaned_data["trained_as"],
            name=form.cleaned_data["name"],
        )
    except DomainError as error:
        return _page(request, form, error=error)
    figures = f"{run.summary['points']:,} points of {run.summary['metrics']:,} metrics"
    messages.success(request, f"{figures} were imported ({run.summary['format']}).")
    return redirect(tab_url(run))


def _page(request: Request, form: RunImportForm, error: DomainError | None = None) -> HttpResponse:
    known = ""
    if isinstance(error, Conflict) and isinstance(error.details, dict):
        known = reverse("training:run", args=[request.project.slug, error.details["run"]])
    rows = error.details if error and isinstance(error.details, list) else []
    if error and len(rows) < 2:
        form.add_error("file", error.message)
        rows = []
    elif error:
        form.add_error("file", "Nothing was imported: some rows are wrong. They are listed below.")
    context = {
        "page_title": "Import a run",
        "nav": "runs",
        "form": form,
        "rows": rows,
        "known": known,
    }
    status = 422 if form.errors else 200
    return render(request, "monitoring/run_import.html", context, status=status)

"""The Diagnosis tab of a run: what broke first, with evidence and the next checks."""

from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from apps.accounts.permissions import STAFF, project_page
from apps.common.http import Request
from apps.monitoring.models import Incident
from apps.monitoring.screens.diagnosis import diagnosis_view
from apps.monitoring.screens.onset_chart import OnsetChart, metric_of, onset_chart
from apps.monitoring.selectors.diagnosis import run_diagnosis, trained_kind
from apps.training import selectors
from apps.training.models import Run
from workers.diagnosis import Finding

CHART_POINTS = 300


@require_GET
@project_page(STAFF)
def diagnosis(request: Request, run_id: str) -> HttpResponse:
    """The tab's fragment, or a page of its own; 204 when nothing has changed since `seen`."""
    run = selectors.run_get(project=request.project, run_id=run_id)
    context = _context(run)
    if request.htmx and request.GET.get("seen") == context["seen"]:
        return HttpResponse(status=204)
    context |= {"page_title": f"Diagnosis of {run.name}", "nav": "runs"}
    template = "_diagnosis" if request.htmx else "diagnosis"
    return render(request, f"monitoring/{template}.html", context)


def _context(run: Run) -> dict[str, Any]:
    if not trained_kind(run):
        return {"run": run, "view": None, "seen": "", "every": 0}
    found = run_diagnosis(run)
    view = diagnosis_view(run, found)
    incident = Incident.objects.filter(run=run).exclude(state=Incident.State.RESOLVED).first()
    return {
        "run": run,
        "view": view,
        "chart": _chart(run, view.first.finding) if view.first else None,
        "incident": incident,
        "seen": f"{found.at:.3f}",
        "every": 15 if run.is_live else 0,
    }


def _chart(run: Run, first: Finding) -> OnsetChart | None:
    metric = metric_of(first.rule)
    if not metric:
        return None
    points = selectors.metric_series(run=run, names=[metric], max_points=CHART_POINTS)
    return onset_chart(first, metric, points.get(metric, []))

"""What an evaluation found on prompts that carry checks."""

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from apps.accounts.permissions import READERS, project_page
from apps.common.http import Request
from apps.evaluation.screens.suites import checks_of
from apps.training.selectors import run_get


@require_safe
@project_page(READERS)
def run_checks(request: Request, run_id: str) -> HttpResponse:
    """As the run's tab, or a page of its own."""
    run = run_get(project=request.project, run_id=run_id)
    context = {
        "run": run,
        "checks": checks_of(run.summary.get("regression") or {}),
        "page_title": f"Checks of {run.name}",
        "nav": "runs",
    }
    name = "_run_checks" if request.htmx else "run_checks"
    return render(request, f"evaluation/{name}.html", context)

"""Up to five runs side by side."""

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from apps.accounts.permissions import STAFF, project_page
from apps.common.errors import DomainError, Missing
from apps.common.http import Request
from apps.training.screens import compare as screen
from apps.training.screens.panels import PANELS
from apps.training.selectors.pages import runs_for_list


@require_safe
@project_page(STAFF)
def run_compare(request: Request) -> HttpResponse:
    """`run` names them, as often as there are; of one run, others to compare it with."""
    asked = request.GET.getlist("run")
    context = {"page_title": "Compare runs", "nav": "runs", "most": screen.MOST, "panels": PANELS}
    status = 200
    try:
        runs = screen.runs_asked(request.project, asked)
    except Missing:
        raise
    except DomainError as error:
        runs, status = [], 422
        context["problem"] = error.message
    context |= {"runs": runs} | (screen.compared(runs) if runs else {})
    context["others"] = runs_for_list(project=request.project).exclude(
        pk__in=[run.pk for run in runs]
    )[: screen.OFFERED]
    return render(request, "training/compare.html", context, status=status)

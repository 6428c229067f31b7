"""What an evaluation found on prompts that carry checks, which prompts were trained on, and the
suite that every policy is evaluated on.
"""

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from apps.accounts.permissions import READERS, STAFF, project_page
from apps.common.errors import DomainError
from apps.common.http import Request
from apps.evaluation.forms.suites import AutomaticSuiteForm
from apps.evaluation.screens.judges import suite_words
from apps.evaluation.screens.suites import checks_of
from apps.evaluation.selectors.overlap import overlap_of, overlap_words
from apps.evaluation.selectors.suites import automatic_suite, suite_launches
from apps.evaluation.services import suites as services
from apps.evaluation.services.judge_beside import by_category
from apps.training.selectors import run_get

PER_PAGE = 25


@require_safe
@project_page(READERS)
def run_checks(request: Request, run_id: str) -> HttpResponse:
    """As the run's tab, or a page of its own."""
    run = run_get(project=request.project, run_id=run_id)
    overlap = overlap_of(run)
    context = {
        "run": run,
        "overlap": overlap,
        "overlap_words": overlap_words(overlap),
        "is_evaluation": run.kind == run.Kind.EVALUATE,
        "may_automate": request.role in STAFF,
        "checks": checks_of(run.summary.get("regression") or {}),
        "judged": [suite_words(one) for one in by_category(run)],
        "page_title": f"Checks of {run.name}",
        "nav": "runs",
    }
    name = "_run_checks" if request.htmx else "run_checks"
    return render(request, f"evaluation/{name}.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def automatic(request: Request) -> HttpResponse:
    """`action`: set, stop, or again for a run whose evaluation was refused."""
    project, row = request.project, automatic_suite(request.project)
    action = request.POST.get("action", "")
    form = AutomaticSuiteForm(request.POST if action == "set" else None, project=project, row=row)
    if request.method == "POST" and (action != "set" or form.is_valid()):
        try:
            _act(request, action, form)
        except DomainError as error:
            if action != "set":
                messages.error(request, error.message)
                return redirect("evaluation:automatic_suite", project.slug)
            form.refuse(error)
        else:
            return redirect("evaluation:automatic_suite", project.slug)
    context = {
        "form": form,
        "suite": row,
        "has_suites": form.has_suites,
        "has_models": form.has_models,
        "page": Paginator(suite_launches(project), PER_PAGE).get_page(request.GET.get("page")),
        "page_title": "Suite after every policy run",
        "nav": "runs",
    }
    status = 422 if request.method == "POST" else 200
    return render(request, "evaluation/automatic_suite.html", context, status=status)


def _act(request: Request, action: str, form: AutomaticSuiteForm) -> None:
    if action == "set":
        services.automatic_suite_set(project=request.project, user=request.user, **form.given())
        messages.success(request, "Every policy is evaluated when its training ends.")
    elif action == "again":
        services.suite_try_again(
            project=request.project, run_id=request.POST.get("run", ""), user=request.user
        )
        messages.success(request, "The evaluation is launched.")
    else:
        services.automatic_suite_stop(project=request.project, user=request.user)
        messages.success(request, "No further policy is evaluated by itself.")

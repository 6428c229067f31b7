"""Results that another program measured: of one model with the form, and of a project."""

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from apps.accounts.permissions import READERS, STAFF, project_page
from apps.common.errors import DomainError, Refused
from apps.common.http import Request
from apps.evaluation.formats.outside import LARGEST
from apps.evaluation.forms.outside import OutsideForm
from apps.evaluation.selectors import outside as selectors
from apps.evaluation.services import outside as services
from apps.training.models import Checkpoint
from apps.training.selectors.pages import checkpoint_get
from apps.training.services.kinds import ANSWERING

NAV = {"nav": "models"}


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(READERS)
def outside_results(request: Request, checkpoint_id: str) -> HttpResponse:
    """Of a model; a POST of an engineer imports a file."""
    model = checkpoint_get(project=request.project, checkpoint_id=checkpoint_id)
    may_import = request.role in STAFF and model.run.kind in ANSWERING
    sent = request.method == "POST"
    if sent and request.role not in STAFF:
        raise Refused("An engineer or an admin imports results.")
    form = OutsideForm(request.POST, request.FILES) if sent else OutsideForm()
    if sent and form.is_valid():
        file = form.cleaned_data["file"]
        try:
            made = services.outside_results_import(
                checkpoint=model,
                file_name=file.name,
                data=file.read(LARGEST + 1),
                user=request.user,
            )
        except DomainError as error:
            form.add_error("file", error.message)
        else:
            n = len(made)
            messages.success(request, f"{n} result{'' if n == 1 else 's'} imported.")
            return redirect("evaluation:outside_results", request.project.slug, model.pk)
    context = NAV | {
        "checkpoint": model,
        "form": form,
        "may_import": may_import,
        "panel": panel_of(model),
        "page_title": f"Measured elsewhere: {model.run.name}, step {model.step:,}",
    }
    status = 422 if sent else 200
    return render(request, "evaluation/outside_results.html", context, status=status)


def panel_of(model: Checkpoint) -> dict[str, Any]:
    """What the page of a model shows of them."""
    rows = selectors.outside_of(model)
    return {
        "rows": [
            (row, [(one["name"], selectors.metric_words(one)) for one in row.metrics])
            for row in rows
        ],
        "is_policy": model.run.kind in ANSWERING,
        "checkpoint": model,
    }


@require_safe
@project_page(READERS)
def outside_all(request: Request) -> HttpResponse:
    """Of a project: a table for each protocol, since only results of one may be compared."""
    rows = list(selectors.outside_results(project=request.project)[: selectors.MOST_ROWS])
    context = NAV | {
        "groups": selectors.by_protocol(rows),
        "cut": len(rows) == selectors.MOST_ROWS,
        "page_title": "Measured elsewhere",
    }
    return render(request, "evaluation/outside_all.html", context)


@require_POST
@project_page(STAFF)
def outside_delete(request: Request, result_id: str) -> HttpResponse:
    row = selectors.outside_result_get(project=request.project, result_id=result_id)
    services.outside_result_delete(project=request.project, result_id=result_id, user=request.user)
    messages.success(request, f"The result of {row.task} is deleted.")
    return redirect("evaluation:outside_results", request.project.slug, row.checkpoint_id)

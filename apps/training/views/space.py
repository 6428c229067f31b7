"""What takes the space: runs and datasets by their bytes, as a page and as CSV; its limits, and the
intermediate files of a run removed."""

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpResponse, QueryDict, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from apps.accounts.permissions import ADMIN, STAFF, project_page
from apps.common.http import Request
from apps.common.numbers import filesize
from apps.common.spreadsheet import csv_lines
from apps.training import services
from apps.training.forms.needs import SpaceLimitsForm
from apps.training.screens.run_table import Head
from apps.training.selectors.runs import run_get
from apps.training.selectors.space import SpaceLine, project_space

PER_PAGE = 100
COLUMNS = (
    *("of", "id", "name", "kind", "state", "models", "files", "data", "rest", "total"),
    *("frees", "frees_at"),
)
SORTS: dict[str, tuple[str, Callable[[SpaceLine], Any]]] = {
    "name": ("Run or dataset", lambda line: line.name.casefold()),
    "kind": ("Kind", lambda line: line.kind),
    "state": ("State", lambda line: line.state),
    "models": ("Models", lambda line: line.models),
    "files": ("Files", lambda line: line.files),
    "data": ("Dataset", lambda line: line.data),
    "rest": ("Other", lambda line: line.rest or 0),
    "total": ("Total", lambda line: line.total),
    "frees": ("Intermediate", lambda line: line.frees or 0),
}
TEXTS = frozenset({"name", "kind", "state"})


@require_safe
@project_page(STAFF)
def space(request: Request) -> HttpResponse:
    """`?sort=` names a column, with - for the largest first; `?measure=now` reads every folder
    again."""
    return _page(request)


def _page(request: Request, form: SpaceLimitsForm | None = None) -> HttpResponse:
    found = project_space(request.project, measure=request.GET.get("measure") == "now")
    asked = request.GET.get("sort", "-total")
    if asked.removeprefix("-") not in SORTS:
        asked = "-total"
    key, down = asked.removeprefix("-"), asked.startswith("-")
    lines = sorted(found.lines, key=SORTS[key][1], reverse=down)
    context = {
        "space": found,
        "page": Paginator(lines, PER_PAGE).get_page(request.GET.get("page")),
        "heads": [
            (_head(request.GET, one, words, key, down), "" if one in TEXTS else "num")
            for one, (words, _) in SORTS.items()
        ],
        "limits_form": form or SpaceLimitsForm.of(found.quota, found.keep_days),
        "may_set_limits": request.role == ADMIN,
        "page_title": "Disk space",
        "nav": "fleet",
    }
    return render(request, "training/space.html", context, status=422 if form else 200)


@require_POST
@project_page(frozenset({ADMIN}))
def limits(request: Request) -> HttpResponse:
    form = SpaceLimitsForm(request.POST)
    if not form.is_valid():
        return _page(request, form)
    services.quota_set(project=request.project, user=request.user, **form.limits())
    messages.success(request, "Saved.")
    return redirect("training:space", request.project.slug)


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def intermediates(request: Request, run_id: str) -> HttpResponse:
    """GET says what would be removed of the run, POST removes it."""
    run = run_get(project=request.project, run_id=run_id)
    if request.method == "POST":
        removed = services.intermediates_remove(run=run, user=request.user)
        messages.success(request, f"{filesize(removed.size)} of {run.name} are removed.")
        return redirect("training:space", request.project.slug)
    context = {
        "run": run,
        "removed": services.intermediates_measure(run=run),
        "page_title": f"Remove intermediate files of {run.name}",
        "nav": "fleet",
    }
    return render(request, "training/intermediates.html", context)


@require_safe
@project_page(STAFF)
def space_csv(request: Request) -> StreamingHttpResponse:
    lines = project_space(request.project).lines
    rows = ({name: getattr(line, name) for name in COLUMNS} for line in lines)
    response = StreamingHttpResponse(
        csv_lines(COLUMNS, rows), content_type="text/csv; charset=utf-8"
    )
    name = f"{request.project.slug}-space.csv"
    response["Content-Disposition"] = content_disposition_header(True, name)
    return response


def _head(query: QueryDict, key: str, words: str, by: str, down: bool) -> Head:
    """Sizes are sorted largest first, texts from A; once more turns the order round."""
    query = query.copy()
    query.pop("page", None)
    here = key == by
    query["sort"] = key if (down if here else key in TEXTS) else f"-{key}"
    return Head(
        key, words, query.urlencode(), ("descending" if down else "ascending") if here else ""
    )

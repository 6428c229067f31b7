"""What takes the space: runs and datasets by their bytes, as a page and as CSV."""

from collections.abc import Callable
from typing import Any

from django.core.paginator import Paginator
from django.http import HttpResponse, QueryDict, StreamingHttpResponse
from django.shortcuts import render
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_safe

from apps.accounts.permissions import STAFF, project_page
from apps.common.http import Request
from apps.common.spreadsheet import csv_lines
from apps.training.screens.run_table import Head
from apps.training.selectors.space import SpaceLine, project_space

PER_PAGE = 100
COLUMNS = ("of", "id", "name", "kind", "state", "models", "files", "data", "rest", "total")
SORTS: dict[str, tuple[str, Callable[[SpaceLine], Any]]] = {
    "name": ("Run or dataset", lambda line: line.name.casefold()),
    "kind": ("Kind", lambda line: line.kind),
    "state": ("State", lambda line: line.state),
    "models": ("Models", lambda line: line.models),
    "files": ("Files", lambda line: line.files),
    "data": ("Dataset", lambda line: line.data),
    "rest": ("Other", lambda line: line.rest or 0),
    "total": ("Total", lambda line: line.total),
}
TEXTS = frozenset({"name", "kind", "state"})


@require_safe
@project_page(STAFF)
def space(request: Request) -> HttpResponse:
    """`?sort=` names a column, with - for the largest first."""
    found = project_space(request.project)
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
        "page_title": "Disk space",
        "nav": "fleet",
    }
    return render(request, "training/space.html", context)


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

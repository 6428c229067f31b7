"""The prompts that annotators disagree about most: where the guidelines need a sentence."""

from typing import Any

from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from apps.accounts.permissions import ADMIN, READERS, project_page
from apps.common.http import Request
from apps.labeling.screens.annotators import topics_of
from apps.labeling.selectors import ambiguity

PER_PAGE = 25


@require_safe
@project_page(READERS)
def ambiguous(request: Request) -> HttpResponse:
    """Ranked by prompt, or with `?by=topic` by topic; `topic` and `q` keep some of the prompts."""
    by: ambiguity.By = "topic" if request.GET.get("by") == "topic" else "prompt"
    topic, search = (request.GET.get(name, "").replace("\x00", "") for name in ("topic", "q"))
    search = search.strip()[:200]
    only = None
    if by == "prompt":
        only = ambiguity.prompts_matching(project=request.project, topic=topic, search=search)
    ranking = ambiguity.ranking(project=request.project, by=by, only=only)
    page = Paginator(ranking.rows, PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "page_title": "Most ambiguous prompts",
        "nav": "comparisons",
        "by": by,
        "topic": topic,
        "search": search,
        "topics": topics_of(project=request.project),
        "filtered": only is not None,
        "ranking": ranking,
        "page": page,
        "rows": _rows(page, by),
        "may_publish": request.role == ADMIN,
    }
    return render(request, "labeling/ambiguous.html", context)


def _rows(page: Any, by: ambiguity.By) -> list[dict[str, Any]]:
    first = page.start_index()
    details = ambiguity.prompt_details(prompts=[row.key for row in page]) if by == "prompt" else {}
    return [
        {"rank": rank, "row": row, "details": details.get(row.key)}
        for rank, row in enumerate(page, start=first)
    ]

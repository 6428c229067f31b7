"""Which model is better: the page of results and its files."""

from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from apps.accounts.permissions import READERS, STAFF, project_page
from apps.agreement.screens import results as screen
from apps.agreement.selectors import votes
from apps.agreement.views.reports import csv_response, report_context
from apps.common.http import Request


@require_safe
@project_page(READERS)
def results(request: Request) -> HttpResponse:
    """`controlled=1`: strengths at equal length and without the pull of the left side."""
    report, context = report_context(request)
    controlled = request.GET.get("controlled") == "1"
    figures = screen.models_of(report)
    if figures is not None:
        context |= screen.results(figures, controlled=controlled)
    context |= {
        "page_title": "Results",
        "nav": "results",
        "figures": figures,
        "controlled": controlled,
        "may_import": request.role in STAFF,
    }
    return render(request, "agreement/results.html", context)


@require_safe
@project_page(READERS)
def pairs_csv(request: Request) -> StreamingHttpResponse:
    figures = screen.models_of(votes.report_get(project=request.project))
    rows = screen.pair_rows(figures) if figures else []
    return csv_response(request, "model-pairs", screen.PAIR_COLUMNS, rows)


@require_safe
@project_page(READERS)
def ranking_csv(request: Request) -> StreamingHttpResponse:
    figures = screen.models_of(votes.report_get(project=request.project))
    rows = screen.ranking_rows(figures) if figures else []
    return csv_response(request, "model-ranking", screen.RANKING_COLUMNS, rows)

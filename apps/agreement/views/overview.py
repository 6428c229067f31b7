"""The agreement page."""

from django.contrib import messages
from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from apps.accounts.permissions import READERS, project_page
from apps.agreement.screens import overview as screen
from apps.agreement.screens.statistics import STATISTICS_COLUMNS, statistics_csv_rows
from apps.agreement.selectors import votes
from apps.agreement.services.reports import report_refresh
from apps.agreement.views.reports import csv_response, report_context
from apps.common.http import Request


@require_safe
@project_page(READERS)
def overview(request: Request) -> HttpResponse:
    report, context = report_context(request)
    if report is not None:
        context |= screen.overview(report)
    return render(request, "agreement/overview.html", context | {"page_title": "Agreement"})


@require_POST
@project_page(READERS)
def refresh(request: Request) -> HttpResponse:
    report_refresh(project=request.project)
    messages.success(request, "Agreement was computed again from all current votes.")
    return redirect("agreement:overview", slug=request.project.slug)


@require_safe
@project_page(READERS)
def statistics_csv(request: Request) -> StreamingHttpResponse:
    """Every statistic, the pull of the left side and what labels cost."""
    report = votes.report_get(project=request.project)
    rows = statistics_csv_rows(report) if report else []
    return csv_response(request, "agreement", STATISTICS_COLUMNS, rows)


@require_safe
@project_page(READERS)
def splits_csv(request: Request) -> StreamingHttpResponse:
    """The numbers behind the chart of vote splits."""
    report = votes.report_get(project=request.project)
    columns = ("pattern", "votes", "largest share", "comparisons", "accepted by the rule")
    rows = [
        # The leading quote keeps a spreadsheet from reading "4–1" as a date.
        dict(
            zip(
                columns,
                (
                    f"'{row['pattern']}",
                    row["n_votes"],
                    round(row["share"], 4),
                    row["comparisons"],
                    row["accepted"],
                ),
                strict=True,
            )
        )
        for row in (report.figures["splits"] if report else [])
    ]
    return csv_response(request, "vote-splits", columns, rows)

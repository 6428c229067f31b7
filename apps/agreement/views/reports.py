"""What every page of statistics begins with: the stored report and as of when it is."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.contrib import messages
from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from apps.accounts.permissions import READERS, project_page
from apps.agreement.models import AgreementReport
from apps.agreement.screens import overview as screen
from apps.agreement.screens.statistics import STATISTICS_COLUMNS, statistics_csv_rows, which_votes
from apps.agreement.selectors import votes
from apps.agreement.services.reports import report_refresh
from apps.common.http import Request
from apps.common.spreadsheet import csv_lines


def report_context(request: Request) -> tuple[AgreementReport | None, dict[str, Any]]:
    report = votes.report_get(project=request.project)
    newest = votes.newest_vote_id(project=request.project)
    context: dict[str, Any] = {"nav": "agreement", "report": report, "has_votes": newest > 0}
    if report is not None:
        context |= {
            "newer_votes": newest > report.last_vote_id,
            "which_votes": which_votes(report),
        }
    return report, context


def csv_response(
    request: Request, name: str, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]
) -> StreamingHttpResponse:
    answer = StreamingHttpResponse(csv_lines(columns, rows), content_type="text/csv; charset=utf-8")
    file = f"{request.project.slug}-{name}.csv"
    answer["Content-Disposition"] = f'attachment; filename="{file}"'
    return answer


# The agreement page.


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

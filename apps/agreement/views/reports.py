"""What every page of statistics begins with: the stored report and as of when it is."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.http import StreamingHttpResponse

from apps.agreement.models import AgreementReport
from apps.agreement.screens.statistics import which_votes
from apps.agreement.selectors import votes
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

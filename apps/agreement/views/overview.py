"""The agreement page."""

import csv

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_POST

from apps.accounts.permissions import READERS, project_page
from apps.agreement.screens import overview as screen
from apps.agreement.selectors import votes
from apps.agreement.services.reports import report_refresh
from apps.common.http import Request


@require_GET
@project_page(READERS)
def overview(request: Request) -> HttpResponse:
    report = votes.report_get(project=request.project)
    context = {"page_title": "Agreement", "nav": "agreement", "report": report}
    if report is not None:
        newest = votes.newest_vote_id(project=request.project)
        context |= screen.overview(report) | {"newer_votes": newest > report.last_vote_id}
    return render(request, "agreement/overview.html", context)


@require_POST
@project_page(READERS)
def refresh(request: Request) -> HttpResponse:
    report_refresh(project=request.project)
    messages.success(request, "Agreement was computed again from all current votes.")
    return redirect("agreement:overview", slug=request.project.slug)


@require_GET
@project_page(READERS)
def splits_csv(request: Request) -> HttpResponse:
    """The numbers behind the chart."""
    report = votes.report_get(project=request.project)
    response = HttpResponse(content_type="text/csv; charset=utf-8")
    name = f"{request.project.slug}-vote-splits.csv"
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    writer = csv.writer(response)
    writer.writerow(["pattern", "votes", "largest share", "comparisons", "accepted by the rule"])
    for row in report.figures["splits"] if report else []:
        # The leading quote keeps a spreadsheet from reading "4–1" as a date.
        shown = (f"'{row['pattern']}", row["n_votes"], f"{row['share']:.4f}")
        writer.writerow([*shown, row["comparisons"], row["accepted"]])
    return response

"""What disputes were about, and what judging them anew has changed."""

from collections.abc import Iterator

from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from apps.accounts.permissions import ADMIN, READERS, project_page
from apps.agreement.models import Ruling
from apps.agreement.screens import disputes as screen
from apps.agreement.selectors.causes import cause_counts
from apps.agreement.selectors.disputes import CHOICES, rulings_all
from apps.agreement.selectors.reannotation import batches
from apps.common.http import Request
from apps.common.spreadsheet import csv_lines
from apps.labeling.selectors import guideline_current

_RULING_COLUMNS = (
    "comparison", "id", "action", "cause", "choice", "note", "guideline", "votes_a", "votes_b",
    "votes_tie", "votes_both_bad", "at",
)  # fmt: skip


@require_safe
@project_page(READERS)
def causes(request: Request) -> HttpResponse:
    counts = cause_counts(project=request.project)
    by = "month" if request.GET.get("by") == "month" else "guideline"
    context = {
        "page_title": "Causes of disputes",
        "nav": "disputes",
        "tab": "causes",
        "counts": counts,
        "by": by,
        "chart": screen.causes_chart(counts),
        "over": screen.causes_over(counts, by),
        "legend": [(label, screen.TONES[cause]) for cause, label in screen.CAUSES],
        "may_write": request.role == ADMIN,
    }
    return render(request, "agreement/disputes_causes.html", context)


@require_safe
@project_page(READERS)
def causes_csv(request: Request) -> StreamingHttpResponse:
    """The numbers behind the charts."""
    labels = dict(screen.CAUSES)
    rows = (
        {"month": row.month, "guideline": row.guideline, "cause": labels[row.cause],
         "disputes": row.n}
        for row in cause_counts(project=request.project)
    )  # fmt: skip
    return _csv(request, "dispute-causes", ("month", "guideline", "cause", "disputes"), rows)


@require_safe
@project_page(READERS)
def rulings_csv(request: Request) -> StreamingHttpResponse:
    """Every ruling, without who made it."""

    def rows() -> Iterator[dict[str, object]]:
        for ruling in rulings_all(project=request.project).iterator(2_000):
            votes = ruling["votes_before"]
            yield {
                "comparison": ruling["comparison_id"],
                "id": ruling["comparison__external_id"],
                "action": Ruling.Action(ruling["action"]).label,
                "cause": ruling["cause"],
                "choice": ruling["choice"],
                "note": ruling["note"],
                "guideline": ruling["guideline__version"],
                "at": ruling["at"].isoformat(),
            } | {f"votes_{choice}": votes.get(choice, 0) for choice in CHOICES}

    return _csv(request, "rulings", _RULING_COLUMNS, rows())


@require_safe
@project_page(READERS)
def reannotation(request: Request) -> HttpResponse:
    found = batches(project=request.project)
    context = {
        "page_title": "Re-annotation",
        "nav": "disputes",
        "tab": "reannotation",
        "batches": [screen.batch_shown(batch) for batch in found],
        "newest": guideline_current(project=request.project),
        "may_write": request.role == ADMIN,
    }
    return render(request, "agreement/disputes_reannotation.html", context)


@require_safe
@project_page(READERS)
def reannotation_csv(request: Request) -> StreamingHttpResponse:
    columns = ("guideline", "comparisons", "votes", "votes_wanted", "decided", "contested",
               "ruled", "sent_again", "compared", "before", "before_low", "before_high",
               "expected_unchanged", "after", "after_low", "after_high", "difference",
               "difference_low", "difference_high")  # fmt: skip

    def rows() -> Iterator[dict[str, object]]:
        for batch in batches(project=request.project):
            compared = batch.compared
            yield {
                "guideline": batch.guideline.version, "comparisons": batch.n,
                "votes": batch.votes, "votes_wanted": batch.wanted, "decided": batch.n_settled,
                "contested": batch.n_contested, "ruled": batch.n_ruled,
                "sent_again": batch.n_again, "compared": compared.n,
                "before": compared.before.value, "before_low": compared.before.low,
                "before_high": compared.before.high, "expected_unchanged": compared.expected,
                "after": compared.after.value, "after_low": compared.after.low,
                "after_high": compared.after.high, "difference": compared.difference.value,
                "difference_low": compared.difference.low,
                "difference_high": compared.difference.high,
            }  # fmt: skip

    return _csv(request, "re-annotation", columns, rows())


def _csv(
    request: Request, name: str, columns: tuple[str, ...], rows: object
) -> StreamingHttpResponse:
    response = StreamingHttpResponse(
        csv_lines(columns, rows), content_type="text/csv; charset=utf-8"
    )
    response["Content-Disposition"] = f'attachment; filename="{request.project.slug}-{name}.csv"'
    return response

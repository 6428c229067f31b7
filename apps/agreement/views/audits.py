"""Audits: how far they are, what they found, and where reviewers differed."""

from collections.abc import Iterator

from django.core.paginator import Paginator
from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from apps.accounts.permissions import ADMIN, JUDGES, READERS, project_page
from apps.agreement.screens import audits as screen
from apps.agreement.selectors import audits as reads
from apps.common.http import Request
from apps.common.spreadsheet import csv_lines
from measures.audit import LEAST_REVIEWED
from workers.contract.reasons import reason_words

PER_PAGE = 50
_COLUMNS = (
    "comparison",
    "id",
    "vote",
    "reviewer",
    "votes_decided",
    "differs",
    "decision_differs",
    "voted_at",
    "judged_at",
)
_SHOWN = {
    "differed": "Reviewer differed from the vote",
    "decision": "Reviewer differed from the decision",
    "all": "All audits",
}


@require_safe
@project_page(READERS)
def audits(request: Request) -> HttpResponse:
    sample = reads.audit_sample(project=request.project)
    kappa = reads.kappa_of(project=request.project)
    error = reads.reviewer_error(
        project=request.project, sample=sample, least=LEAST_REVIEWED, kappa=kappa
    )
    found = screen.figures(sample, error, kappa)
    people = Paginator(screen.strata_order(sample), PER_PAGE).get_page(request.GET.get("people"))
    names = reads.names_of({person for person, _ in people}) if request.role == ADMIN else {}
    show = request.GET.get("show") if request.GET.get("show") in _SHOWN else "differed"
    rows = [
        row
        for row in sample.done
        if show == "all" or (row.decision_differs if show == "decision" else row.differs)
    ]
    page = Paginator(rows, PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "page_title": "Audits",
        "nav": "audits",
        "sample": sample,
        "n_sample": len(sample.done) + sample.due,
        "n_done": len(sample.done),
        "since": min((w.since for w in sample.waiting.values() if w.overdue), default=None),
        "headline": screen.headline(found.votes_corrected),
        "chart": screen.chart(found),
        "reviewers": screen.reviewers_said(error, kappa),
        "corrected": found.votes_corrected.not_corrected is None,
        "why_not": reason_words(found.votes_corrected.not_corrected),
        "known": bool(error.source),
        "people": people,
        "strata": screen.strata(sample, people.object_list, names),
        "with_names": request.role == ADMIN,
        "page": page,
        "rows": [(row, screen.WORDS) for row in page],
        "words": screen.WORDS,
        "show": show,
        "shown": [(name, words, name == show) for name, words in _SHOWN.items()],
        "settings": sample.settings,
        "rate": f"{100 * sample.settings.audit_rate:g}",
        "may_audit": request.role in JUDGES,
        "may_set": request.role == ADMIN,
    }
    return render(request, "agreement/audits.html", context)


@require_safe
@project_page(READERS)
def audits_csv(request: Request) -> StreamingHttpResponse:
    """Every audit that was done, without names."""

    def rows() -> Iterator[dict[str, object]]:
        for row in reads.audit_sample(project=request.project).done:
            yield {
                "comparison": row.comparison,
                "id": row.external_id,
                "vote": row.choice,
                "reviewer": row.judged,
                "votes_decided": row.decided,
                "differs": int(row.differs),
                "decision_differs": int(row.decision_differs) if row.decided else "",
                "voted_at": row.voted_at.isoformat(),
                "judged_at": row.judged_at.isoformat(),
            }

    response = StreamingHttpResponse(
        csv_lines(_COLUMNS, rows()), content_type="text/csv; charset=utf-8"
    )
    response["Content-Disposition"] = f'attachment; filename="{request.project.slug}-audits.csv"'
    return response

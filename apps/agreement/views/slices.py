"""Agreement by segment: agreement by slice, and the prompts they read differently."""

from typing import Any
from urllib.parse import urlencode

from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from apps.accounts.models import Project
from apps.accounts.permissions import READERS, project_page
from apps.agreement.screens import slices as screen
from apps.agreement.selectors import votes
from apps.agreement.selectors.wording import words_about
from apps.agreement.views.reports import csv_response, report_context
from apps.common.http import Request
from apps.labeling.selectors import ambiguity

MOST_PROMPTS = 10


@require_safe
@project_page(READERS)
def slices(request: Request) -> HttpResponse:
    """`sort` and `down` order the tables of numbers."""
    report, context = report_context(request)
    sort, down = request.GET.get("sort", ""), request.GET.get("down") == "1"
    if report is not None and report.n_votes:
        context |= screen.slices(report, sort=sort, down=down)
        context |= _ambiguous(request.project)
    context |= {
        "page_title": "Agreement by segment",
        "sort": sort,
        "down": down,
        "columns": [
            {"key": key, "label": label, "url": _sorted_url(key, again=key == sort and not down)}
            for key, label in screen.SORTS.items()
        ],
    }
    return render(request, "agreement/slices.html", context)


def _sorted_url(key: str, *, again: bool) -> str:
    """A second click on a column turns it round."""
    return "?" + urlencode({"sort": key} | ({"down": 1} if again else {}))


def _ambiguous(project: Project) -> dict[str, Any]:
    ranking = ambiguity.ranking(project=project)
    rows = ranking.rows[:MOST_PROMPTS]
    keys = [int(row.key) for row in rows]
    details = ambiguity.prompt_details(prompts=keys)
    words = words_about(project=project, prompts=keys)
    prompts = [
        {"row": row, "details": details[key], "words": [_word(vote) for vote in words.get(key, [])]}
        for row, key in zip(rows, keys, strict=True)
        if key in details
    ]
    return {"prompts": prompts, "n_prompts": ranking.n}


def _word(vote: Any) -> dict[str, Any]:
    return {
        "rationale": vote.rationale[:400],
        "reasons": vote.reasons,
        "flags": [flag.replace("_", " ") for flag in vote.flags],
        "choice_words": vote.get_choice_display(),
        "comparison_id": vote.comparison_id,
    }


@require_safe
@project_page(READERS)
def slices_csv(request: Request) -> StreamingHttpResponse:
    report = votes.report_get(project=request.project)
    rows = screen.csv_rows(report) if report else []
    return csv_response(request, "agreement-slices", screen.CSV_COLUMNS, rows)

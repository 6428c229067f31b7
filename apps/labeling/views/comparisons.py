"""Comparisons, their decisions and the most ambiguous prompts, for reviewers, engineers, admins."""

from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from apps.accounts.permissions import ADMIN, JUDGES, READERS, STAFF, project_page
from apps.common.errors import Conflict, Missing
from apps.common.http import Request
from apps.common.registry import comparison_page, comparison_uses, dispute_page
from apps.common.row_files import download_response
from apps.labeling import exports, selectors, services
from apps.labeling.forms import ComparisonsFilter
from apps.labeling.models import Comparison
from apps.labeling.screens.annotators import topics_of
from apps.labeling.screens.label import turns_shown
from apps.labeling.selectors import ambiguity
from apps.labeling.selectors.comments import thread_of
from apps.labeling.texts import excerpt

PER_PAGE = 50
FORMATS = (("csv", "CSV"), ("jsonl", "JSON Lines"), ("parquet", "Parquet"))
TONES = {"decided": "good", "contested": "warn", "review": "warn", "dropped": "bad"}


@require_safe
@project_page(READERS)
def comparisons(request: Request) -> HttpResponse:
    form = ComparisonsFilter(request.GET)
    wanted = form.wanted()
    found = selectors.comparisons_list(project=request.project, **wanted)
    page = Paginator(found, PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "page_title": "Comparisons",
        "nav": "comparisons",
        "form": form,
        "filtered": any(wanted.values()),
        "query": urlencode(
            {name: request.GET[name] for name in form.fields if request.GET.get(name)}
        ),
        "formats": FORMATS,
        "page": page,
        "rows": [_row(comparison) for comparison in page],
        "progress": selectors.queue_progress(project=request.project),
        "staffing": services.staffing(project=request.project),
        "may_import": request.role in STAFF,
    }
    return render(request, "labeling/comparisons.html", context)


@require_safe
@project_page(READERS)
def results_file(request: Request) -> HttpResponseBase:
    """`?format=jsonl|parquet|csv`, and the page's filters; without them every comparison."""
    sent = exports.results_export(
        project=request.project,
        form=request.GET.get("format", "csv"),
        filters=ComparisonsFilter(request.GET).wanted(),
    )
    return download_response(sent)


@require_safe
@project_page(READERS)
def votes_file(request: Request) -> HttpResponseBase:
    """The votes on these comparisons; admins see names, others numbers."""
    sent = exports.votes_export(
        project=request.project,
        form=request.GET.get("format", "csv"),
        filters=ComparisonsFilter(request.GET).wanted(),
        with_names=request.role == ADMIN,
    )
    return download_response(sent)


def _row(comparison: Comparison) -> dict[str, Any]:
    decision = getattr(comparison, "decision", None)
    return {
        "comparison": comparison,
        "prompt": excerpt(comparison.prompt.messages),
        "tone": TONES.get(comparison.state, ""),
        "decision": decision,
    }


@require_safe
@project_page(READERS)
def comparison(request: Request, comparison_id: int) -> HttpResponse:
    """One comparison in its stored order, the votes on it and what they amount to.

    Reviewers and engineers see annotators as numbers; admins, who settle disputes, see names.
    """
    try:
        found = selectors.comparison_get(project=request.project, comparison=comparison_id)
    except Missing as error:
        raise Http404(error.message) from error
    decision = getattr(found, "decision", None)
    votes = selectors.votes_shown(comparison=found, with_names=request.role == ADMIN)
    context = {
        "page_title": f"Comparison {found.external_id or found.pk}",
        "nav": "comparisons",
        "comparison": found,
        "tone": TONES.get(found.state, ""),
        "decision": decision,
        "tally": _tally(decision),
        "group": _group(found),
        "prompt": turns_shown(found.prompt.messages),
        "panes": [
            {
                "letter": "A",
                "response": found.response_a,
                "turns": turns_shown(found.response_a.messages),
            },
            {
                "letter": "B",
                "response": found.response_b,
                "turns": turns_shown(found.response_b.messages),
            },
        ],
        "votes": votes,
        "n_current": sum(vote.is_current for vote in votes),
        "with_names": request.role == ADMIN,
        "may_drop": request.role == ADMIN and found.state != Comparison.State.DROPPED,
        "may_reopen": request.role == ADMIN
        and found.state in (Comparison.State.DROPPED, Comparison.State.REVIEW),
        "uses": comparison_uses(request.project, found.pk),
        "uses_page": comparison_page(),
        "dispute_page": dispute_page()
        if request.role in JUDGES and found.stratum != Comparison.Stratum.PRACTICE
        else "",
        "skips": list(found.skips.values_list("reason", flat=True)),
        "thread": thread_of(comparison=found, reader=request.user, role=request.role)
        if request.role in JUDGES
        else None,
    }
    return render(request, "labeling/comparison.html", context)


@require_POST
@project_page(frozenset({ADMIN}))
def comparison_state(request: Request, comparison_id: int) -> HttpResponse:
    """Drop a comparison, or put one back that was dropped or sent to review."""
    try:
        found = selectors.comparison_get(project=request.project, comparison=comparison_id)
        if request.POST.get("action") == "drop":
            services.comparison_drop(comparison=found, by=request.user)
            messages.success(request, "Dropped. Nobody gets this comparison any more.")
        else:
            services.comparison_reopen(comparison=found, by=request.user)
            messages.success(request, "Put back.")
    except Missing as error:
        raise Http404(error.message) from error
    except Conflict as error:
        messages.warning(request, error.message)
    return redirect("labeling:comparison", request.project.slug, comparison_id)


def _group(comparison: Comparison) -> str:
    """What splits go by, where it is a word and not the prompt's own hash."""
    prompt = comparison.prompt
    return prompt.topic or ("" if len(prompt.group_key) == 64 else prompt.group_key)


def _tally(decision: Any) -> list[dict[str, Any]]:
    """Votes per choice, with the widths of a bar of 100 parts."""
    if decision is None:
        return []
    counts = [
        ("A", "a", decision.n_a),
        ("Tie", "neutral", decision.n_tie),
        ("Both bad", "neutral", decision.n_both_bad),
        ("B", "b", decision.n_b),
    ]
    total = sum(n for _, _, n in counts)
    parts, x = [], 0.0
    for label, tone, n in counts:
        width = 100 * n / total if total else 0.0
        parts.append({"label": label, "tone": tone, "n": n, "x": x, "width": width})
        x += width
    return parts


# The prompts that annotators disagree about most: where the guidelines need a sentence.

PROMPTS_PER_PAGE = 25


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
    page = Paginator(ranking.rows, PROMPTS_PER_PAGE).get_page(request.GET.get("page"))
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

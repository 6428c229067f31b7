"""Comparisons, their decisions and the most ambiguous prompts, for reviewers, engineers, admins."""

from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import Http404, HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from apps.accounts.permissions import ADMIN, JUDGES, READERS, STAFF, project_page
from apps.common.errors import Conflict, DomainError, Missing, Refused
from apps.common.http import Request
from apps.common.registry import comparison_page, comparison_uses, dispute_page
from apps.common.row_files import download_response
from apps.labeling import exports, selectors, services
from apps.labeling.formats.written_logs import WRITERS
from apps.labeling.forms import BulkForm, ComparisonsFilter, ViewForm
from apps.labeling.models import Comparison
from apps.labeling.screens.annotators import topics_of
from apps.labeling.screens.label import turns_shown
from apps.labeling.selectors import ambiguity, finding
from apps.labeling.selectors.comments import thread_of
from apps.labeling.texts import excerpt

FORMATS = (("csv", "CSV"), ("jsonl", "JSON Lines"), ("parquet", "Parquet"))
TONES = {"decided": "good", "contested": "warn", "review": "warn", "dropped": "bad"}


@require_safe
@project_page(READERS)
def comparisons(request: Request) -> HttpResponse:
    form = _filter(request)
    wanted, sort = form.wanted(), request.GET.get("sort", finding.NEWEST)
    page = finding.comparisons_page(
        project=request.project, wanted=wanted, sort=sort, at=request.GET.get("at", "")
    )
    context = {
        "page_title": "Comparisons",
        "nav": "comparisons",
        "form": form,
        "chips": [
            {"field": name, "label": label, "words": words, "without": _without(request, name)}
            for name, label, words in form.chips()
        ],
        "filtered": bool(wanted),
        "query": urlencode(form.asked()),
        "list": form.address(sort),
        "formats": FORMATS,
        "run_formats": [(form, words) for form, (words, _) in WRITERS.items()],
        "page": page,
        "rows": [_row(comparison) for comparison in page.rows],
        "heads": _heads(request, sort),
        "pending": finding.pending_count(project=request.project),
        "views": finding.views_of(project=request.project, user=request.user),
        "actions": _actions(request),
        "may_import": request.role in STAFF,
    } | selectors.progress(project=request.project, staffing=services.staffing)
    return render(request, "labeling/comparisons.html", context)


HEADS = (
    ("id", "Id", ""),
    ("", "Prompt and answers", ""),
    ("state", "State", ""),
    ("", "Decision", ""),
    ("votes", "Votes", "num"),
    ("priority", "Priority", "num"),
    ("time", "Imported", ""),
)
ACTIONS = {
    "priority": "Set priority",
    "votes": "Ask for more votes",
    "review": "Send to review",
    "drop": "Drop",
}


def _filter(request: Request) -> ComparisonsFilter:
    """With what this project has to choose from; annotators by name for admins alone."""
    choices = {
        kind: [(value, value) for value in values]
        for kind, values in finding.facets_of(project=request.project).items()
    }
    choices["annotator"] = [
        (str(user.pk), str(user) if request.role == ADMIN else f"Annotator {user.pk}")
        for user in finding.voters_of(project=request.project)
    ]
    return ComparisonsFilter(request.GET, choices)


def _without(request: Request, name: str) -> str:
    query = request.GET.copy()
    for gone in (name, "at"):
        query.pop(gone, None)
    return query.urlencode()


def _heads(request: Request, sort: str) -> list[dict[str, str]]:
    """Each head with the address that sorts by it: first descending, then the other way."""
    heads = []
    for name, words, css in HEADS:
        query = request.GET.copy()
        query.pop("at", None)
        query["sort"] = name if sort == f"-{name}" else f"-{name}"
        known = sort.removeprefix("-") == name
        order = ("descending" if sort.startswith("-") else "ascending") if known else ""
        heads.append(
            {"words": words, "css": css, "order": order, "query": query.urlencode() if name else ""}
        )
    return heads


def _actions(request: Request) -> list[tuple[str, str]]:
    roles = services.BULK_ROLES
    return [(name, words) for name, words in ACTIONS.items() if request.role in roles[name]]


def _chosen(data: QueryDict) -> list[int]:
    """The ids that were checked; none of them means all that fit the filter."""
    if data.get("all"):
        return []
    return [int(pk) for pk in data.getlist("id") if pk.isascii() and pk.isdigit() and len(pk) < 19]


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(READERS)
def bulk(request: Request) -> HttpResponse:
    """What an action on many comparisons would do, then do it.

    `id`: those that were checked; with `all`, everything that fits the filter in the address.
    """
    sent = request.POST if request.method == "POST" else request.GET
    only, filters = _chosen(sent), ComparisonsFilter(request.GET)
    action = sent.get("action", "")
    back = _list_address(request, filters)
    if not only and not sent.get("all"):
        messages.warning(request, "Check some comparisons first, or choose all that fit.")
        return redirect(back)
    form, refused = BulkForm(request.POST or None), None
    try:
        if action not in services.BULK_ROLES:
            raise DomainError("Choose what to do.", field="action")
        services.bulk_allowed(project=request.project, action=action, user=request.user)
        ids = services.bulk_selected(project=request.project, wanted=filters.wanted(), only=only)
        if form.is_valid():
            done = services.comparisons_bulk(
                project=request.project, ids=ids, by=request.user, **form.cleaned_data
            )
            messages.success(request, f"{ACTIONS[action]}: {done.n_changed:,} changed.")
            return redirect(back)
    except Refused as error:
        raise PermissionDenied(error.message) from error
    except DomainError as error:
        refused = error
        if error.field not in ("value", "reason") and error.code != "changed":
            messages.warning(request, error.message)
            return redirect(back)
    look = services.bulk_look(ids=ids, action=action, value=_number(sent.get("value", "")))
    context = {
        "page_title": ACTIONS[action],
        "nav": "comparisons",
        "action": action,
        "look": look,
        "only": only,
        "key": request.POST.get("key") or uuid4().hex,
        "typed": sent,
        "refused": refused,
        "query": request.GET.urlencode(),
        "back": back,
    }
    return render(request, "labeling/bulk.html", context, status=refused.status if refused else 200)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


@require_POST
@project_page(READERS)
def views(request: Request) -> HttpResponse:
    """Keep the filter in the address under a name, or delete one."""
    filters = ComparisonsFilter(request.GET)
    try:
        if request.POST.get("delete"):
            services.view_delete(
                project=request.project, view=_key(request.POST["delete"]), by=request.user
            )
            messages.success(request, "The view was deleted.")
        else:
            form = ViewForm(request.POST)
            form.is_valid()
            view = services.view_save(
                project=request.project,
                owner=request.user,
                name=form.cleaned_data.get("name", ""),
                query=filters.address(request.GET.get("sort", finding.NEWEST)),
                is_shared=form.cleaned_data.get("is_shared", False),
            )
            messages.success(request, f"Saved as “{view.name}”.")
    except Refused as error:
        raise PermissionDenied(error.message) from error
    except DomainError as error:
        messages.warning(request, error.message)
    return redirect(_list_address(request, filters))


def _list_address(request: Request, filters: ComparisonsFilter) -> str:
    query = filters.address(request.GET.get("sort", finding.NEWEST))
    return f"{reverse('labeling:comparisons', args=[request.project.slug])}?{query}"


def _key(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


@require_safe
@project_page(READERS)
def results_file(request: Request) -> HttpResponseBase:
    """`?format=jsonl|parquet|csv`, and the page's filters or the `id`s of some comparisons; without
    them every comparison."""
    sent = exports.results_export(
        project=request.project,
        form=request.GET.get("format", "csv"),
        wanted=ComparisonsFilter(request.GET).wanted(),
        only=_chosen(request.GET),
        scrub="scrub" in request.GET,
    )
    return download_response(sent)


@require_safe
@project_page(READERS)
def votes_file(request: Request) -> HttpResponseBase:
    """The votes on these comparisons; admins see names, others pseudonyms. `scrub=1` takes out
    what looks like personal data, `no_remarks=1` leaves out what people wrote."""
    sent = exports.votes_export(
        project=request.project,
        form=request.GET.get("format", "csv"),
        wanted=ComparisonsFilter(request.GET).wanted(),
        with_names=request.role == ADMIN,
        remarks="no_remarks" not in request.GET,
        scrub="scrub" in request.GET,
    )
    return download_response(sent)


@require_safe
@project_page(READERS)
def trajectories_file(request: Request) -> HttpResponseBase:
    """The runs of agents among these comparisons, as other tools read them."""
    sent = exports.trajectories_export(
        project=request.project,
        wanted=ComparisonsFilter(request.GET).wanted(),
        form=request.GET.get("format", "atif"),
    )
    return download_response(sent)


@require_safe
@project_page(READERS)
def steps_file(request: Request) -> HttpResponseBase:
    """The steps that people judged, for process reward models."""
    wanted = ComparisonsFilter(request.GET).wanted()
    return download_response(exports.steps_export(project=request.project, wanted=wanted))


def _row(comparison: Comparison) -> dict[str, Any]:
    decision = getattr(comparison, "decision", None)
    return {
        "comparison": comparison,
        "prompt": excerpt(comparison.prompt.brief),
        "answers": [
            ("a", excerpt(comparison.response_a.brief, 70)),
            ("b", excerpt(comparison.response_b.brief, 70)),
        ],
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
    filters, sort = ComparisonsFilter(request.GET), request.GET.get("sort", finding.NEWEST)
    before, after = finding.comparisons_beside(
        project=request.project, wanted=filters.wanted(), sort=sort, comparison=found
    )
    decision = getattr(found, "decision", None)
    votes = selectors.votes_shown(comparison=found, with_names=request.role == ADMIN)
    context = {
        "page_title": f"Comparison {found.external_id or found.pk}",
        "nav": "comparisons",
        "before": before,
        "after": after,
        "list": filters.address(sort),
        "comparison": found,
        "tone": TONES.get(found.state, ""),
        "decision": decision,
        "tally": _tally(decision),
        "group": _group(found),
        "prompt": turns_shown(found.prompt.brief),
        "panes": [
            {
                "letter": "A",
                "response": found.response_a,
                "turns": turns_shown(found.response_a.brief),
            },
            {
                "letter": "B",
                "response": found.response_b,
                "turns": turns_shown(found.response_b.brief),
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

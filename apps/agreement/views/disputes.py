"""What votes did not settle: the list, one dispute, and what can be done about it."""

from collections.abc import Iterator

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpResponse, QueryDict, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from apps.accounts.permissions import ADMIN, JUDGES, READERS, project_page
from apps.agreement.forms import DisputesFilter, RulingForm, SendAgainForm
from apps.agreement.models import Ruling
from apps.agreement.screens import disputes as screen
from apps.agreement.selectors import disputes as reads
from apps.agreement.selectors.disputes import CHOICES, batches, cause_counts, rulings_all
from apps.agreement.services import rulings
from apps.common.errors import DomainError, Missing
from apps.common.http import Request
from apps.common.spreadsheet import csv_lines
from apps.labeling import selectors as labeling
from apps.labeling.models import Comparison, Slot
from apps.labeling.screens.label import pair_shown
from apps.labeling.selectors import guideline_current
from apps.labeling.services import MOST_AT_ONCE, WHY_LEFT_OUT, rounds_of

PER_PAGE = 50
CAUSE_KEYS = "QWER"
_FILTERS = ("q", "show", "topic", "cause", "ruled")


@require_safe
@project_page(READERS)
def disputes(request: Request) -> HttpResponse:
    form = DisputesFilter(request.GET)
    filters = form.filters()
    ranked = reads.disputes(project=request.project, filters=filters)
    page = Paginator(ranked.ids, PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "page_title": "Disputes",
        "nav": "disputes",
        "tab": "list",
        "form": form,
        "filters": filters,
        "shown": [(name, words, name == filters.show) for name, words in reads.SHOWN.items()],
        "topics": reads.topics_disputed(project=request.project),
        "narrowed": any((filters.topic, filters.cause, filters.ruled, filters.search)),
        "kept": _kept(request.GET),
        "page": page,
        "rows": reads.dispute_rows(ids=list(page), entropy=ranked.entropy),
        "counts": reads.shown_counts(project=request.project),
        "tones": screen.STATE_TONES,
        "may_send": request.role == ADMIN and bool(ranked.ids),
        "hidden": request.role in JUDGES
        and labeling.settings_get(project=request.project).judge_first,
    }
    return render(request, "agreement/disputes.html", context)


@require_safe
@project_page(READERS)
def dispute(request: Request, comparison_id: int) -> HttpResponse:
    return _page(request, _found(request, comparison_id))


@require_POST
@project_page(JUDGES)
def votes_show(request: Request, comparison_id: int) -> HttpResponse:
    """Show the votes before ruling, which is recorded."""
    rulings.dispute_votes_show(comparison=_found(request, comparison_id), by=request.user)
    return redirect(f"{_address(request, comparison_id)}#votes-title")


@require_POST
@project_page(JUDGES)
def rule(request: Request, comparison_id: int) -> HttpResponse:
    """Rule, then show the next dispute of the list one came from."""
    found = _found(request, comparison_id)
    form = RulingForm(request.POST)
    ranked = reads.disputes(project=request.project, filters=DisputesFilter(request.GET).filters())
    try:
        if not form.is_valid():
            name, errors = next(iter(form.errors.items()))
            raise DomainError(errors[0], field=name)
        done = rulings.dispute_rule(comparison=found, by=request.user, **form.cleaned_data)
    except DomainError as error:
        fresh = _found(request, comparison_id)
        return _page(request, fresh, refused=error, typed=request.POST, status=error.status)
    messages.success(request, _said(found, done))
    after = ranked.beside(found.pk)[1]
    return redirect(_address(request, after))


def _said(found: Comparison, done: Ruling) -> str:
    """The sentence that says what was done."""
    name = found.external_id or str(found.pk)
    match done.action:
        case Ruling.Action.ADJUDICATED:
            return f"{name} is settled: {done.get_choice_display()}. {_votes_words(done)}"
        case Ruling.Action.MADE_GOLD:
            return f"{name} is a gold pair now: {done.get_choice_display()}. {_votes_words(done)}"
        case Ruling.Action.SENT_AGAIN:
            n = sum(done.votes_before.values())
            return f"{name} was sent again; its {n} votes stay as history."
        case Ruling.Action.DROPPED:
            return f"{name} is dropped. It can be put back under “Settled by a ruling”."
        case _:
            return f"{name} was put back: its votes decide again."


def _votes_words(ruling: Ruling) -> str:
    """What the votes had been, now that it is ruled."""
    said = {"a": "A", "b": "B", "tie": "tie", "both_bad": "both bad"}
    counted = [f"{said[name]} {n}" for name in CHOICES if (n := ruling.votes_before.get(name, 0))]
    return f"Its votes: {', '.join(counted)}." if counted else "It had no votes."


def _page(
    request: Request,
    found: Comparison,
    *,
    refused: DomainError | None = None,
    typed: QueryDict | None = None,
    status: int = 200,
) -> HttpResponse:
    ranked = reads.disputes(project=request.project, filters=DisputesFilter(request.GET).filters())
    before, after = ranked.beside(found.pk)
    decision = getattr(found, "decision", None)
    votes = labeling.votes_shown(comparison=found, with_names=False)
    current = [vote for vote in votes if vote.is_current]
    history = reads.rulings_of(comparison=found)
    newest = labeling.guideline_current(project=request.project)
    could, why_not = (
        rounds_of(project=request.project, comparisons=[found], guideline=newest)
        if newest
        else ({}, {})
    )
    settings = labeling.settings_get(project=request.project)
    adjudicated = decision is not None and decision.outcome == "adjudicated"
    aside = found.state in (Comparison.State.DROPPED, Comparison.State.REVIEW)
    counts = screen.decision_counts(decision)
    hidden = request.role in JUDGES and reads.votes_hidden(comparison=found, user=request.user)
    context = pair_shown(found.prompt.brief, found.response_a.brief, found.response_b.brief) | {
        "page_title": f"Dispute {found.external_id or found.pk}",
        "nav": "disputes",
        "comparison": found,
        "tone": screen.STATE_TONES.get(found.state, ""),
        "decision": decision,
        "why": screen.why_here(
            found, [] if hidden else [flag for vote in current for flag in vote.flags]
        ),
        "skips": reads.skips_of(comparison=found),
        "tally": screen.tally(counts),
        "n_counted": sum(counts.values()),
        "posteriors": screen.posterior_words(decision),
        "votes": [v for v in votes if v.slot_kind in (Slot.Kind.REGULAR, Slot.Kind.GOLD)],
        "seconds": [v for v in votes if v.slot_kind in (Slot.Kind.REPEAT, Slot.Kind.AUDIT)],
        "former": [v for v in votes if v.slot_kind == Slot.Kind.FORMER],
        "history": history,
        "hidden": hidden,
        "place": ranked.places.get(found.pk, -1) + 1,
        "n_listed": len(ranked.ids),
        "before_url": _address(request, before) if before else "",
        "after_url": _address(request, after) if after else "",
        "list_url": _address(request, None),
        "kept": _kept(request.GET),
        "refused": refused,
        "typed": typed or {},
        "seen": history[0].pk if history else 0,
        "choices": (
            ("a", "A is better", "a", "1"),
            ("tie", "Tie", "", "T"),
            ("b", "B is better", "b", "2"),
            ("both_bad", "Both are bad", "", "X"),
        ),
        "causes": [
            (value, label, key)
            for (value, label), key in zip(screen.CAUSES, CAUSE_KEYS, strict=True)
        ],
        "newest": newest,
        "may_rule": request.role in JUDGES,
        "may_write": request.role == ADMIN,
        "may_settle": found.state != Comparison.State.DROPPED,
        "may_gold": found.state != Comparison.State.DROPPED and found.stratum != "gold",
        "may_reopen": adjudicated or aside,
        "may_send": bool(could),
        "why_not_send": next((WHY_LEFT_OUT[why] for why in why_not), ""),
        "n_before": sum(counts.values()),
        "n_wanted": settings.overlap,
        "gold_share": settings.gold_share,
    }
    return render(request, "agreement/dispute.html", context, status=status)


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(frozenset({ADMIN}))
def send_again(request: Request) -> HttpResponse:
    """Send everything that a filter shows to re-annotation; in numbers first."""
    filters = DisputesFilter(request.GET).filters()
    ranked = reads.disputes(project=request.project, filters=filters)
    form = SendAgainForm(request.POST if request.method == "POST" else None)
    refused: DomainError | None = None
    status = 200
    if request.method == "POST":
        try:
            return _sent(request, ranked.ids[:MOST_AT_ONCE], form)
        except DomainError as error:
            refused, status = error, error.status
    newest = labeling.guideline_current(project=request.project)
    chosen = list(
        Comparison.objects.filter(project=request.project, pk__in=ranked.ids[:MOST_AT_ONCE])
    )
    votes, left_out = (
        rounds_of(project=request.project, comparisons=chosen, guideline=newest)
        if newest
        else ({}, {})
    )
    overlap = labeling.settings_get(project=request.project).overlap
    context = {
        "page_title": "Send to re-annotation",
        "nav": "disputes",
        "newest": newest,
        "n": len(votes),
        "n_votes": sum(sum(counts.values()) for counts in votes.values()),
        "n_wanted": overlap * len(votes),
        "left_out": [(n, WHY_LEFT_OUT[why]) for why, n in left_out.items()],
        "n_listed": len(ranked.ids),
        "over": max(0, len(ranked.ids) - MOST_AT_ONCE),
        "most": MOST_AT_ONCE,
        "causes": [(value, label, "") for value, label in screen.CAUSES],
        "list_url": _address(request, None),
        "kept": _kept(request.GET),
        "words": reads.SHOWN[filters.show],
        "filters": filters,
        "refused": refused,
        "typed": request.POST,
    }
    return render(request, "agreement/disputes_again.html", context, status=status)


def _sent(request: Request, ids: list[int], form: SendAgainForm) -> HttpResponse:
    if not form.is_valid():
        name, errors = next(iter(form.errors.items()))
        said = "Choose the cause of these disputes." if name == "cause" else errors[0]
        raise DomainError(said, field=name)
    given = form.cleaned_data
    sent = rulings.disputes_send_again(
        project=request.project,
        comparisons=ids,
        cause=given["cause"],
        note=given["note"],
        by=request.user,
        version=given["version"],
        expected=rulings.Expected(given["comparisons"], given["votes"]),
    )
    messages.success(
        request,
        f"{len(sent.votes):,} comparisons were sent again: {sent.n_votes:,} votes stay as history, "
        f"and at least {sent.n_wanted:,} new votes are needed.",
    )
    return redirect("agreement:reannotation", request.project.slug)


def _found(request: Request, comparison_id: int) -> Comparison:
    try:
        return reads.comparison_of(project=request.project, comparison=comparison_id)
    except Missing as error:
        raise Http404(error.message) from error


def _kept(sent: QueryDict) -> str:
    """The filters as a query string, so that one comes back to the same list."""
    kept = QueryDict(mutable=True)
    for name in _FILTERS:
        if value := sent.get(name, ""):
            kept[name] = value
    return kept.urlencode()


def _address(request: Request, comparison: int | None) -> str:
    slug = request.project.slug
    url = (
        reverse("agreement:dispute", args=[slug, comparison])
        if comparison
        else reverse("agreement:disputes", args=[slug])
    )
    kept = _kept(request.GET)
    return f"{url}?{kept}" if kept else url


# What disputes were about, and what judging them again has changed.

_RULING_COLUMNS = (
    "comparison",
    "id",
    "action",
    "cause",
    "choice",
    "note",
    "guideline",
    "votes_a",
    "votes_b",
    "votes_tie",
    "votes_both_bad",
    "at",
)


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
        "may_write": request.role == ADMIN,
    }
    return render(request, "agreement/disputes_causes.html", context)


@require_safe
@project_page(READERS)
def causes_csv(request: Request) -> StreamingHttpResponse:
    """The numbers behind the charts."""
    labels = dict(screen.CAUSES)
    rows = (
        {
            "month": row.month,
            "guideline": row.guideline,
            "cause": labels[row.cause],
            "disputes": row.n,
        }
        for row in cause_counts(project=request.project)
    )
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
    columns = (
        "guideline",
        "comparisons",
        "votes",
        "votes_wanted",
        "decided",
        "contested",
        "ruled",
        "sent_again",
        "compared",
        "before",
        "before_low",
        "before_high",
        "expected_unchanged",
        "after",
        "after_low",
        "after_high",
        "difference",
        "difference_low",
        "difference_high",
    )

    def rows() -> Iterator[dict[str, object]]:
        for batch in batches(project=request.project):
            compared = batch.compared
            yield {
                "guideline": batch.guideline.version,
                "comparisons": batch.n,
                "votes": batch.votes,
                "votes_wanted": batch.wanted,
                "decided": batch.n_settled,
                "contested": batch.n_contested,
                "ruled": batch.n_ruled,
                "sent_again": batch.n_again,
                "compared": compared.n,
                "before": compared.before.value,
                "before_low": compared.before.low,
                "before_high": compared.before.high,
                "expected_unchanged": compared.expected,
                "after": compared.after.value,
                "after_low": compared.after.low,
                "after_high": compared.after.high,
                "difference": compared.difference.value,
                "difference_low": compared.difference.low,
                "difference_high": compared.difference.high,
            }

    return _csv(request, "re-annotation", columns, rows())


def _csv(
    request: Request, name: str, columns: tuple[str, ...], rows: object
) -> StreamingHttpResponse:
    response = StreamingHttpResponse(
        csv_lines(columns, rows), content_type="text/csv; charset=utf-8"
    )
    response["Content-Disposition"] = f'attachment; filename="{request.project.slug}-{name}.csv"'
    return response

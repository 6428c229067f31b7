"""The inbox of flagged answers, and verdicts on the samples of a run."""

from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from apps.accounts.permissions import READERS, STAFF, project_page
from apps.common.errors import DomainError, Missing
from apps.common.http import Request
from apps.evaluation.models import FlaggedAnswer
from apps.evaluation.screens import verdicts as screen
from apps.evaluation.selectors import inbox as reads
from apps.evaluation.selectors.verdicts import recent_verdicts, tally_of
from apps.evaluation.services.claiming import held_by_other
from apps.evaluation.services.inbox import inbox_next, inbox_open
from apps.evaluation.services.verdicts import (
    flagged_close,
    flagged_judge,
    sample_judge,
    verdict_undo,
)
from apps.training.models import Sample
from apps.training.screens.samples import samples_context
from apps.training.selectors import run_get

LISTED = 20
RECENT = 10
# Somebody else has the answer, or had it: one goes on. Any other refusal is about the verdict.
_TAKEN = ("claimed", "judged_meanwhile")


@require_safe
@project_page(READERS)
def inbox(request: Request) -> HttpResponse:
    """The answer to judge now, and those that wait behind it. `at` opens a certain one."""
    filters = _filters(request.GET)
    at = request.GET.get("at", "")
    if at.isdecimal() and len(at) < 19:
        opened = reads.flagged_get(project=request.project, flagged_id=int(at))
        inbox_open(flagged=opened, user=request.user)
        opened.refresh_from_db(fields=["claimed_by", "claimed_until"])
    else:
        opened = inbox_next(project=request.project, filters=filters, user=request.user)
    return _page(request, filters, opened)


@require_POST
@project_page(READERS)
def inbox_judge(request: Request, flagged_id: int) -> HttpResponse:
    """A verdict; the answer is the next one."""
    filters = _filters(request.POST)
    flagged = reads.flagged_get(project=request.project, flagged_id=flagged_id)
    refused, stays = "", False
    try:
        flagged_judge(
            flagged=flagged,
            value=request.POST.get("value", ""),
            user=request.user,
            note=request.POST.get("note", ""),
            again=request.POST.get("again") == "1",
        )
    except DomainError as error:
        refused, stays = error.message, error.code not in _TAKEN
    following = (
        flagged
        if stays
        else inbox_next(
            project=request.project, filters=filters, user=request.user, after=flagged_id
        )
    )
    return _answer(request, filters, following, refused)


@require_POST
@project_page(READERS)
def inbox_undo(request: Request) -> HttpResponse:
    """Take the last verdict back; the answer is open again."""
    filters = _filters(request.POST)
    try:
        taken = verdict_undo(project=request.project, user=request.user)
    except DomainError as error:
        following = inbox_next(project=request.project, filters=filters, user=request.user)
        return _answer(request, filters, following, error.message)
    rows = FlaggedAnswer.objects.filter(project=request.project)
    of = {"sample": taken.sample_id} if taken.sample_id else {"pk": taken.flagged_id}
    opened = rows.filter(**of).select_related("run", "sample", "claimed_by").first()
    if opened is not None:
        inbox_open(flagged=opened, user=request.user)
    else:
        opened = inbox_next(project=request.project, filters=filters, user=request.user)
    return _answer(request, filters, opened, "")


@require_POST
@project_page(READERS)
def inbox_close(request: Request) -> HttpResponse:
    """Close what still waits of one run."""
    n = flagged_close(
        project=request.project,
        run_id=request.POST.get("run", "").replace("\x00", ""),
        user=request.user,
    )
    words = f"{n} answer{'' if n == 1 else 's'} closed without a verdict."
    messages.success(request, words)
    return redirect("evaluation:inbox", request.project.slug)


def _filters(given: QueryDict) -> reads.InboxFilters:
    kind = given.get("kind", "")
    known = kind if kind in FlaggedAnswer.Kind else ""
    return reads.InboxFilters(run=given.get("run", "").replace("\x00", ""), kind=known)


def _query(filters: reads.InboxFilters, **more: Any) -> str:
    asked = {"run": filters.run, "kind": filters.kind, **more}
    return urlencode({name: value for name, value in asked.items() if value})


def _answer(
    request: Request,
    filters: reads.InboxFilters,
    opened: FlaggedAnswer | None,
    refused: str,
) -> HttpResponse:
    """What a verdict leads to: the fragment for htmx, else the page of the next answer."""
    if request.htmx:
        return _page(request, filters, opened, refused=refused)
    if refused:
        messages.warning(request, refused)
    here = reverse("evaluation:inbox", args=[request.project.slug])
    return redirect(f"{here}?{_query(filters, at=opened.pk if opened else '')}")


def _page(
    request: Request,
    filters: reads.InboxFilters,
    opened: FlaggedAnswer | None,
    *,
    refused: str = "",
) -> HttpResponse:
    rows = filters.rows(request.project)
    here = reverse("evaluation:inbox", args=[request.project.slug])

    def address(row: FlaggedAnswer | None) -> str:
        return f"{here}?{_query(filters, at=row.pk)}" if row is not None else ""

    before, after = reads.neighbours(rows, opened.pk) if opened else (None, None)
    listed = list(rows[:LISTED])
    held = {row.pk: held_by_other(row, request.user) for row in listed}
    context = {
        "entry": screen.entry_shown(opened, request.user) if opened else None,
        "held_by": held_by_other(opened, request.user) if opened else "",
        "before_url": address(before),
        "after_url": address(after),
        "refused": refused,
        "n_waiting": rows.count(),
        "rows": screen.entry_rows(listed, held),
        "filters": filters,
        "query": _query(filters),
        "recent": recent_verdicts(project=request.project, limit=RECENT),
        "may_open_run": request.role in STAFF,
        "page_title": "Inbox",
        "nav": "inbox",
    }
    if request.htmx and not request.htmx.history_restore_request:
        return render(request, "evaluation/_inbox.html", context)
    context |= {
        "runs": reads.inbox_runs(request.project),
        "kinds": reads.inbox_kinds(request.project),
        "tally": tally_of(request.project),
    }
    return render(request, "evaluation/inbox.html", context)


# The samples of a run.


@require_safe
@project_page(READERS)
def run_samples(request: Request, run_id: str) -> HttpResponse:
    """The samples of a run on a page of their own, for reviewers too."""
    run = run_get(project=request.project, run_id=run_id)
    context = samples_context(run, request.GET, user=request.user)
    context |= {
        "run": run,
        "may_open_run": request.role in STAFF,
        "page_title": f"Samples of {run.name}",
        "nav": "inbox",
    }
    return render(request, "evaluation/run_samples.html", context)


@require_POST
@project_page(READERS)
def sample_judge_view(request: Request, run_id: str, sample_id: int) -> HttpResponse:
    """A verdict on a sample, or with `undo` the person's last one taken back."""
    run = run_get(project=request.project, run_id=run_id)
    sample = Sample.objects.filter(run=run, pk=sample_id).first()
    if sample is None:
        raise Missing("There is no such sample of this run.", field="sample")
    refused = ""
    try:
        if request.POST.get("undo"):
            verdict_undo(project=request.project, user=request.user, sample=sample)
        else:
            sample_judge(
                sample=sample,
                value=request.POST.get("value", ""),
                user=request.user,
                note=request.POST.get("note", ""),
            )
    except DomainError as error:
        refused = error.message
    if request.htmx:
        panel = screen.sample_panels(run, [sample], request.user)[sample.pk]
        context = {"panel": panel, "refused": refused}
        return render(request, "evaluation/_sample_verdicts.html", context)
    if refused:
        messages.warning(request, refused)
    page = reverse("evaluation:run_samples", args=[request.project.slug, run.pk])
    return redirect(f"{page}#sample-{sample.pk}")

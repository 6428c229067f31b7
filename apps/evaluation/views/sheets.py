"""Blind audit sheets: drawn by engineers, judged by reviewers and admins, read by all of them."""

from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from apps.accounts.permissions import JUDGES, READERS, STAFF, project_page
from apps.common.errors import DomainError, Refused
from apps.common.http import Request
from apps.evaluation.forms import SheetForm
from apps.evaluation.models import AuditSheet, SheetItem
from apps.evaluation.screens import verdicts as screen
from apps.evaluation.selectors.sheet_sources import auditable_runs
from apps.evaluation.selectors.sheets import (
    Outline,
    item_get,
    outlines_of,
    progress_of,
    result_of,
    sheet_get,
    sheets_of,
)
from apps.evaluation.services.sheets import (
    item_judge,
    item_next,
    item_undo,
    sheet_finish,
    sheet_make,
    sheet_withdraw,
    why_not_judge,
)
from apps.training.selectors import run_get

PER_PAGE = 25


@require_safe
@project_page(READERS)
def sheets(request: Request) -> HttpResponse:
    """All of the project, also those that were withdrawn."""
    page = Paginator(sheets_of(request.project), PER_PAGE).get_page(request.GET.get("page"))
    outlines = outlines_of(list(page))
    context = {
        "page": page,
        "rows": [_row(sheet, outlines[sheet.pk]) for sheet in page],
        "may_make": request.role in STAFF,
        "page_title": "Audit sheets",
        "nav": "sheets",
    }
    return render(request, "evaluation/sheets.html", context)


def _row(sheet: AuditSheet, outline: Outline) -> dict[str, Any]:
    return {
        "sheet": sheet,
        "progress": outline.progress,
        "under": screen.headline(outline.random, "policy") if outline.random else "",
    }


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def sheet_new(request: Request) -> HttpResponse:
    """The form; what it asks for is drawn at once."""
    runs = [
        (run.pk, f"{run.name} · {run.get_kind_display()} · {run.pk}")
        for run in auditable_runs(request.project)
    ]
    data = request.POST if request.method == "POST" else None
    form = SheetForm(data, runs=runs, initial={"run": request.GET.get("run", "")})
    if data is not None and form.is_valid():
        given = dict(form.cleaned_data)
        run = run_get(project=request.project, run_id=given.pop("run"))
        try:
            made = sheet_make(project=request.project, run=run, user=request.user, **given)
            return redirect("evaluation:sheet", request.project.slug, made.pk)
        except DomainError as error:
            form.refuse(error)
    context = {
        "form": form,
        "has_runs": bool(runs),
        "page_title": "New audit sheet",
        "nav": "sheets",
    }
    status = 422 if form.errors else 200
    return render(request, "evaluation/sheet_new.html", context, status=status)


@require_safe
@project_page(READERS)
def sheet(request: Request, sheet_id: str) -> HttpResponse:
    """How far people are; once it is finished, what it says."""
    found = sheet_get(project=request.project, sheet_id=sheet_id)
    result = result_of(found)
    judges = request.role in JUDGES
    context = {
        "sheet": found,
        "progress": progress_of(found),
        "result": result,
        "rows": screen.result_rows(result) if result else [],
        "loved": screen.loved_shown(result) if result else [],
        "headline": screen.headline(result.random, "policy") if result else "",
        "beside": screen.headline(result.baseline, "baseline") if result else "",
        "why_not": why_not_judge(found, request.user) if judges else "",
        "may_judge": judges and not why_not_judge(found, request.user),
        "may_end": found.state == AuditSheet.State.OPEN,
        "may_open_run": request.role in STAFF,
        "page_title": f"Audit sheet {found.pk}",
        "nav": "sheets",
    }
    return render(request, "evaluation/sheet.html", context)


@require_POST
@project_page(READERS)
def sheet_end(request: Request, sheet_id: str) -> HttpResponse:
    """Finish it, or withdraw it with a reason."""
    found = sheet_get(project=request.project, sheet_id=sheet_id)
    try:
        if request.POST.get("action") == "withdraw":
            reason = request.POST.get("reason", "")
            sheet_withdraw(sheet=found, user=request.user, reason=reason)
        else:
            sheet_finish(sheet=found, user=request.user)
    except DomainError as error:
        messages.error(request, error.message)
    return redirect("evaluation:sheet", request.project.slug, found.pk)


# Judging: nothing on these pages depends on whose answer is shown.


@require_http_methods(["GET", "HEAD"])
@project_page(JUDGES)
def sheet_judge(request: Request, sheet_id: str) -> HttpResponse:
    """The next answer for this person."""
    found = sheet_get(project=request.project, sheet_id=sheet_id)
    try:
        item = item_next(sheet=found, user=request.user)
    except Refused:
        raise
    except DomainError:  # it has ended meanwhile
        return redirect("evaluation:sheet", request.project.slug, found.pk)
    return _judging(request, found, item)


@require_POST
@project_page(JUDGES)
def item_judge_view(request: Request, sheet_id: str, item_id: str) -> HttpResponse:
    """A verdict; the answer is the next one."""
    found = sheet_get(project=request.project, sheet_id=sheet_id)
    item = item_get(sheet=found, item_id=item_id)
    refused = ""
    try:
        item_judge(
            item=item,
            value=request.POST.get("value", ""),
            user=request.user,
            note=request.POST.get("note", ""),
        )
    except Refused:
        raise
    except DomainError as error:
        refused = error.message
    return _after(request, found, None, refused)


@require_POST
@project_page(JUDGES)
def item_undo_view(request: Request, sheet_id: str) -> HttpResponse:
    """The last verdict is taken back, and its answer is shown again."""
    found = sheet_get(project=request.project, sheet_id=sheet_id)
    try:
        item = item_undo(sheet=found, user=request.user)
    except Refused:
        raise
    except DomainError as error:
        return _after(request, found, None, error.message)
    return _after(request, found, item, "")


def _after(
    request: Request, found: AuditSheet, item: SheetItem | None, refused: str
) -> HttpResponse:
    if not request.htmx:
        if refused:
            messages.warning(request, refused)
        return redirect("evaluation:sheet_judge", request.project.slug, found.pk)
    try:
        item = item or item_next(sheet=found, user=request.user)
    except DomainError as error:
        refused = refused or error.message
    return _judging(request, found, item, refused)


def _judging(
    request: Request, found: AuditSheet, item: SheetItem | None, refused: str = ""
) -> HttpResponse:
    progress = progress_of(found)
    context = {
        "sheet": found,
        "item": screen.item_shown(item) if item else None,
        "choices": screen.BLIND,
        "n": progress.n,
        "n_mine": dict(progress.people).get(str(request.user)[:150], 0),
        "is_complete": progress.is_complete,
        "refused": refused,
        "page_title": f"Audit sheet {found.pk}",
        "nav": "sheets",
    }
    part = request.htmx and not request.htmx.history_restore_request
    return render(request, f"evaluation/{'_judging' if part else 'sheet_judge'}.html", context)

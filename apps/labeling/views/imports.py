"""Importing in the browser: upload, choose columns, check, import, look back."""

import itertools
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from apps.accounts.permissions import ADMIN, STAFF, project_page
from apps.common.errors import DomainError
from apps.common.http import Request
from apps.common.spreadsheet import csv_lines
from apps.labeling import services
from apps.labeling.forms.imports import ImportSettingsForm
from apps.labeling.models import ImportJob, Task
from apps.labeling.screens import imports as import_display
from apps.labeling.screens import imports as import_jobs
from apps.labeling.services.imports import brings_anything

PER_PAGE = 25
SHOWN_FINDINGS = 100
State, Stage = ImportJob.State, ImportJob.Stage
AT_WORK = (State.QUEUED, State.RUNNING)
_LATER = "Redis does not answer. The import is kept, and starts by itself when Redis is back."


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def imports(request: Request) -> HttpResponse:
    """The list; a POST uploads a file."""
    if request.method == "POST":
        return _upload(request)
    return _list(request)


def _upload(request: Request) -> HttpResponse:
    file = request.FILES.get("file")
    if file is None:
        return _list(request, error="Choose a file first.")
    try:
        job = services.import_job_create(
            project=request.project, by=request.user, file_name=file.name, chunks=file.chunks()
        )
    except DomainError as error:
        return _list(request, error=error.message)
    return redirect("labeling:import", request.project.slug, job.pk)


def _list(request: Request, *, error: str = "") -> HttpResponse:
    found = import_jobs.import_jobs_list(project=request.project, datasets=False)
    page = Paginator(found, PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "page_title": "Imports",
        "nav": "imports",
        "page": page,
        "lines": import_display.lines(page),
        "error": error,
    }
    return render(request, "labeling/imports.html", context, status=422 if error else 200)


@require_safe
@project_page(STAFF)
def import_job(request: Request, job_id: str) -> HttpResponse:
    """One import; while it is at work its head polls this address."""
    job = import_jobs.import_job_get(project=request.project, job=job_id)
    if request.htmx:
        if job.state in AT_WORK:
            context = {"job": job, "progress": import_display.progress_of(job)}
            return render(request, "labeling/_import_progress.html", context)
        return HttpResponse(headers={"HX-Refresh": "true"})
    return _page(request, job)


@require_POST
@project_page(STAFF)
def import_settings(request: Request, job_id: str) -> HttpResponse:
    """Read the file another way; with `action=check` have all of it checked."""
    job = import_jobs.import_job_get(project=request.project, job=job_id)
    form = ImportSettingsForm(
        request.POST, preview=job.preview, chosen=job.settings, makes=job.makes
    )
    if not form.is_valid():
        return _page(request, job, form=form)
    try:
        same_layout = form.cleaned_data["layout"] == job.preview["layout"]
        services.import_job_configure(job=job, **form.settings())
        if request.POST.get("action") == "check" and same_layout:
            _sent(request, services.import_job_check(job=job))
    except DomainError as error:
        form.refuse(error)
        return _page(request, job, form=form)
    return redirect("labeling:import", request.project.slug, job.pk)


@require_POST
@project_page(STAFF)
def import_action(request: Request, job_id: str) -> HttpResponse:
    """check, start (with `on_error`), cancel, undo, or set when it is due."""
    job = import_jobs.import_job_get(project=request.project, job=job_id)
    try:
        match request.POST.get("action"):
            case "start":
                given = {
                    name: request.POST[name]
                    for name in ("on_error", "overlap", "name")
                    if name in request.POST
                }
                _sent(request, services.import_job_start(job=job, **given))
            case "check":
                _sent(request, services.import_job_check(job=job))
            case "cancel":
                services.import_job_cancel(job=job, by=request.user)
            case "due":
                due_on = request.POST.get("due_on")
                services.import_due_set(job=job, due_on=due_on, by=request.user)
                messages.success(request, "The day was saved.")
            case "undo":
                _sent(request, services.import_job_undo(job=job, by=request.user))
                if job.state == State.UNDONE:
                    messages.success(request, "The import was undone.")
            case _:
                raise DomainError("This is not something that can be done to an import.")
    except DomainError as error:
        messages.error(request, error.message)
    return redirect("labeling:import", request.project.slug, job.pk)


@require_POST
@project_page(frozenset({ADMIN}))
def import_people(request: Request, job_id: str) -> HttpResponse:
    """Say who labels its comparisons; `people` is repeated."""
    job = import_jobs.import_job_get(project=request.project, job=job_id)
    people = [int(one) for one in request.POST.getlist("people") if one.isdecimal()]
    try:
        services.import_people_set(job=job, people=people, by=request.user)
        messages.success(request, "Saved. It holds from the next pair on.")
    except DomainError as error:
        messages.error(request, error.message)
    return redirect("labeling:import", request.project.slug, job.pk)


@require_safe
@project_page(STAFF)
def import_findings(request: Request, job_id: str) -> StreamingHttpResponse:
    """Everything the last check or import found, as CSV that no spreadsheet runs."""
    job = import_jobs.import_job_get(project=request.project, job=job_id)
    lines = csv_lines(import_jobs.FINDING_COLUMNS, import_jobs.findings(job))
    return StreamingHttpResponse(
        lines,
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="import-{job.pk}-findings.csv"'},
    )


def _sent(request: Request, sent: bool) -> None:
    if not sent:
        messages.warning(request, _LATER)


def _page(
    request: Request, job: ImportJob, *, form: ImportSettingsForm | None = None
) -> HttpResponse:
    at_work = job.state in AT_WORK
    imported = job.stage == Stage.IMPORT and job.state == State.DONE
    dataset = job.makes != ImportJob.Makes.COMPARISONS
    kind = (job.result or job.check_report).get("kind", Task.Kind.PAIR.value)
    found = list(itertools.islice(import_jobs.findings(job), SHOWN_FINDINGS + 1))
    context: dict[str, Any] = {
        "page_title": job.file_name,
        "nav": "datasets" if dataset else "imports",
        "job": job,
        "dataset": dataset,
        "stem": job.file_name.rsplit(".", 1)[0],
        "preview_table": import_display.preview_table(job),
        "words": import_display.words_of(job),
        "tone": import_display.TONES.get(State(job.state), ""),
        "at_work": at_work,
        "imported": imported,
        "closed": imported
        or job.state in (State.CANCELLED, State.UNDONE)
        or job.file_deleted_at is not None,
        "progress": import_display.progress_of(job) if at_work else None,
        "report": import_display.report_shown(job.result or job.check_report),
        "n_brought": import_jobs.tasks_of(job).count() if imported else 0,
        "noun": import_display.NOUNS[kind],
        "tasks_page": import_display.TASK_PAGES[kind],
        "people": import_display.people_of(job) if imported else [],
        "may_start": bool(job.check_report)
        and brings_anything(job.check_report)
        and not at_work
        and not imported,
        "findings": found[:SHOWN_FINDINGS],
        "more_findings": len(found) > SHOWN_FINDINGS,
        "form": form
        or ImportSettingsForm.asking(preview=job.preview, chosen=job.settings, makes=job.makes),
        "refused": form is not None and bool(form.errors),
    }
    return render(
        request, "labeling/import.html", context, status=422 if context["refused"] else 200
    )

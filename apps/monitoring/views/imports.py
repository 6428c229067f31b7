"""Uploading the metrics of a run that was trained elsewhere."""

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from apps.accounts.permissions import STAFF, project_page
from apps.common.errors import Conflict, DomainError
from apps.common.http import Request
from apps.monitoring.forms.imports import RunImportForm
from apps.monitoring.screens.diagnosis import tab_url
from apps.monitoring.services.imports import run_import as store


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def run_import(request: Request) -> HttpResponse:
    """The form; a POST stores the run and leads to its diagnosis."""
    if request.method != "POST":
        return _page(request, RunImportForm())
    form = RunImportForm(request.POST, request.FILES)
    if not form.is_valid():
        return _page(request, form)
    file = form.cleaned_data["file"]
    try:
        run = store(
            project=request.project,
            user=request.user,
            file_name=file.name,
            data=file.read(),
            trained_as=form.cleaned_data["trained_as"],
            name=form.cleaned_data["name"],
        )
    except DomainError as error:
        return _page(request, form, error=error)
    figures = f"{run.summary['points']:,} points of {run.summary['metrics']:,} metrics"
    messages.success(request, f"{figures} were imported ({run.summary['format']}).")
    return redirect(tab_url(run))


def _page(request: Request, form: RunImportForm, error: DomainError | None = None) -> HttpResponse:
    known = ""
    if isinstance(error, Conflict) and isinstance(error.details, dict):
        known = reverse("training:run", args=[request.project.slug, error.details["run"]])
    rows = error.details if error and isinstance(error.details, list) else []
    if error and len(rows) < 2:
        form.add_error("file", error.message)
        rows = []
    elif error:
        form.add_error("file", "Nothing was imported: some rows are wrong. They are listed below.")
    context = {
        "page_title": "Import a run",
        "nav": "runs",
        "form": form,
        "rows": rows,
        "known": known,
    }
    status = 422 if form.errors else 200
    return render(request, "monitoring/run_import.html", context, status=status)

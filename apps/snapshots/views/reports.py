"""the bias report: of a frozen dataset, and of what would be frozen."""

from collections.abc import Mapping
from typing import Any

from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_POST, require_safe

from apps.accounts.permissions import READERS, STAFF, project_page
from apps.common.errors import DomainError, Missing
from apps.common.http import Request
from apps.common.spreadsheet import csv_lines
from apps.snapshots.advice import Facts, advise
from apps.snapshots.forms import SnapshotForm
from apps.snapshots.models import Snapshot
from apps.snapshots.reports import PARTS
from apps.snapshots.screens import readiness as readiness_screen
from apps.snapshots.screens import report as screen
from apps.snapshots.selectors import snapshots
from apps.snapshots.services import reporting
from apps.snapshots.services.readiness import StatedForm, gather


@require_safe
@project_page(READERS)
def report(request: Request, snapshot: str) -> HttpResponse:
    """The page; for htmx the report alone, folded, as a dataset's page shows it."""
    found, made = _of(request, snapshot)
    context = {
        "snapshot": found,
        "report": screen.report_view(made, folded=bool(request.htmx)),
        "page_title": f"Bias report of {found.name}",
        "nav": "datasets",
    }
    part = "snapshots/_report.html" if request.htmx else "snapshots/report.html"
    return render(request, part, context)


@require_safe
@project_page(READERS)
def report_csv(request: Request, snapshot: str) -> HttpResponseBase:
    """Every number of the report."""
    found, made = _of(request, snapshot)
    return _csv(made, f"{request.project.slug}-{found.pk}-report")


@require_POST
@project_page(STAFF)
def report_preview(request: Request) -> HttpResponseBase:
    """What the form's recipe would keep. htmx asks for one part after the other (`part`)."""
    form = SnapshotForm(request.POST, project=request.project)
    form.fields["name"].required = False
    part = request.POST.get("part", "") if request.htmx else ""
    context: dict[str, Any] = {"page_title": "Bias report", "nav": "datasets", "form": form}
    if form.is_valid():
        try:
            made = _preview(request, form, [part] if part in PARTS else PARTS)
        except DomainError as error:
            form.refuse(error)
        else:
            if request.GET.get("format") == "csv":
                return _csv(made, f"{request.project.slug}-report")
            context["report"] = screen.report_view(made, folded=bool(part))
            context["next_part"] = _next(part)
            context["first_part"] = part in ("", PARTS[0])
    page = "snapshots/_report_preview.html" if request.htmx else "snapshots/report_preview.html"
    return render(request, page, context, status=422 if form.errors and not request.htmx else 200)


def _preview(request: Request, form: SnapshotForm, parts: list[str] | tuple[str, ...]) -> Any:
    made = [
        reporting.report_preview(
            project=request.project, recipe=form.cleaned_data["recipe"], part=part
        )
        for part in parts
    ]
    return made[0] | {"checks": [check for one in made for check in one["checks"]]}


def _next(part: str) -> str:
    if part not in PARTS:
        return ""
    return (*PARTS, "")[PARTS.index(part) + 1]


def _of(request: Request, snapshot: str) -> tuple[Snapshot, Mapping[str, Any]]:
    found = snapshots.snapshot_get(project=request.project, snapshot_id=snapshot)
    made = reporting.report_read(snapshot=found)
    if made is None:
        raise Missing("This dataset has no bias report: it is not frozen, or holds no preferences.")
    return found, made


def _csv(report: Mapping[str, Any], name: str) -> StreamingHttpResponse:
    lines = csv_lines(screen.COLUMNS, screen.csv_rows(report))
    response = StreamingHttpResponse(lines, content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}.csv"'
    return response


# The page of data readiness.


@require_safe
@project_page(READERS)
def ready(request: Request) -> HttpResponse:
    """Advice from the project's numbers and from what is stated in the address."""
    form = StatedForm(request.GET)
    found, stated = gather(request.project), form.stated()
    facts = Facts(**found.facts, **stated)
    context = {
        "page_title": "Data readiness",
        "nav": "ready",
        "form": form,
        "any_stated": bool(stated),
        "may_open_runs": request.role in STAFF,
        "may_plan": request.role in STAFF,
        "methods": readiness_screen.method_rows(found.runs),
    } | readiness_screen.page(facts, advise(facts), found)
    return render(request, "snapshots/readiness.html", context)

"""Downloading a dataset in the form that a program wants."""

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_safe

from apps.accounts.permissions import STAFF, project_page
from apps.common.http import Request
from apps.snapshots import exports
from apps.snapshots.screens import exports as screen
from apps.snapshots.screens.exports import download_response
from apps.snapshots.selectors import snapshots


@require_safe
@project_page(STAFF)
def snapshot_exports(request: Request, snapshot: str) -> HttpResponse:
    """Every form with what it is for, its rows and its files."""
    found = snapshots.snapshot_get(project=request.project, snapshot_id=snapshot)
    context = {
        "page_title": f"Export {found.name}",
        "nav": "datasets",
        "snapshot": found,
        "damaged": exports.file_list_or_none(found) is None,
        "forms": screen.forms(found, exports.form_rows(snapshot=found)),
        "formats": exports.SPLIT_FORMATS,
        "private": screen.private_rows(found.counts),
    }
    return render(request, "snapshots/export.html", context)


@require_safe
@project_page(STAFF)
def export_file(request: Request, snapshot: str) -> HttpResponseBase:
    """`?shape=…&split=…&format=jsonl|parquet|csv`, or `?shape=…&format=zip` for a folder."""
    found = snapshots.snapshot_get(project=request.project, snapshot_id=snapshot)
    sent = exports.snapshot_export(
        snapshot=found,
        split=request.GET.get("split", ""),
        form=request.GET.get("format", "jsonl"),
        shape=request.GET.get("shape", ""),
    )
    return download_response(sent)

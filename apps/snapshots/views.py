"""The dataset pages."""

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from apps.accounts.permissions import READERS, STAFF, project_page
from apps.common.errors import DomainError
from apps.common.http import Request
from apps.snapshots import browsing, comparing, display, exports, selectors, services
from apps.snapshots.forms import SnapshotForm
from apps.snapshots.improvements import improved_count
from apps.snapshots.models import Snapshot
from apps.snapshots.responses import download_response
from apps.snapshots.vote_changes import changed_counts

PER_PAGE = 50


@require_GET
@project_page(READERS)
def snapshot_list(request: Request) -> HttpResponse:
    chosen, search = request.GET.get("kind", ""), request.GET.get("q", "").strip()
    rows = selectors.snapshot_search(project=request.project, kind=chosen, search=search)
    context = {
        "page": Paginator(rows, PER_PAGE).get_page(request.GET.get("page")),
        "kinds": Snapshot.Kind.choices,
        "chosen_kind": chosen,
        "search": search,
        "may_freeze": request.role in STAFF,
        "comparable": {one.pk for one in comparing.comparable(project=request.project)},
        "page_title": "Datasets",
        "nav": "datasets",
    }
    return render(request, "snapshots/list.html", context)


@require_http_methods(["GET", "POST"])
@project_page(STAFF)
def snapshot_create(request: Request) -> HttpResponse:
    """The form; with `action=preview` what it would keep; otherwise it freezes.

    `action=demonstrations` freezes the improved answers, from the small form of its own.
    """
    demonstrating = request.POST.get("action") == "demonstrations"
    if demonstrating and (made := _freeze_improved(request)):
        return redirect("snapshots:detail", request.project.slug, made.pk)
    form = SnapshotForm(None if demonstrating else request.POST or None, project=request.project)
    context = {
        "form": form,
        "page_title": "Freeze a dataset",
        "nav": "datasets",
        "n_improved": improved_count(project=request.project),
    }
    if request.method == "GET" or demonstrating:
        status = 422 if demonstrating else 200
        return render(request, "snapshots/create.html", context, status=status)
    previewing = request.POST.get("action") == "preview"
    if previewing:
        form.fields["name"].required = False
    if form.is_valid():
        recipe = form.cleaned_data["recipe"]
        if not previewing:
            try:
                made = services.snapshot_freeze(
                    project=request.project,
                    name=form.cleaned_data["name"],
                    recipe=recipe,
                    user=request.user,
                )
            except DomainError as error:
                form.refuse(error)
            else:
                messages.success(request, f"{made.name} is frozen and will not change.")
                return redirect("snapshots:detail", request.project.slug, made.pk)
        else:
            shown = services.snapshot_preview(project=request.project, recipe=recipe)
            context["preview"] = display.figures(shown.counts, shown.warnings)
    part = "snapshots/_preview.html" if request.htmx else "snapshots/create.html"
    return render(request, part, context, status=200 if not form.errors or request.htmx else 422)


def _freeze_improved(request: Request) -> Snapshot | None:
    """The frozen demonstrations, or None with the reason as a message."""
    try:
        made = services.demonstrations_freeze(
            project=request.project,
            name=request.POST.get("name", ""),
            user=request.user,
        )
    except DomainError as error:
        messages.error(request, f"Not frozen. {error.message}")
        return None
    messages.success(request, f"{made.name} is frozen and will not change.")
    return made


@require_GET
@project_page(READERS)
def snapshot_detail(request: Request, snapshot: str) -> HttpResponse:
    found = selectors.snapshot_get(project=request.project, snapshot_id=snapshot)
    context = {
        "snapshot": found,
        "files": exports.file_list_or_none(found),
        "uses": selectors.uses_of(found),
        "may_download": request.role in STAFF,
        "formats": exports.SPLIT_FORMATS,
        "overlap": selectors.overlap_with_demonstrations(found),
        "before": comparing.one_before(found),
        "has_rows": browsing.has_rows(found),
        "n_changed": changed_counts([found]).get(found.pk, 0),
        "page_title": found.name,
        "nav": "datasets",
    } | display.detail(found)
    return render(request, "snapshots/detail.html", context)


@require_POST
@project_page(READERS)
def snapshot_verify(request: Request, snapshot: str) -> HttpResponse:
    found = selectors.snapshot_get(project=request.project, snapshot_id=snapshot)
    outcome = services.snapshot_verify(snapshot=found)
    if outcome.ok:
        messages.success(request, "Every file has the content it was frozen with.")
    else:
        messages.error(request, f"The files are not what was frozen: {outcome.problem}.")
    return redirect("snapshots:detail", request.project.slug, found.pk)


@require_GET
@project_page(STAFF)
def snapshot_download(request: Request, snapshot: str) -> HttpResponseBase:
    """`?split=…&format=jsonl|parquet|csv`, or `?format=zip` for everything."""
    found = selectors.snapshot_get(project=request.project, snapshot_id=snapshot)
    sent = exports.snapshot_export(
        snapshot=found,
        split=request.GET.get("split", ""),
        form=request.GET.get("format", "jsonl"),
    )
    return download_response(sent)

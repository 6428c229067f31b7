"""The dataset pages."""

from dataclasses import replace

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import FileResponse, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from apps.accounts.permissions import ADMIN, READERS, STAFF, project_page
from apps.common.errors import DomainError
from apps.common.http import Request
from apps.common.registry import dataset_panels
from apps.common.row_files import ROW_FORMATS, download_response
from apps.snapshots import display, exports
from apps.snapshots.forms import SnapshotForm
from apps.snapshots.models import Snapshot
from apps.snapshots.progress import progress_read
from apps.snapshots.recipe import PUBLISHED, SnapshotRecipe, recipe_from_stored
from apps.snapshots.reports import PARTS
from apps.snapshots.screens import exports as screen
from apps.snapshots.screens.written import written_choices
from apps.snapshots.selectors import comparing, snapshots
from apps.snapshots.selectors.comparing import changed_counts
from apps.snapshots.selectors.lineage import labelled_in
from apps.snapshots.selectors.looks import held_out
from apps.snapshots.selectors.prompts import overlap_with_demonstrations
from apps.snapshots.services import freezing
from apps.snapshots.services.improvements import (
    IMPROVEMENTS,
    JUDGED,
    WRITTEN,
    improved_count,
    judged_count,
)

PER_PAGE = 50
ADMINS = frozenset({ADMIN})
LATER = "Redis does not answer. The dataset waits and is built automatically when Redis is back."


@require_safe
@project_page(READERS)
def snapshot_list(request: Request) -> HttpResponse:
    chosen, search = request.GET.get("kind", ""), request.GET.get("q", "").strip()
    rows = snapshots.snapshot_search(project=request.project, kind=chosen, search=search)
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


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def snapshot_create(request: Request) -> HttpResponse:
    """The form, `?like=…` filled in as for that dataset; with `action=preview` what it would keep,
    with `relax=…` the same after that setting leaves nothing out; otherwise a worker freezes it.

    `action=demonstrations` has the improved answers frozen, `action=written` the accepted texts of
    writing work, from small forms of their own.
    """
    demonstrating = request.POST.get("action") in ("demonstrations", "written", "judged")
    if demonstrating and (made := _freeze_written(request)):
        return redirect("snapshots:detail", request.project.slug, made.pk)
    asked = request.method != "POST" or demonstrating
    form = SnapshotForm(
        None if asked else request.POST, project=request.project, like=_like(request)
    )
    context = {
        "form": form,
        "page_title": "Freeze a dataset",
        "nav": "datasets",
        "n_improved": improved_count(project=request.project),
        "n_judged": judged_count(project=request.project),
        "written": written_choices(request.project),
        "n_published": snapshots.published_count(project=request.project),
        "report_part": PARTS[0],
    }
    if asked:
        status = 422 if demonstrating else 200
        return render(request, "snapshots/create.html", context, status=status)
    previewing = request.POST.get("action") == "preview" or "relax" in request.POST
    if previewing:
        form.fields["name"].required = False
    if form.is_valid():
        try:
            if not previewing:
                return _start(request, form)
            look = freezing.snapshot_look(
                project=request.project, recipe=form.cleaned_data["recipe"]
            )
            context["preview"] = display.figures(look.assembly.counts, look.assembly.warnings)
            form.losses_show(display.loss_lines(look.losses))
        except DomainError as error:
            form.refuse(error)
    part = "snapshots/_preview.html" if request.htmx else "snapshots/create.html"
    return render(request, part, context, status=200 if not form.errors or request.htmx else 422)


def _start(request: Request, form: SnapshotForm) -> HttpResponse:
    made, sent = freezing.snapshot_start(
        project=request.project,
        name=form.cleaned_data["name"],
        recipe=form.cleaned_data["recipe"],
        user=request.user,
    )
    if not sent:
        messages.warning(request, LATER)
    return redirect("snapshots:detail", request.project.slug, made.pk)


def _like(request: Request) -> SnapshotRecipe | None:
    """The recipe of the dataset that `?like=` names; None for none, or one without a recipe. With
    `?by=published` the project's own that freezes published labels."""
    if request.GET.get("by") == PUBLISHED:
        return replace(snapshots.recipe_default(project=request.project), decide_by=PUBLISHED)
    if not (like := request.GET.get("like", "").replace("\x00", "")):
        return None
    found = snapshots.snapshot_get(project=request.project, snapshot_id=like)
    return recipe_from_stored(found.recipe) if "ties" in found.recipe else None


def _freeze_written(request: Request) -> Snapshot | None:
    """The draft, or None with the reason as a message."""
    source = JUDGED if request.POST.get("action") == "judged" else IMPROVEMENTS
    if request.POST.get("action") == "written":
        source = WRITTEN.get(request.POST.get("kind", ""), WRITTEN[Snapshot.Kind.DEMONSTRATIONS])
    try:
        made, sent = freezing.demonstrations_start(
            project=request.project,
            name=request.POST.get("name", ""),
            user=request.user,
            source=source,
            batches=[one[:16] for one in request.POST.getlist("batches") if "\x00" not in one],
        )
    except DomainError as error:
        messages.error(request, f"Not frozen. {error.message}")
        return None
    if not sent:
        messages.warning(request, LATER)
    return made


@require_safe
@project_page(READERS)
def snapshot_detail(request: Request, snapshot: str) -> HttpResponse:
    """One dataset; while it is being made its head polls this address."""
    found = snapshots.snapshot_get(project=request.project, snapshot_id=snapshot)
    draft = found.state == Snapshot.State.DRAFT
    told = progress_read(found.pk) if draft else {}
    if request.htmx:
        if not draft:
            return HttpResponse(headers={"HX-Refresh": "true"})
        context = {
            "snapshot": found,
            "making": display.making(found, told, timezone.now()),
            "may_freeze": request.role in STAFF,
        }
        return render(request, "snapshots/_progress.html", context)
    context = {
        "snapshot": found,
        "files": exports.file_list_or_none(found),
        "uses": snapshots.uses_of(found),
        "labelled_in": labelled_in(found),
        "may_download": request.role in STAFF,
        "may_open_runs": request.role in STAFF,
        "formats": ROW_FORMATS,
        "overlap": overlap_with_demonstrations(found),
        "before": comparing.one_before(found),
        "has_rows": snapshots.has_rows(found),
        "n_changed": changed_counts([found]).get(found.pk, 0),
        "may_freeze": request.role in STAFF,
        "may_read_private": request.role in ADMINS,
        "has_held_out": bool(held_out(found)),
        "making": display.making(found, told, timezone.now()) if draft else None,
        "panels": [
            {"template": one.template, "found": one.find(found)} for one in dataset_panels()
        ],
        "page_title": found.name,
        "nav": "datasets",
    } | display.detail(found)
    return render(request, "snapshots/detail.html", context)


@require_POST
@project_page(STAFF)
def snapshot_action(request: Request, snapshot: str) -> HttpResponse:
    """cancel a draft, or try a failed one again by its own recipe."""
    found = snapshots.snapshot_get(project=request.project, snapshot_id=snapshot)
    try:
        match request.POST.get("action"):
            case "cancel":
                freezing.snapshot_cancel(snapshot=found, by=request.user)
            case "again":
                found, sent = freezing.snapshot_start_again(snapshot=found, user=request.user)
                if not sent:
                    messages.warning(request, LATER)
            case _:
                raise DomainError("This is not something that can be done to a dataset.")
    except DomainError as error:
        messages.error(request, error.message)
    return redirect("snapshots:detail", request.project.slug, found.pk)


@require_POST
@project_page(ADMINS)
def snapshot_private(request: Request, snapshot: str) -> HttpResponseBase:
    """A private split's rows, for an admin who asks; the audit log says who did."""
    found = snapshots.snapshot_get(project=request.project, snapshot_id=snapshot)
    split = request.POST.get("split", "")
    file = freezing.private_split_open(snapshot=found, split=split, by=request.user)
    name = f"{request.project.slug}-{found.pk}-{split}.jsonl"
    return FileResponse(
        file, as_attachment=True, filename=name, content_type="application/x-ndjson"
    )


@require_POST
@project_page(READERS)
def snapshot_verify(request: Request, snapshot: str) -> HttpResponse:
    found = snapshots.snapshot_get(project=request.project, snapshot_id=snapshot)
    outcome = freezing.snapshot_verify(snapshot=found)
    if outcome.ok:
        messages.success(request, "Every file matches its hash.")
    else:
        messages.error(request, f"The files are not what was frozen: {outcome.problem}.")
    return redirect("snapshots:detail", request.project.slug, found.pk)


@require_safe
@project_page(STAFF)
def snapshot_download(request: Request, snapshot: str) -> HttpResponseBase:
    """`?split=…&format=jsonl|parquet|csv`, or `?format=zip` for everything."""
    found = snapshots.snapshot_get(project=request.project, snapshot_id=snapshot)
    sent = exports.snapshot_export(
        snapshot=found,
        split=request.GET.get("split", ""),
        form=request.GET.get("format", "jsonl"),
        user=request.user,
    )
    return download_response(sent)


# Downloading a dataset in the form that a program wants.


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
        "formats": ROW_FORMATS,
        "private": screen.private_rows(found.counts),
    }
    return render(request, "snapshots/export.html", context)


@require_safe
@project_page(STAFF)
def export_file(request: Request, snapshot: str) -> HttpResponseBase:
    """`?shape=…&split=…&format=jsonl|parquet|csv`, or `?shape=…&format=zip` for a folder; with
    `scrub=1` without what looks like personal data."""
    found = snapshots.snapshot_get(project=request.project, snapshot_id=snapshot)
    sent = exports.snapshot_export(
        snapshot=found,
        split=request.GET.get("split", ""),
        form=request.GET.get("format", "jsonl"),
        shape=request.GET.get("shape", ""),
        user=request.user,
        scrub="scrub" in request.GET,
    )
    return download_response(sent)

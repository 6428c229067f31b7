"""Models in service: all of them at a glance, one of them, and what is done about it."""

from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from apps.accounts.models import Project
from apps.accounts.permissions import STAFF, project_page
from apps.common.errors import DomainError
from apps.common.http import Request
from apps.common.spreadsheet import csv_lines
from apps.monitoring.forms import ChangeForm, RebaseForm, RetargetForm, TrafficForm, WatchForm
from apps.monitoring.models import Watch
from apps.monitoring.screens import service as screen
from apps.monitoring.screens.traffic import traffic_table
from apps.monitoring.selectors import service as reads
from apps.monitoring.selectors.checks import probe_results
from apps.monitoring.selectors.people import people_summary
from apps.monitoring.services import probes, traffic, watches
from apps.training.models import Checkpoint
from apps.training.selectors.pages import input_resolve

PER_PAGE = 25


@require_safe
@project_page(STAFF)
def overview(request: Request) -> HttpResponse:
    project = request.project
    found = reads.watched(project)
    incidents, n_incidents = reads.open_incidents(project)
    context = {
        "watched": [_card(one) for one in found],
        "incidents": incidents,
        "n_incidents": n_incidents,
        "runs": reads.live_runs_with_alerts(project),
        "people": people_summary(project),
        "groups": _groups(project),
        "worker_missing": bool(found) and reads.worker_missing(),
        "page_title": "Monitoring",
        "nav": "monitoring",
        "tab": "overview",
    }
    return render(request, "monitoring/overview.html", context)


def _groups(project: Project, watch: str = "") -> list[screen.OutcomeGroup]:
    """What is measured of the models in service, or of one of them."""
    return [
        screen.outcome_group(title=one.title, watch=one.watch, series=one.series, reward=one.reward)
        for one in reads.measurements(project)
        if not watch or one.watch == watch
    ]


def _card(one: reads.Watched) -> dict[str, Any]:
    good = next((result for result in reversed(one.history) if result.figures), None)
    return {
        "watch": one.watch,
        "latest": one.latest,
        "incident": one.incident,
        "tone": screen.STATE_TONES[one.watch.state],
        "icon": screen.STATE_ICONS[one.watch.state],
        "findings": one.latest.findings if one.latest else [],
        "rows": screen.probe_metric_rows(good, one.history, one.watch.baseline, one.protocols),
        "is_old": good is not one.latest,
        "stages": reads.stages_of(one.watch),
        "asked_at": good.at if good else None,
    }


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def watch_new(request: Request) -> HttpResponse:
    """`?checkpoint=` begins with a model."""
    if request.method == "POST":
        form = WatchForm(request.POST, project=request.project)
        if form.is_valid():
            try:
                watch = watches.watch_create(
                    project=request.project, user=request.user, **form.given()
                )
            except DomainError as error:
                form.refuse(error)
            else:
                messages.success(
                    request, f"{watch.name} is monitored. Its first probe becomes the baseline."
                )
                return redirect("monitoring:watch", request.project.slug, watch.pk)
    else:
        key = request.GET.get("checkpoint", "").replace("\x00", "")
        rows = Checkpoint.objects.filter(project=request.project, pk=key).select_related("run")
        form = WatchForm(project=request.project, checkpoint=rows.first())
    context = {
        "form": form,
        "page_title": "Monitor a model",
        "nav": "monitoring",
    }
    status = 422 if form.errors else 200
    return render(request, "monitoring/watch_new.html", context, status=status)


@require_safe
@project_page(STAFF)
def watch_detail(request: Request, watch_id: str) -> HttpResponse:
    return _page(request, watches.watch_get(project=request.project, watch_id=watch_id))


def _page(
    request: Request, watch: Watch, *, status: int = 200, refused: str = "", **forms: Any
) -> HttpResponse:
    """`forms` replace those of the page by what was typed."""
    page = Paginator(probe_results(watch), PER_PAGE).get_page(request.GET.get("page"))
    history = reads.history_of(watch)
    protocols = reads.protocols_of(history)
    latest = history[-1] if history else None
    good = next((result for result in reversed(history) if result.figures), None)
    context = {
        "watch": watch,
        "tone": screen.STATE_TONES[watch.state],
        "icon": screen.STATE_ICONS[watch.state],
        "latest": latest,
        "good": good,
        "findings": [
            {"tone": screen.finding_tone(one), **one} for one in (latest.findings if latest else [])
        ],
        "rows": screen.probe_metric_rows(
            good, history[-reads.SPARK_PROBES :], watch.baseline, protocols
        ),
        "charts": screen.metric_charts(history, watch.baseline, protocols),
        "outcomes": _groups(request.project, watch.pk),
        "server": ((good.details.get("server") or {}) if good else {}),
        "changes": (good.details.get("changes") or []) if good else [],
        "paired": good.details.get("paired") if good else None,
        "page": page,
        "probe_rows": screen.probe_rows(list(page), watch),
        "incident": reads.incident_of(watch),
        "stages": reads.stages_of(watch),
        "worker_missing": reads.worker_missing(),
        "refused": refused,
        "change_form": ChangeForm(watch=watch),
        "rebase_form": RebaseForm(),
        "retarget_form": RetargetForm(watch=watch),
        "page_title": watch.name,
        "nav": "monitoring",
    }
    return render(request, "monitoring/watch.html", context | forms, status=status)


@require_safe
@project_page(STAFF)
def watch_csv(request: Request, watch_id: str) -> StreamingHttpResponse:
    """Every figure of every probe, newest first."""
    watch = watches.watch_get(project=request.project, watch_id=watch_id)
    rows = screen.csv_rows(list(probe_results(watch)))
    answer = StreamingHttpResponse(
        csv_lines(screen.CSV_COLUMNS, rows), content_type="text/csv; charset=utf-8"
    )
    file = f"{request.project.slug}-watch-{watch.pk}.csv"
    answer["Content-Disposition"] = f'attachment; filename="{file}"'
    return answer


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def watch_traffic(request: Request, watch_id: str) -> HttpResponse:
    """What of its conversations was kept and why, and what is taken from now on."""
    watch = watches.watch_get(project=request.project, watch_id=watch_id)
    form = TrafficForm(
        request.POST if request.method == "POST" else None, setting=traffic.traffic_setting(watch)
    )
    if request.method == "POST" and form.is_valid():
        try:
            traffic.traffic_set(
                project=request.project, watch_id=watch_id, user=request.user, **form.given()
            )
        except DomainError as error:
            form.refuse(error)
        else:
            messages.success(request, "Saved.")
            return redirect("monitoring:watch_traffic", request.project.slug, watch_id)
    context = {
        "watch": watch,
        "form": form,
        "table": traffic_table(watch),
        "page_title": f"Traffic of {watch.name}",
        "nav": "monitoring",
    }
    status = 422 if form.errors or request.method == "POST" else 200
    return render(request, "monitoring/traffic.html", context, status=status)


@require_POST
@project_page(STAFF)
def watch_probe(request: Request, watch_id: str) -> HttpResponse:
    try:
        probes.probe_now(project=request.project, watch_id=watch_id, user=request.user)
    except DomainError as error:
        if error.status == 404:
            raise
        messages.error(request, error.message)
    else:
        messages.success(request, "The probe has started; its result appears on this page.")
    return _back(request, watch_id)


@require_POST
@project_page(STAFF)
def watch_pause(request: Request, watch_id: str) -> HttpResponse:
    """Pause, or go on."""
    on = request.POST.get("enabled") == "yes"
    change = watches.watch_enable if on else watches.watch_disable
    watch = change(project=request.project, watch_id=watch_id, user=request.user)
    messages.success(request, f"{watch.name} is {'asked again' if on else 'paused'}.")
    return _back(request, watch_id)


@require_POST
@project_page(STAFF)
def watch_change(request: Request, watch_id: str) -> HttpResponse:
    watch = watches.watch_get(project=request.project, watch_id=watch_id)
    form = ChangeForm(request.POST, watch=watch)
    if form.is_valid():
        try:
            watches.watch_change(
                project=request.project, watch_id=watch_id, user=request.user, **form.cleaned_data
            )
        except DomainError as error:
            form.refuse(error)
        else:
            messages.success(request, "Saved.")
            return _back(request, watch_id)
    return _page(request, watch, status=422, refused="change", change_form=form)


@require_POST
@project_page(STAFF)
def watch_rebase(request: Request, watch_id: str) -> HttpResponse:
    watch = watches.watch_get(project=request.project, watch_id=watch_id)
    form = RebaseForm(request.POST)
    if form.is_valid():
        try:
            changed = watches.watch_rebase(
                project=request.project, watch_id=watch_id, user=request.user, **form.cleaned_data
            )
        except DomainError as error:
            form.refuse(error)
        else:
            words = (
                "The newest probe is the baseline now."
                if changed.baseline
                else "The next probe becomes the baseline; it begins within a minute."
            )
            messages.success(request, words)
            return _back(request, watch_id)
    return _page(request, watch, status=422, refused="rebase", rebase_form=form)


@require_POST
@project_page(STAFF)
def watch_retarget(request: Request, watch_id: str) -> HttpResponse:
    watch = watches.watch_get(project=request.project, watch_id=watch_id)
    form = RetargetForm(request.POST, watch=watch)
    if form.is_valid():
        data = form.cleaned_data
        try:
            watches.watch_retarget(
                project=request.project,
                watch_id=watch_id,
                checkpoint=input_resolve(request.project, data["checkpoint"]),
                reason=data["reason"],
                user=request.user,
            )
        except DomainError as error:
            form.refuse(error)
        else:
            messages.success(
                request,
                "The next probe uses the new model and compares it with the old baseline. Reset "
                "the baseline once you have reviewed the changes.",
            )
            return _back(request, watch_id)
    return _page(request, watch, status=422, refused="retarget", retarget_form=form)


def _back(request: Request, watch_id: str) -> HttpResponse:
    return redirect("monitoring:watch", request.project.slug, watch_id)

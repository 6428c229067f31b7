"""A group of seeds: one page, its numbers as CSV, and more seeds for it."""

import secrets
from hashlib import sha256

from django.contrib import messages
from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_POST, require_safe

from apps.accounts.permissions import STAFF, project_page
from apps.common.errors import Conflict, DomainError, Missing
from apps.common.http import Request
from apps.common.spreadsheet import csv_lines
from apps.training import display, selectors, services
from apps.training.screens import compare as compare_screen
from apps.training.screens import seeds as screen
from apps.training.screens.panels import PANELS
from apps.training.selectors import pages
from apps.training.selectors.pages import runs_for_list
from apps.training.selectors.protocols import refusal_of
from workers.config import recipe_config


@require_safe
@project_page(STAFF)
def group_detail(request: Request, group: str) -> HttpResponse:
    """The page; for htmx its body, or 204 when nothing has changed since `seen`."""
    runs = selectors.group_runs(project=request.project, group=group)
    seen = "-".join(f"{run.updated_at.timestamp()}.{pages.newest_event(run)}" for run in runs)
    seen = sha256(seen.encode()).hexdigest()[:16]
    if request.htmx and request.GET.get("seen") == seen:
        return HttpResponse(status=204)
    refusal = refusal_of(runs, over_seeds=True)
    metrics = [] if refusal else selectors.group_metrics(runs)
    views = screen.seed_metric_views(runs, metrics)
    swept = screen.sweep_of(runs, metrics, views)
    if swept is not None:  # the runs of one setting together
        runs = [run for row in swept.rows for run in row.runs]
    context = {
        "group": group,
        "seen": seen,
        "runs": runs,
        "rows": [
            {"run": run, "tone": display.TONES[run.state], "progress": display.progress(run)}
            for run in runs
        ],
        "metrics": views,
        "refusal": refusal,
        "swept": swept,
        "verdict": screen.verdict(runs, swept=swept is not None),
        "enough": screen.ENOUGH,
        "any_live": any(run.is_live for run in runs),
        "kind": runs[0].get_kind_display(),
        "config": sorted(recipe_config(runs[0].kind, runs[0].config).items()),
        "key": secrets.token_urlsafe(16),
        "page_title": display.group_name(runs),
        "nav": "runs",
    }
    name = "training/_group.html" if request.htmx else "training/group.html"
    return render(request, name, context)


@require_safe
@project_page(STAFF)
def group_csv(request: Request, group: str) -> StreamingHttpResponse:
    """A row for each metric and step, every point. Refused where the runs are evaluations by
    different protocols."""
    runs = selectors.group_runs(project=request.project, group=group)
    if (refusal := refusal_of(runs, over_seeds=True)) is not None:
        raise Conflict(refusal.message, code="protocols_differ")
    metrics = selectors.group_metrics(runs)
    response = StreamingHttpResponse(
        csv_lines(screen.csv_columns(runs), screen.csv_rows(metrics, runs)),
        content_type="text/csv; charset=utf-8",
    )
    response["Content-Disposition"] = content_disposition_header(True, f"{group}-seeds.csv")
    return response


@require_POST
@project_page(STAFF)
def group_add(request: Request, group: str) -> HttpResponse:
    asked = request.POST.get("seeds", "1")
    runs = services.seeds_add(
        project=request.project,
        group=group,
        seeds=int(asked) if asked.isdecimal() and len(asked) < 4 else 0,
        user=request.user,
        idempotency_key=request.POST.get("key", ""),
    )
    seeds = ", ".join(str(run.seed) for run in runs)
    messages.success(request, f"Launched with seed{'s' if len(runs) > 1 else ''} {seeds}.")
    return redirect("training:group", request.project.slug, group)


@require_POST
@project_page(STAFF)
def group_stop(request: Request, group: str) -> HttpResponse:
    stopped = services.group_stop(project=request.project, group=group, user=request.user)
    messages.success(request, f"{stopped} run{'' if stopped == 1 else 's'} will end.")
    return redirect("training:group", request.project.slug, group)


# Up to five runs side by side.


@require_safe
@project_page(STAFF)
def run_compare(request: Request) -> HttpResponse:
    """`run` names them, as often as there are; of one run, others to compare it with."""
    asked = request.GET.getlist("run")
    context = {
        "page_title": "Compare runs",
        "nav": "runs",
        "most": compare_screen.MOST,
        "panels": PANELS,
    }
    status = 200
    try:
        runs = compare_screen.runs_asked(request.project, asked)
    except Missing:
        raise
    except DomainError as error:
        runs, status = [], 422
        context["problem"] = error.message
    context |= {"runs": runs} | (compare_screen.compared(runs) if runs else {})
    context["others"] = runs_for_list(project=request.project).exclude(
        pk__in=[run.pk for run in runs]
    )[: compare_screen.OFFERED]
    return render(request, "training/compare.html", context, status=status)

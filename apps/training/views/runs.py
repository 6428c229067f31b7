"""The list of runs and the page of one."""

import secrets
from collections.abc import Callable, Iterable
from typing import Any

from csp.constants import SELF
from django.conf import settings
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.http.request import split_domain_port
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from apps.accounts.permissions import STAFF, project_page
from apps.common.http import Request
from apps.common.registry import RunTab, playbook_url, run_tabs
from apps.snapshots.selectors.lineage import datasets_behind
from apps.snapshots.selectors.looks import looks_of_run
from apps.training import display, selectors, services
from apps.training.guidance import PREFLIGHT, failure_of, next_step
from apps.training.models import Run
from apps.training.screens import charts, checks, repeat, repeat_spread, rollback, samples
from apps.training.screens.run_table import MOST_SORTED, RunTable
from apps.training.selectors import pages
from apps.training.selectors.candidates import best_of
from apps.training.selectors.intermediates import removal_of, resume_lost
from apps.training.selectors.queueing import queue_words, why_it_waits
from apps.training.services.held_out import judge_of, judge_people
from apps.training.services.kinds import POLICIES, REPEATED
from apps.training.services.revisions import revisions_dataset, revisions_file
from apps.training.services.rollback import START_ROLE
from apps.training.views.launch import KINDS
from workers.config import recipe_config, recipe_fields
from workers.contract.metrics import headline_names

PER_PAGE = 50
LOG_LINES = 400
LOG_SOURCES = {"": "All lines", "run": "About the run", "output": "Trainer’s output"}
# Tabs whose content grows while the run lives; the charts ask for their own data.
GROWING = frozenset({"overview", "alerts", "checks", "logs", "samples"})
# Tabs of what only our own trainers leave; a run that was imported has none of it.
TRAINERS = frozenset({"checks", "repeat", "logs"})
# Tables of a summary that have a place of their own: here, or on a reward model's page.
SHOWN_ELSEWHERE = frozenset(
    {
        *("splits", "lines", "figures", "preflight", "bottleneck", "latency", "imitation"),
        *("protocol", "repeats", "regression"),
    }
)
ROLLED_BACK = {*START_ROLE, "dpo", "kto"}  # kinds that start from a model: they can go back to it
ARCHIVED = "archived"
STATE_CHOICES = [("live", "live"), *Run.State.choices, (ARCHIVED, ARCHIVED)]


@require_safe
@project_page(STAFF)
def run_list(request: Request) -> HttpResponse:
    search, kind = request.GET.get("q", "").strip(), request.GET.get("kind", "")
    state, tag = request.GET.get("state", ""), request.GET.get("tag", "")
    states = Run.LIVE_STATES if state == "live" else [state] if state in Run.State else []
    found = pages.runs_for_list(
        project=request.project,
        search=search,
        kind=kind,
        states=states,
        tag=tag,
        archived=state == ARCHIVED,
    )
    kinds = Run.objects.filter(project=request.project).values_list("kind", flat=True).distinct()
    table = RunTable(request.GET, [kind] if kind in Run.Kind else kinds.order_by())
    if too_many := bool(table.sort) and found.count() > MOST_SORTED:
        rows = table.sorted(found[:MOST_SORTED])
    else:
        rows = table.sorted(found) if table.sort else found
    page = Paginator(rows, PER_PAGE).get_page(request.GET.get("page"))
    if not table.sort:
        table.measure(page)
    words = queue_words() if any(run.state == Run.State.QUEUED for run in page) else {}
    sizes = selectors.group_sizes(request.project, [run.group for run in page])
    context = {
        "page": page,
        "rows": [
            {
                "run": run,
                "tone": display.TONES[run.state],
                "progress": display.progress(run),
                "waits": words.get(run.pk, ""),
                "group_size": sizes.get(run.group, 0),
                "cells": table.cells(run),
            }
            for run in page
        ],
        "table": table,
        "too_many": too_many,
        "most_sorted": MOST_SORTED,
        "tag": tag,
        "tags": [] if request.htmx else pages.tags_used(request.project),
        "any_live": any(run.is_live for run in page),
        "search": search,
        "kind": kind,
        "state": state,
        "kinds": Run.Kind.choices,
        "states": STATE_CHOICES,
        "filtered": bool(search or kind or state or tag),
        "page_title": "Runs",
        "nav": "runs",
    }
    return render(request, "training/_runs.html" if request.htmx else "training/runs.html", context)


@require_safe
@project_page(STAFF)
def run_detail(request: Request, run_id: str) -> HttpResponse:
    """The page; for htmx its live parts, or 204 when nothing has changed since `seen`."""
    run = selectors.run_get(project=request.project, run_id=run_id)
    waits = why_it_waits(run)
    seen = pages.run_seen(run, waits)
    if request.htmx and request.GET.get("seen") == seen:
        return HttpResponse(status=204)
    tab = tab_named(request.GET.get("tab", ""), run)
    with_tab = not request.htmx or tab in GROWING
    context = live_context(request, run, tab=tab, waits=waits, seen=seen, with_tab=with_tab)
    if request.htmx:
        return render(request, "training/_live.html", context)
    context["tabs"] = tab_labels(run, run_tabs(run), len(context["open_alerts"]))
    origin = stream_origin(request)
    if run.is_live and settings.STREAM_WATCHERS:
        context["stream"] = origin + reverse("training:run_stream", args=[run.project.slug, run.pk])
    response = render(request, "training/run.html", context)
    if origin:
        response._csp_update = {"connect-src": [SELF, origin]}
    return response


def live_context(
    request: Request, run: Run, *, tab: str, waits: str, seen: str, with_tab: bool
) -> dict[str, Any]:
    """The head of the page, and the tab where it is wanted."""
    context = header(run) | {
        "waits": waits,
        "tab": tab,
        "seen": seen,
        "with_tab": with_tab,
        "nav": "runs",
        "page_title": run.name,
        "tab_template": f"training/_{tab}.html",
    }
    if not with_tab:
        return context
    if tab in TABS:
        return context | TABS[tab](request, run)
    return context | next(_other(run, one) for one in run_tabs(run) if one.name == tab)


def tab_named(name: str, run: Run) -> str:
    """The tab of an address, if the run has it."""
    return name if name in TABS or name in {tab.name for tab in run_tabs(run)} else "overview"


def stream_origin(request: Request) -> str:
    """Where event streams are served: by the proxy, under the page's own origin (empty), or else on
    a port of the same host."""
    if settings.BEHIND_PROXY:
        return ""
    host = split_domain_port(request.get_host())[0]
    return f"{request.scheme}://{host}:{settings.STREAM_PORT}"


@require_safe
@project_page(STAFF)
def run_stream(request: Request, run_id: str) -> HttpResponse:
    """Whether this person may watch this run; 204, at which a browser stops asking, once it has
    ended. The stream itself comes from config/asgi.py, which asks here."""
    run = selectors.run_get(project=request.project, run_id=run_id)
    if not run.is_live:
        return HttpResponse(status=204)
    return HttpResponse("Event streams have a process of their own: config/asgi.py.")


def _other(run: Run, tab: RunTab) -> dict[str, Any]:
    """A tab that a later app fills: the page loads its fragment."""
    return {
        "tab_template": "training/_fragment.html",
        "fragment_url": reverse(tab.url_name, args=[run.project.slug, run.pk]),
        "fragment_label": tab.label,
    }


def tab_labels(run: Run, others: Iterable[RunTab], open_alerts: int) -> list[tuple[str, str, int]]:
    """(name, label, how many things wait there); what later apps add stands after the charts."""
    names = [name for name in TABS if run.kind != Run.Kind.IMPORTED or name not in TRAINERS]
    own = [(name, name.capitalize(), open_alerts if name == "alerts" else 0) for name in names]
    added = [(tab.name, tab.label, tab.badge(run) if tab.badge else 0) for tab in others]
    place = names.index("charts") + 1
    return [*own[:place], *added, *own[place:]]


def header(run: Run) -> dict[str, Any]:
    fired = pages.alerts_of(run)
    attempt = run.attempts.order_by("-number").first()
    imported = run.kind == Run.Kind.IMPORTED
    ended_early = run.state in (Run.State.FAILED, Run.State.CANCELLED) and not imported
    lost = resume_lost(run) if ended_early else None
    return {
        "run": run,
        "tone": display.TONES[run.state],
        "layout_words": display.layout_words(run),
        "favicon": display.FAVICONS.get(run.state, "favicon.svg"),
        "tab_title": display.title(run),
        "progress": display.progress(run, attempt),
        "environment": display.facts(attempt.environment) if attempt else [],
        "tiles": display.headline_tiles(
            run, pages.latest_metrics(run, headline_names(run.trained_kind))
        ),
        "attempt": attempt,
        "parked": selectors.parked_count(run),
        "imported_from": display.imported_from(run) if imported else "",
        "group_size": selectors.group_sizes(run.project, [run.group]).get(run.group, 0),
        "open_alerts": [a for a in fired if a.acknowledged_at is None and a.severity != "info"],
        "may_stop": run.state == Run.State.RUNNING and not imported,
        "may_cancel": run.is_live and run.command != "cancel" and not imported,
        "may_resume": ended_early and lost is None,
        "resume_lost": lost,
        "may_clone": run.kind in dict(KINDS),
        "may_repeat": run.kind in REPEATED and run.state == Run.State.FINISHED,
        "stopped_on_purpose": run.fault == "guard" or run.failure_kind.startswith(PREFLIGHT),
        "may_roll_back": not run.is_live and run.kind in ROLLED_BACK,
        "turn": next_step(run),
        "failure_page": playbook_url(run.project.slug, run.failure_kind),
    }


# --- the tabs: each reads what it shows ---


def _overview(request: Request, run: Run) -> dict[str, Any]:
    kept = rollback.checkpoint_rows(run)
    return {
        "inputs": selectors.lineage_up(run, depth=1),
        "judge_people": judge_people(run),
        "judge": judge_of(run),
        "checkpoints": kept,
        "superseded": len(selectors.checkpoints(run)) - len(kept),
        "removal": removal_of(run),
        "failure": failure_of(run, pages.alerts_of(run)),
        "rollback_offer": rollback.rollback_offer(run),
        "key": secrets.token_urlsafe(16),
        "may_evaluate": bool(
            run.kind in POLICIES and kept and not services.evaluation_missing(kept[0].checkpoint)
        ),
        "may_promote": run.kind in POLICIES,
        "artifacts": pages.artifacts_of(run),
        "attempts": list(run.attempts.order_by("number")),
        "constitution": run.config.get("constitution"),
        "revisions": revisions_file(run),
        "revised": revisions_dataset(run) if run.kind == Run.Kind.GENERATE else None,
        "splits": display.reward_splits(run),
        "traits": display.imitation_traits(run),
        "looks": looks_of_run(run.pk),
        "best_of": best_of(run),
        "repeat_rows": repeat_spread.repeat_rows(run),
        "summary": display.summary_parts(run.summary, skip=SHOWN_ELSEWHERE),
    }


def _charts(request: Request, run: Run) -> dict[str, Any]:
    return charts.charts_context(run, request.GET)


def _samples(request: Request, run: Run) -> dict[str, Any]:
    return samples.samples_context(run, request.GET, user=request.user)


def _alerts(request: Request, run: Run) -> dict[str, Any]:
    return {"alert_rows": charts.alert_rows(run, pages.alerts_of(run))}


def _config(request: Request, run: Run) -> dict[str, Any]:
    known = {field.name: field for field in recipe_fields(run.kind)}
    others = pages.runs_for_list(project=request.project, kind=run.kind).exclude(pk=run.pk)[:100]
    against = next((other for other in others if other.pk == request.GET.get("against")), None)
    rows = [
        {
            "name": name,
            "value": display.as_line(value),
            "field": known.get(name),
            "changed": name in known and value != known[name].default,
            "preset": name not in run.config,
        }
        for name, value in recipe_config(run.kind, run.config).items()
    ]
    return {
        "config_rows": rows,
        "config_json": display.as_json(run.config),
        "spec_json": display.as_json(_spec(run)),
        "others": others,
        "against": against,
        "diff": display.config_diff(
            recipe_config(run.kind, run.config), recipe_config(run.kind, against.config)
        )
        if against
        else [],
    }


def _spec(run: Run) -> dict[str, Any]:
    attempt = run.attempts.order_by("-number").first()
    return attempt.spec if attempt else {}


def _logs(request: Request, run: Run) -> dict[str, Any]:
    asked = request.GET.get("lines", "")
    source = asked if asked in LOG_SOURCES else ""
    return {
        "log": selectors.log_tail(run=run, lines=LOG_LINES, source=source),
        "log_lines": LOG_LINES,
        "log_source": source,
        "log_sources": LOG_SOURCES.items(),
    }


def _lineage(request: Request, run: Run) -> dict[str, Any]:
    return {
        "up": selectors.lineage_up(run),
        "down": selectors.lineage_down(run),
        "behind": datasets_behind(run),
    }


def _checks(request: Request, run: Run) -> dict[str, Any]:
    latest = pages.latest_metrics(run, checks.METRICS)
    return {"checks": checks.checks_view(run, latest)}


def _repeat(request: Request, run: Run) -> dict[str, Any]:
    shown = repeat.repeat_view(run)
    return {
        "repeat": shown,
        "launch_json": display.as_json(shown.launch),
        "key": secrets.token_urlsafe(16),
    }


TABS: dict[str, Callable[[Request, Run], dict[str, Any]]] = {
    "overview": _overview,
    "charts": _charts,
    "samples": _samples,
    "alerts": _alerts,
    "checks": _checks,
    "config": _config,
    "repeat": _repeat,
    "logs": _logs,
    "lineage": _lineage,
}

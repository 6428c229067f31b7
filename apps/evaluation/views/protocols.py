"""Protocols of evaluations: the list, one with the runs that used it, two with what differs."""

import json
from typing import Any

from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from apps.accounts.permissions import STAFF, project_page
from apps.common.http import Request
from apps.evaluation.models import EvaluationProtocol
from apps.evaluation.selectors import protocols as selectors
from apps.training.selectors import run_get

PER_PAGE = 50
OFFERED = 100  # protocols to compare one with
SHOWN = 50  # runs of one
PAGES = {"nav": "runs"}


def protocol_address(slug: str, one: str, other: str = "") -> str:
    """The page of a protocol, or of two beside each other, by their hashes."""
    if other:
        return reverse("evaluation:protocol_diff", args=[slug, one, other])
    return reverse("evaluation:protocol", args=[slug, one])


@require_safe
@project_page(STAFF)
def protocol_list(request: Request) -> HttpResponse:
    rows = selectors.protocols(project=request.project)
    page = Paginator(rows, PER_PAGE).get_page(request.GET.get("page"))
    context = PAGES | {"page": page, "page_title": "Evaluation protocols"}
    return render(request, "evaluation/protocols.html", context)


@require_safe
@project_page(STAFF)
def protocol(request: Request, sha256: str) -> HttpResponse:
    """One; `?against=` leads to it beside another."""
    found = selectors.protocol_get(project=request.project, sha256=sha256)
    if against := request.GET.get("against", ""):
        other = selectors.protocol_get(project=request.project, sha256=against)
        return redirect(protocol_address(request.project.slug, found.sha256, other.sha256))
    context = PAGES | {"page_title": f"Protocol {found.short}"} | _shown(found)
    return render(request, "evaluation/protocol.html", context)


def _shown(found: EvaluationProtocol) -> dict[str, Any]:
    runs = selectors.runs_by(found)
    others = selectors.protocols(project=found.project).exclude(pk=found.pk)
    return {
        "protocol": found,
        "lines": json.dumps(found.content, indent=2, sort_keys=True, ensure_ascii=False),
        "runs": runs[:SHOWN],
        "n_runs": runs.count(),
        "others": others[:OFFERED],
    }


@require_safe
@project_page(STAFF)
def protocol_diff(request: Request, sha256: str, other: str) -> HttpResponse:
    one, two = (
        selectors.protocol_get(project=request.project, sha256=key) for key in (sha256, other)
    )
    context = PAGES | {
        "one": one,
        "other": two,
        "differences": selectors.protocol_differences(one, two),
        "runs_of_one": selectors.runs_by(one)[:SHOWN],
        "runs_of_other": selectors.runs_by(two)[:SHOWN],
        "page_title": f"Protocols {one.short} and {two.short}",
    }
    return render(request, "evaluation/protocol_diff.html", context)


@require_safe
@project_page(STAFF)
def run_protocol(request: Request, run_id: str) -> HttpResponse:
    """The tab of an evaluation's page: its protocol, or that it has none."""
    run = run_get(project=request.project, run_id=run_id)
    found = selectors.protocol_of_run(run)
    context = PAGES | {"run": run, "page_title": f"Protocol of {run.name}"}
    context |= _shown(found) if found else {}
    name = "_run_protocol.html" if request.htmx else "run_protocol.html"
    return render(request, f"evaluation/{name}", context)

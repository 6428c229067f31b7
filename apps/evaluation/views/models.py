"""Pages of reward models: the list, the page of one, its numbers, two side by side."""

import secrets
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_http_methods, require_safe
from django_htmx.http import HttpResponseClientRefresh

from apps.accounts.models import Project
from apps.accounts.permissions import STAFF, project_page
from apps.common.errors import DomainError, Missing
from apps.common.health import queues_heard
from apps.common.http import Request
from apps.common.report.axes import headline
from apps.common.report.blocks import text_view
from apps.common.spreadsheet import csv_lines
from apps.evaluation.forms import AssessForm
from apps.evaluation.lines import LINES
from apps.evaluation.screens import page as screen
from apps.evaluation.screens.page import beside_accuracy, ceiling_says
from apps.evaluation.screens.page import compare as compare_findings
from apps.evaluation.selectors import assessments
from apps.evaluation.selectors import models as selectors
from apps.evaluation.selectors.assessments import assess_runs, start_inputs
from apps.evaluation.selectors.judges import certificates_behind
from apps.evaluation.selectors.models import (
    UNDER_WAY,
    Judgement,
    findings_of_state,
    judgement_of,
    page_sha256,
    reward_model_get,
)
from apps.evaluation.services.reviewing import assessment_name, assessment_start
from apps.snapshots.models import Snapshot
from apps.training import display
from apps.training.forms.launch import ROLE_LABELS
from apps.training.models import Artifact, Checkpoint, Run
from apps.training.selectors.protocols import refusal_of
from apps.training.services.kinds import run_inputs
from workers.config import recipe_presets
from workers.contract.jobs import PEOPLE

PER_PAGE = 20  # the findings of each are read
CHOICES = 200
_Status = Checkpoint.Status


@require_safe
@project_page(STAFF)
def reward_models(request: Request) -> HttpResponse:
    search, status = request.GET.get("q", "").strip(), request.GET.get("status", "")
    search = search.replace("\x00", "")
    status = status if status in _Status.values else ""
    rows = selectors.reward_models(project=request.project, search=search, status=status)
    page = Paginator(rows, PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "page": page,
        "rows": [_row(model) for model in page],
        "search": search,
        "status": status,
        "statuses": _Status.choices,
        "filtered": bool(search or status),
        "page_title": "Reward models",
        "nav": "reward_models",
    }
    return render(request, "evaluation/reward_models.html", context)


def _row(model: Checkpoint) -> dict[str, Any]:
    judgement = judgement_of(model, quick=True)
    return {
        "model": model,
        "assessed": judgement.assessment is not None,
        "live": judgement.finding("accuracy").says == UNDER_WAY,
        "n_red": len(judgement.red),
        "n_unmeasured": len(judgement.unmeasured),
        "n_green": len(judgement.green),
        "accuracy": headline(judgement.finding("accuracy").figure),
    }


@require_safe
@project_page(STAFF)
def reward_model(request: Request, checkpoint_id: str) -> HttpResponse:
    """The page; for htmx the progress of the assessment under way, and the whole page again once
    that has ended."""
    model = selectors.reward_model_get(project=request.project, checkpoint_id=checkpoint_id)
    runs = list(assessments.assess_runs(model)[:50])
    live = next((run for run in runs if run.is_live), None)
    progress = _progress(live) if live else {}
    if request.htmx:
        if live is None or live.pk != request.GET.get("watch"):
            return HttpResponseClientRefresh()
        assessed = any(run.state == Run.State.FINISHED for run in runs)
        context = {"checkpoint": model, "assessed": assessed, **progress}
        return render(request, "evaluation/_assessing.html", context)
    judgement = judgement_of(model)
    context = _page(model, judgement, runs) | progress
    return render(request, "evaluation/reward_model.html", context)


def _progress(live: Run) -> dict[str, Any]:
    attempt = live.attempts.order_by("-number").first()
    return {
        "live": live,
        "progress": display.progress(live, attempt),
        "live_title": display.title(live),
    }


def _page(model: Checkpoint, judgement: Judgement, runs: list[Run]) -> dict[str, Any]:
    found = judgement.assessment
    reviews = selectors.reviews_of(model)
    current_review = reviews[0] if reviews else None
    approved = (
        current_review is not None and current_review.status == model.status == _Status.APPROVED
    )
    kept = findings_of_state(current_review.state) if approved and current_review else ()
    newest = runs[0] if runs else None
    failed = newest if newest is not None and newest.state == Run.State.FAILED else None
    return {
        "checkpoint": model,
        "assessed": found is not None,
        "assessment": found.run if found else None,
        "broken": found.broken if found else "",
        "failed": failed,
        "may_assess": model.status != _Status.REJECTED,
        "verdict": screen.verdict_view(judgement.findings),
        "groups": screen.group_views(judgement.findings),
        "beside": beside_accuracy(judgement.finding("accuracy"), judgement.ceiling),
        "ceiling": ceiling_says(judgement.ceiling) if found else [],
        "peoples": display.peoples_splits(model.run),
        "ai_assessed": _labelled_by_ai(found.run) if found else None,
        "top": [text_view(one) for one in found.top] if found else [],
        "bottom": [text_view(one) for one in found.bottom] if found else [],
        "reviews": reviews,
        "current_review": current_review,
        "moved": approved
        and current_review
        and page_sha256(current_review.state) != judgement.sha256,
        "newly_failed": screen.turned_red(kept, judgement.findings) if approved else [],
        "then": screen.open_lines(kept),
        "own_model": current_review is not None and current_review.by_id == model.run.created_by_id,
        "trained_on": assessments.dataset_of(model.run),
        "certificates": certificates_behind(model),
        "inputs": _inputs(model.project, found.run) if found else [],
        "earlier": [run for run in runs if found is None or run.pk != found.run.pk],
        "page_title": f"{model.run.name}, step {model.step:,}",
        "nav": "reward_models",
    }


def _labelled_by_ai(run: Run) -> Snapshot | None:
    """What an assessment measured on, where no person labelled a row of it."""
    dataset = assessments.dataset_of(run)
    by = dataset.counts.get("labelled_by") if dataset else None
    return dataset if by and PEOPLE not in by else None


def _inputs(project: Project, run: Run) -> list[tuple[str, str, str]]:
    """(label, name, address) of what an assessment read beside the model itself."""
    rows = []
    for role, given in run_inputs(run).items():
        if role == "reward":
            continue
        if isinstance(given, Snapshot):
            address = reverse("snapshots:detail", args=[project.slug, given.pk])
            name = given.name
        elif isinstance(given, Checkpoint):
            address = reverse("training:model", args=[project.slug, given.pk])
            name = f"{given.run.name}, step {given.step:,}"
        else:
            source = given.run if isinstance(given, Artifact) else given
            address = reverse("training:run", args=[project.slug, source.pk])
            name = source.name
        rows.append((ROLE_LABELS.get(role, role), name, address))
    return rows


@require_safe
@project_page(STAFF)
def line_csv(request: Request, checkpoint_id: str, line: str) -> HttpResponse:
    """Every number of one line's evidence."""
    model = selectors.reward_model_get(project=request.project, checkpoint_id=checkpoint_id)
    if line not in LINES:
        raise Missing("There is no such check.", field="line")
    rows = screen.csv_rows(judgement_of(model).finding(line))
    text = "".join(csv_lines(screen.CSV_COLUMNS, rows))
    answer = HttpResponse(text, content_type="text/csv; charset=utf-8")
    name = f"{request.project.slug}-{model.pk}-{line}.csv"
    answer["Content-Disposition"] = content_disposition_header(True, name)
    return answer


@require_safe
@project_page(STAFF)
def compare(request: Request) -> HttpResponse:
    """`?a=` and `?b=` name two models; a picker stands where one is missing."""
    choices = [
        (model.pk, f"{model.run.name}, step {model.step:,} · {', '.join(model.tags)} · {model.pk}")
        for model in selectors.reward_models(project=request.project)[:CHOICES]
    ]
    sides = [_side(request, letter) for letter in "ab"]
    chosen = [side for side in sides if side]
    context: dict[str, Any] = {
        "choices": choices,
        "a": sides[0],
        "b": sides[1],
        "sides": chosen,
        "page_title": "Compare reward models",
        "nav": "reward_models",
    }
    if len(chosen) == 2:
        assessed = [side["assessment"] for side in chosen if side["assessment"]]
        refusal = refusal_of(assessed) if chosen[0]["model"] != chosen[1]["model"] else None
        if refusal is None:
            context["comparison"] = compare_findings(*(side["findings"] for side in chosen))
        context |= {"refusal": refusal, "notes": _comparability(*chosen)}
    return render(request, "evaluation/compare.html", context)


def _side(request: Request, letter: str) -> dict[str, Any] | None:
    wanted = request.GET.get(letter, "")
    if not wanted:
        return None
    model = selectors.reward_model_get(project=request.project, checkpoint_id=wanted)
    judgement = judgement_of(model)
    run = judgement.assessment.run if judgement.assessment else None
    return {
        "letter": letter.upper(),
        "model": model,
        "findings": judgement.findings,
        "verdict": screen.verdict_view(judgement.findings),
        "assessment": run,
        "dataset": assessments.dataset_of(run) if run else None,
    }


def _comparability(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    if a["model"] == b["model"]:
        return ["A and B are the same model."]
    missing = [side["letter"] for side in (a, b) if side["assessment"] is None]
    if missing:
        have = "has" if len(missing) == 1 else "have"
        return [f"{' and '.join(missing)} {have} not been assessed yet."]
    if a["dataset"] != b["dataset"]:
        names = " and ".join(
            f"{side['letter']} on “{side['dataset'].name}”" if side["dataset"] else side["letter"]
            for side in (a, b)
        )
        return [
            f"They were assessed on different datasets ({names}): their figures are not "
            "comparable. Assess both on the same one."
        ]
    return []


# Starting an assessment of a reward model.


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def assess(request: Request, checkpoint_id: str) -> HttpResponse:
    """The form begins with what the last assessment read, else with what the model learned from."""
    model = reward_model_get(project=request.project, checkpoint_id=checkpoint_id)
    form = _form(request, model)
    if request.method == "POST" and form.is_valid():
        data = form.cleaned_data
        try:
            run = assessment_start(
                checkpoint=model,
                inputs=data["inputs"],
                config=data["config"],
                name=data["name"],
                seed=data["seed"],
                queue=data["queue"],
                user=request.user,
                idempotency_key=data["key"],
            )
        except DomainError as error:
            form.refuse(error)
        else:
            messages.success(request, f"{run.name} is {run.get_state_display()}.")
            return redirect("evaluation:reward_model", request.project.slug, model.pk)
    context = {
        "checkpoint": model,
        "form": form,
        "presets": sorted(recipe_presets(Run.Kind.ASSESS)),
        "page_title": "Assess this reward model",
        "nav": "reward_models",
    }
    return render(request, "evaluation/assess.html", context, status=422 if form.errors else 200)


def _form(request: Request, model: Checkpoint) -> AssessForm:
    common: dict[str, Any] = {
        "checkpoint": model,
        "defaults": start_inputs(model),
        "queues_heard": queues_heard(),
    }
    if "preset" in request.POST:
        chosen = request.POST["preset"]
        return AssessForm.with_preset(request.POST, preset=chosen, of=Run.Kind.ASSESS, **common)
    if request.method == "POST":
        return AssessForm(request.POST, **common)
    preset = request.GET.get("preset", "")
    before = None if preset else assess_runs(model).first()
    initial = {"name": assessment_name(model), "key": secrets.token_urlsafe(16)}
    return AssessForm(initial=initial, source=before, preset=preset, **common)

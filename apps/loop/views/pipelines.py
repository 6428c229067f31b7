"""Pages of pipelines and their rounds."""

from collections.abc import Callable
from hashlib import sha256
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from apps.accounts.permissions import STAFF, project_page
from apps.common.errors import DomainError
from apps.common.http import Request
from apps.loop.forms import PipelineForm, PipelineNewForm, PipelineTemplateForm
from apps.loop.models import Pipeline, Round, RoundStep
from apps.loop.recipe import TITLES
from apps.loop.screens.graph import graph
from apps.loop.screens.selecting import verdict_of
from apps.loop.selectors import pipelines as selectors
from apps.loop.selectors.figures import RoundFigures, figures_by_round
from apps.loop.selectors.rules import next_due, rules_of, spent_of
from apps.loop.services.pipelines import pipeline_change, pipeline_make
from apps.loop.services.rounds import round_act, round_advance, round_start
from apps.loop.services.templates import pipeline_from_template
from apps.snapshots.selectors.snapshots import snapshot_get
from apps.training.selectors import run_get
from apps.training.selectors.pages import checkpoint_get

PER_PAGE = 20
PREFILLED = ("run", "name", "trigger_pairs")  # fields that a link to the form may fill in
TONES = {
    "running": "live",
    "waiting": "warn",
    "failed": "bad",
    "finished": "good",
    "done": "good",
}  # of badges, by the state of a round or a step
SAID = {
    "pause": "The round is paused.",
    "resume": "The round continues.",
    "stop": "The round is stopped.",
    "skip": "The step is skipped.",
    "redo": "The step is done again.",
}


@require_safe
@project_page(STAFF)
def pipelines(request: Request) -> HttpResponse:
    page = Paginator(selectors.pipelines_of(request.project), PER_PAGE).get_page(
        request.GET.get("page")
    )
    lines = [
        {
            "pipeline": one,
            "version": selectors.version_now(one),
            "fresh": selectors.fresh_pairs(one),
            "last": (last := selectors.rounds_of(one).first()),
            "tone": TONES.get(last.state, "") if last else "",
        }
        for one in page
    ]
    context = {
        "page": page,
        "lines": lines,
        "page_title": "Rounds",
        "nav": "pipelines",
    }
    return render(request, "loop/pipelines.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def pipeline_new(request: Request) -> HttpResponse:
    form = PipelineNewForm(
        request.POST if request.method == "POST" else None,
        project=request.project,
        initial={name: request.GET[name] for name in PREFILLED if name in request.GET},
    )

    def make(found: dict[str, Any]) -> Pipeline:
        return pipeline_make(
            project=request.project,
            user=request.user,
            run=run_get(project=request.project, run_id=found["run"]),
            name=found["name"],
            as_round=found["as_round"],
            rules=form.rules(),
        )

    return _making(request, form, make, "loop/pipeline_new.html", "New pipeline")


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def pipeline_template(request: Request) -> HttpResponse:
    """For a project that has trained nothing yet."""
    form = PipelineTemplateForm(
        request.POST if request.method == "POST" else None, project=request.project
    )

    def make(found: dict[str, Any]) -> Pipeline:
        return pipeline_from_template(
            project=request.project,
            user=request.user,
            rules=form.rules(),
            policy=checkpoint_get(project=request.project, checkpoint_id=found["policy"]),
            prompts=snapshot_get(project=request.project, snapshot_id=found["prompts"]),
            **{name: found[name] for name in ("template", "size", "name", "generates")},
        )

    title = "New pipeline of a template"
    return _making(request, form, make, "loop/pipeline_template.html", title)


def _making(
    request: Request,
    form: PipelineNewForm | PipelineTemplateForm,
    make: Callable[[dict[str, Any]], Pipeline],
    template: str,
    title: str,
) -> HttpResponse:
    if request.method == "POST" and form.is_valid():
        try:
            made = make(form.cleaned_data)
        except DomainError as error:
            form.refuse(error)
        else:
            return redirect("loop:pipeline", request.project.slug, made.pk)
    context = {"form": form, "page_title": title, "nav": "pipelines"}
    return render(request, template, context, status=422 if request.method == "POST" else 200)


@require_safe
@project_page(STAFF)
def pipeline(request: Request, pipeline_id: str) -> HttpResponse:
    """Its rounds side by side, its steps, and when the next one starts."""
    found = selectors.pipeline_get(project=request.project, pipeline_id=pipeline_id)
    version = selectors.version_now(found)
    every = list(selectors.rounds_of(found))
    page = Paginator(every, PER_PAGE).get_page(request.GET.get("page"))
    figures = figures_by_round(every, {one.number for one in page})
    context = {
        "pipeline": found,
        "version": version,
        "rules": rules_of(version),
        "next_due": next_due(version, rules_of(version), timezone.now()),
        "steps": selectors.steps_of(version),
        "graph": graph(selectors.steps_of(version), None, TONES),
        "fresh": selectors.fresh_pairs(found),
        "live": next((one for one in every if one.is_live), None),
        "page": page,
        "lines": [_line(one, figures[one.number]) for one in page],
        "page_title": found.name,
        "nav": "pipelines",
    }
    return render(request, "loop/pipeline.html", context)


def _line(row: Round, figures: RoundFigures) -> dict[str, Any]:
    steps = selectors.round_steps(row)
    return {
        "round": row,
        "tone": TONES.get(row.state, ""),
        "figures": figures,
        "wait": selectors.wait_of(row, steps),
        "spent": spent_of(row, steps),
    }


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def pipeline_edit(request: Request, pipeline_id: str) -> HttpResponse:
    found = selectors.pipeline_get(project=request.project, pipeline_id=pipeline_id)
    form = PipelineForm(
        request.POST if request.method == "POST" else None,
        pipeline=found,
        version=selectors.version_now(found),
    )
    if request.method == "POST" and form.is_valid():
        try:
            version = pipeline_change(pipeline=found, user=request.user, **form.given())
        except DomainError as error:
            form.refuse(error)
        else:
            messages.success(request, f"Version {version.number} counts from the next round on.")
            return redirect("loop:pipeline", request.project.slug, found.pk)
    context = {
        "pipeline": found,
        "form": form,
        "verdict": verdict_of(request.project),
        "page_title": f"Change {found.name}",
        "nav": "pipelines",
    }
    status = 422 if request.method == "POST" else 200
    return render(request, "loop/pipeline_edit.html", context, status=status)


@require_POST
@project_page(STAFF)
def pipeline_start(request: Request, pipeline_id: str) -> HttpResponse:
    found = selectors.pipeline_get(project=request.project, pipeline_id=pipeline_id)
    try:
        row = round_start(pipeline=found, user=request.user)
    except DomainError as error:
        messages.error(request, error.message)
        return redirect("loop:pipeline", request.project.slug, found.pk)
    round_advance(round_id=row.pk)
    return redirect("loop:round", request.project.slug, found.pk, row.number)


@require_safe
@project_page(STAFF)
def round_page(request: Request, pipeline_id: str, number: int) -> HttpResponse:
    """What it waits for, who must act, what each step made, what it measured."""
    row = selectors.round_get(project=request.project, pipeline_id=pipeline_id, number=number)
    steps = selectors.round_steps(row)
    wait = selectors.wait_of(row, steps)
    seen = _seen(row, steps, wait)
    if request.htmx and request.GET.get("seen") == seen:
        return HttpResponse(status=204)
    earlier = selectors.rounds_of(row.pipeline).filter(number__lte=row.number)
    now = selectors.current_step(steps) if row.is_live else None
    context = {
        "round": row,
        "tone": TONES.get(row.state, ""),
        "wait": wait,
        "current": now,
        "steps": [(one, TITLES[one.key], TONES.get(one.state, "")) for one in steps],
        "figures": figures_by_round(list(earlier), {row.number})[row.number],
        "spent": spent_of(row, steps),
        "rules": rules_of(row.version),
        "graph": graph(selectors.steps_of(row.version), {one.key: one for one in steps}, TONES),
        "seen": seen,
        "page_title": str(row),
        "nav": "pipelines",
    }
    return render(request, "loop/_round.html" if request.htmx else "loop/round.html", context)


def _seen(row: Round, steps: list[RoundStep], wait: selectors.Wait | None) -> str:
    """Changes with what the page shows of the round."""
    shown = [row.state, wait.words if wait else "", *(f"{one.state}{one.run_id}" for one in steps)]
    return sha256("|".join(shown).encode()).hexdigest()[:16]


@require_POST
@project_page(STAFF)
def round_change(request: Request, pipeline_id: str, number: int) -> HttpResponse:
    row = selectors.round_get(project=request.project, pipeline_id=pipeline_id, number=number)
    action = request.POST.get("action", "")
    try:
        round_act(
            round=row,
            action=action,
            user=request.user,
            step=request.POST.get("step", ""),
            reason=request.POST.get("reason", ""),
        )
    except DomainError as error:
        messages.error(request, error.message)
    else:
        messages.success(request, SAID[action])
    return redirect("loop:round", request.project.slug, pipeline_id, number)

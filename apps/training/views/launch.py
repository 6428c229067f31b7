"""Starting a run: choose its kind, fill its form."""

import secrets
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from apps.accounts.permissions import STAFF, project_page
from apps.accounts.reauthentication import fresh_sign_in_required
from apps.common.errors import DomainError
from apps.common.health import queues_heard
from apps.common.http import Request
from apps.training import selectors, services
from apps.training.forms.launch import RunForm
from apps.training.forms.trying import AnswersForm
from apps.training.guidance import advised_changes
from apps.training.models import Run
from apps.training.screens import rollback
from apps.training.screens.checks import check_result, layouts_of
from apps.training.screens.estimate import form_estimate
from apps.training.selectors import pages
from apps.training.selectors.constitution import constitution_current
from apps.training.selectors.queueing import why_it_waits
from apps.training.services.kinds import OPTIMISED
from workers.config import preset_purposes, recipe_presets
from workers.contract.jobs import LAYOUTS, MOST_PROCESSES, ONE

# In the order of the loop, with what each is for.
KINDS = (
    ("sft", "Teach a model to answer, from demonstrations."),
    ("reward", "Learn from comparisons which answer people prefer."),
    ("process_reward", "Learn which steps of a trajectory are right, from judged steps."),
    ("dpo", "Learn a policy from comparisons directly, without a reward model."),
    ("kto", "Learn a policy from single answers that are desirable or not, or from comparisons."),
    ("ppo", "Train a policy against a reward model, held close to its SFT model."),
    ("grpo", "Train a policy by comparing answers with their own group: a verifier or a model."),
    ("generate", "Answer prompts with a policy: fresh pairs for people to compare."),
    ("evaluate", "Compare a policy with its SFT model on fixed prompts."),
    ("assess", "Check whether a reward model is fit for optimisation."),
    (
        "register_policy",
        "Bring a language model: a folder on the worker, a hub id, or an adapter with its base.",
    ),
    ("register_reward", "Bring a reward model that was trained elsewhere: one score for a text."),
    ("register_encoder", "Bring an encoder without a head, for reward models to start from."),
    (
        "served",
        "Bring a model by its OpenAI-compatible server: it answers there, without weights here.",
    ),
    ("drill", "Train nothing: check in seconds that queue, worker and page work."),
)

TRIED = "tried"  # names of fields begin with it


@require_safe
@project_page(STAFF)
def run_kinds(request: Request) -> HttpResponse:
    labels = dict(Run.Kind.choices)
    context = {
        "kinds": [(kind, labels[kind], text) for kind, text in KINDS],
        "page_title": "New run",
        "nav": "runs",
    }
    return render(request, "training/kinds.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
@fresh_sign_in_required(when=lambda request: bool(request.POST.get("override_reason", "").strip()))
def run_new(request: Request, kind: str) -> HttpResponse:
    """`?from=<run>` starts from another run's configuration, `?preset=` from a named one. A preset
    that is chosen in the form fills its configuration and launches nothing."""
    if kind not in dict(KINDS):
        raise Http404("no such kind of run")
    form = _form(request, kind)
    if request.method == "POST" and form.is_valid():
        data = form.cleaned_data
        try:
            first, *others = services.runs_launch(
                project=request.project,
                kind=kind,
                name=data["name"],
                config=data["config"],
                inputs=data["inputs"],
                seed=data["seed"],
                seeds=data["seeds"],
                sweep=data["sweep"],
                queue=data["queue"],
                layout=data["layout"],
                processes=data["processes"],
                launcher=data.get("launcher", ""),
                priority=data["priority"],
                user=request.user,
                idempotency_key=data["key"],
                override_reason=data.get("override_reason", ""),
            )
        except DomainError as error:
            form.refuse(error)
        else:
            if others:
                messages.success(request, f"{len(others) + 1} runs are launched as one group.")
                return redirect("training:group", request.project.slug, first.group)
            # What it waits for stands in the page, which follows it; a message would outlive it.
            messages.success(request, f"{first.name} is launched.")
            return redirect("training:run", request.project.slug, first.pk)
    return _page(request, kind, form)


def _page(request: Request, kind: str, form: RunForm, **more: Any) -> HttpResponse:
    source = form.source
    label, purposes = dict(Run.Kind.choices)[kind], preset_purposes(kind)
    context = {
        "form": form,
        "kind": kind,
        "label": label,
        "text": dict(KINDS)[kind],
        "presets": [(name, purposes.get(name, "")) for name in recipe_presets(kind)],
        "preset": request.POST.get("preset") or request.GET.get("preset", ""),
        "source": source,
        "layouts": layouts_of(source) if source is not None and "layout" in form.fields else [],
        "page_title": f"New run: {label}",
        "nav": "runs",
        "answers": AnswersForm(prefix=TRIED) if kind in OPTIMISED else None,
        "constitution": constitution_current(project=request.project)
        if kind == Run.Kind.GENERATE
        else None,
    }
    status = 422 if form.errors or more else 200
    return render(request, "training/new.html", context | more, status=status)


# A reward is tried on a few answers before it trains anything: a check of the queue `short`.


@require_POST
@project_page(STAFF)
def reward_try(request: Request, kind: str) -> HttpResponse:
    """The reward, and the inputs it reads, of a form as it was sent; nothing else of it counts."""
    if kind not in OPTIMISED:
        raise Http404("no reward to try")
    form, answers = _form(request, kind), AnswersForm(request.POST, prefix=TRIED)
    errors = form.reward_errors + [
        f"Answer {i}: {words}"
        for i, row in enumerate(answers.errors, start=1)
        for told in row.values()
        for words in told
    ]
    run = None
    if not errors:
        try:
            run = services.reward_try(
                project=request.project,
                reward=form.cleaned_data["config"]["reward"],
                answers=answers.rows,
                inputs=form.cleaned_data["inputs"],
                user=request.user,
            )
        except DomainError as error:
            errors = [str(one) for one in error.details or [error.message]]
    if request.htmx:
        return _tried(request, run, errors)
    if run is None:  # the page with its errors
        return _page(request, kind, form, answers=answers, try_errors=errors)
    return redirect("training:run", request.project.slug, run.pk)


@require_safe
@project_page(STAFF)
def reward_tried(request: Request, run_id: str) -> HttpResponse:
    """What the reward said; asks again while it is being scored."""
    return _tried(request, selectors.run_get(project=request.project, run_id=run_id), [])


def _tried(request: Request, run: Run | None, errors: list[str]) -> HttpResponse:
    context = {"run": run, "errors": errors, "found": run and check_result(run)}
    if run is not None:
        context["waits"] = why_it_waits(run) if run.state == Run.State.QUEUED else ""
    return render(request, "training/_tried.html", context)


@require_POST
@project_page(STAFF)
def run_estimate(request: Request, kind: str) -> HttpResponse:
    """The part of the form that says how long it takes, for the settings as they stand now."""
    if kind not in dict(KINDS):
        raise Http404("no such kind of run")
    form = RunForm(request.POST, project=request.project, kind=kind)
    return render(
        request, "training/_estimate.html", {"estimate": form_estimate(form), "kind": kind}
    )


def needs_asked(request: Request) -> dict[str, Any]:
    """`?layout=fsdp&processes=4`, as a page proposes it; what is no such thing is left out."""
    layout, processes = request.GET.get("layout", ""), request.GET.get("processes", "")
    if layout not in LAYOUTS or not processes.isdecimal() or int(processes) > MOST_PROCESSES:
        return {}
    alone = layout == ONE
    return {"layout": layout, "processes": None if alone else int(processes), "launcher": ""}


def _form(request: Request, kind: str) -> RunForm:
    common: dict[str, Any] = {
        "project": request.project,
        "kind": kind,
        "queues_heard": queues_heard(),
    }
    if "preset" in request.POST:
        return RunForm.with_preset(request.POST, preset=request.POST["preset"], of=kind, **common)
    if request.method == "POST":
        return RunForm(request.POST, **common)
    common["needs"] = needs_asked(request)
    source = None
    if "from" in request.GET:
        source = selectors.run_get(project=request.project, run_id=request.GET["from"])
    count = Run.objects.filter(project=request.project, kind=kind).count()
    initial = {"name": f"{kind}-{count + 1}", "key": secrets.token_urlsafe(16)}
    if source:
        del initial["name"]
        if "advised" in request.GET:  # by the guardrail that stopped it
            common["changes"] = advised_changes(source)
    return RunForm(initial=initial, source=source, preset=request.GET.get("preset", ""), **common)


# What people do to a run: stop and keep, cancel, resume, acknowledge an alert.


@require_POST
@project_page(STAFF)
def run_stop(request: Request, run_id: str) -> HttpResponse:
    run = selectors.run_get(project=request.project, run_id=run_id)
    services.run_stop_and_keep(run=run, user=request.user)
    messages.success(request, "The trainer saves and finishes early. What it learned is kept.")
    return redirect("training:run", request.project.slug, run_id)


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def run_cancel(request: Request, run_id: str) -> HttpResponse:
    """GET asks (without JavaScript; otherwise the page's dialog does), POST cancels."""
    run = selectors.run_get(project=request.project, run_id=run_id)
    if request.method != "POST":
        context = {"run": run, "page_title": f"Cancel {run.name}?", "nav": "runs"}
        return render(request, "training/cancel.html", context | lost(run))
    return _to(request, services.run_cancel(run=run, user=request.user))


def lost(run: Run) -> dict[str, int]:
    """What a cancellation costs: steps since the last checkpoint that counts."""
    saved = max((row.step for row in selectors.checkpoints(run)), default=0)
    return {"saved_step": saved, "lost_steps": max(0, run.step - saved)}


@require_POST
@project_page(STAFF)
def run_resume(request: Request, run_id: str) -> HttpResponse:
    run = selectors.run_get(project=request.project, run_id=run_id)
    run = services.run_resume(run=run, user=request.user)
    messages.success(request, f"{run.name} is {run.get_state_display()} again.")
    return redirect("training:run", request.project.slug, run_id)


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def run_roll_back(request: Request, run_id: str) -> HttpResponse:
    """GET shows where the run can go back to, POST launches the run that starts there."""
    run = selectors.run_get(project=request.project, run_id=run_id)
    if request.method != "POST":
        context = {"run": run, "page_title": f"Roll back {run.name}", "nav": "runs"}
        return render(request, "training/roll_back.html", context | rollback.roll_back_context(run))
    made = services.run_roll_back(
        run=run,
        to=request.POST.get("to", services.HEALTHY),
        advised=request.POST.get("advised") == "on",
        user=request.user,
        idempotency_key=request.POST.get("key", ""),
    )
    return _to(request, made)


def _to(request: Request, made: Run) -> HttpResponse:
    """To the page of a run that was launched or changed, with its state."""
    messages.success(request, f"{made.name} is {made.get_state_display()}.")
    return redirect("training:run", request.project.slug, made.pk)


@require_POST
@project_page(STAFF)
def run_minimal(request: Request, run_id: str) -> HttpResponse:
    run = selectors.run_get(project=request.project, run_id=run_id)
    made = services.run_reproduce_small(
        run=run, user=request.user, idempotency_key=request.POST.get("key", "")
    )
    return _to(request, made)


@require_POST
@project_page(STAFF)
def model_evaluate(request: Request, checkpoint_id: str) -> HttpResponse:
    checkpoint = pages.checkpoint_get(project=request.project, checkpoint_id=checkpoint_id)
    made = services.checkpoint_evaluate(
        checkpoint=checkpoint, user=request.user, idempotency_key=request.POST.get("key", "")
    )
    return _to(request, made)


@require_POST
@project_page(STAFF)
def alert_acknowledge(request: Request, run_id: str, alert_id: int) -> HttpResponse:
    run = selectors.run_get(project=request.project, run_id=run_id)
    services.alert_acknowledge(run=run, alert_id=alert_id, user=request.user)
    return redirect(f"{request.path.split('/alerts/')[0]}/?tab=alerts")

"""Starting a run: choose its kind, fill its form."""

import secrets
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from apps.accounts.permissions import STAFF, project_page
from apps.common.errors import DomainError
from apps.common.health import queues_heard
from apps.common.http import Request
from apps.training import selectors, services
from apps.training.forms.launch import RunForm
from apps.training.guidance import advised_changes
from apps.training.models import Run
from apps.training.screens.checks import layouts_of
from workers.config import preset_purposes, recipe_presets
from workers.contract.jobs import LAYOUTS, MOST_PROCESSES, ONE

# In the order of the loop, with what each is for.
KINDS = (
    ("sft", "Teach a model to answer, from demonstrations."),
    ("reward", "Learn from comparisons which answer people prefer."),
    ("dpo", "Learn a policy from comparisons directly, without a reward model."),
    ("ppo", "Train a policy against a reward model, held close to its SFT model."),
    ("grpo", "Train a policy by comparing answers with their own group: a verifier or a model."),
    ("generate", "Answer prompts with a policy: fresh pairs for people to compare."),
    ("evaluate", "Compare a policy with its SFT model on fixed prompts."),
    ("assess", "Check whether a reward model is fit for optimisation."),
    ("drill", "Train nothing: check in seconds that queue, worker and page work."),
)


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
    }
    return render(request, "training/new.html", context, status=422 if form.errors else 200)


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

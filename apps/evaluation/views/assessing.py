"""Starting an assessment of a reward model."""

import secrets
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from apps.accounts.permissions import STAFF, project_page
from apps.common.errors import DomainError
from apps.common.health import queues_heard
from apps.common.http import Request
from apps.evaluation.forms import AssessForm
from apps.evaluation.selectors.assessments import assess_runs, start_inputs
from apps.evaluation.selectors.models import reward_model_get
from apps.evaluation.services.reviewing import assessment_name, assessment_start
from apps.training.models import Checkpoint, Run
from workers.config import recipe_presets


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

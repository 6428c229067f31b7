"""The constitution: its principles, its versions; and the dataset of a run that rewrote by it."""

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from apps.accounts.permissions import STAFF, project_page
from apps.common.errors import DomainError
from apps.common.http import Request
from apps.training import selectors
from apps.training.forms.constitution import ConstitutionForm, RevisionsForm
from apps.training.selectors.constitution import constitution_current, constitution_versions
from apps.training.selectors.queueing import reward_functions
from apps.training.services.constitution import constitution_save
from apps.training.services.revisions import revisions_dataset, revisions_file, revisions_freeze
from workers.config.reward_grammar import grammar


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def constitution(request: Request) -> HttpResponse:
    current = constitution_current(project=request.project)
    form = ConstitutionForm(request.POST if request.method == "POST" else None, current=current)
    if request.method == "POST" and form.is_valid():
        try:
            made = constitution_save(
                project=request.project,
                principles=form.principles,
                hard_rules=form.cleaned_data["hard_rules"] or {},
                note=form.cleaned_data["note"],
                user=request.user,
                over=form.cleaned_data["over"],
            )
        except DomainError as error:
            form.refuse(error)
        else:
            same = current is not None and made.number == current.number
            messages.success(
                request, "Nothing has changed." if same else f"Version {made.number} is saved."
            )
            return redirect("training:constitution", request.project.slug)
    context: dict[str, Any] = {
        "form": form,
        "current": current,
        "versions": constitution_versions(project=request.project),
        "reward_grammar": grammar(sorted(reward_functions())),
        "page_title": "Constitution",
        "nav": "constitution",
    }
    failed = request.method == "POST"
    return render(request, "training/constitution.html", context, status=422 if failed else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def revisions(request: Request, run_id: str) -> HttpResponse:
    """GET asks how, POST freezes."""
    run = selectors.run_get(project=request.project, run_id=run_id)
    start = {"name": f"{run.name}, rewritten"[:120]}
    form = RevisionsForm(request.POST if request.method == "POST" else None, initial=start)
    if request.method == "POST" and form.is_valid():
        try:
            made = revisions_freeze(run=run, user=request.user, **form.cleaned_data)
        except DomainError as error:
            form.refuse(error)
        else:
            messages.success(request, f"{made.name} is frozen; it is immutable.")
            return redirect("snapshots:detail", request.project.slug, made.pk)
    context = {
        "form": form,
        "run": run,
        "file": revisions_file(run),
        "dataset": revisions_dataset(run),
        "page_title": f"Freeze the rewritten answers of {run.name}",
        "nav": "runs",
    }
    failed = request.method == "POST"
    return render(request, "training/revisions.html", context, status=422 if failed else 200)

"""What people do to a run: stop and keep, cancel, resume, acknowledge an alert."""

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from apps.accounts.permissions import STAFF, project_page
from apps.common.http import Request
from apps.training import selectors, services
from apps.training.models import Run
from apps.training.screens import rollback
from apps.training.selectors import pages


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

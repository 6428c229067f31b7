"""Deciding about a reward model, and the page as it was when somebody did."""

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from apps.accounts.permissions import STAFF, project_page
from apps.accounts.reauthentication import fresh_sign_in_required, posted
from apps.common.errors import Conflict, DomainError
from apps.common.http import Request
from apps.evaluation.forms import ReviewForm
from apps.evaluation.screens import page as screen
from apps.evaluation.selectors import models as selectors
from apps.evaluation.selectors.models import Judgement, findings_of_state, judgement_of
from apps.evaluation.services.reviewing import model_review
from apps.training.models import Checkpoint

_Status = Checkpoint.Status
# (button, what it means)
ACTIONS = {
    _Status.APPROVED: (
        "Approve",
        "PPO accepts an approved model without asking for a reason.",
    ),
    _Status.REJECTED: (
        "Reject",
        "A rejected model cannot be used as an input. Runs that have used it stay as they are.",
    ),
    _Status.RETIRED: (
        "Retire",
        "PPO refuses a retired model, even with a reason. Runs that have used it stay as they are.",
    ),
}


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
@fresh_sign_in_required(when=posted)
def approve(request: Request, checkpoint_id: str) -> HttpResponse:
    return _decide(request, checkpoint_id, _Status.APPROVED)


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def reject(request: Request, checkpoint_id: str) -> HttpResponse:
    return _decide(request, checkpoint_id, _Status.REJECTED)


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def retire(request: Request, checkpoint_id: str) -> HttpResponse:
    return _decide(request, checkpoint_id, _Status.RETIRED)


def _decide(request: Request, checkpoint_id: str, status: str) -> HttpResponse:
    model = selectors.reward_model_get(project=request.project, checkpoint_id=checkpoint_id)
    form = ReviewForm(request.POST, status=status, n_open=0) if request.method == "POST" else None
    refused: DomainError | None = None
    if form is not None and form.is_valid():
        try:
            review = model_review(
                project=request.project,
                checkpoint_id=model.pk,
                status=status,
                user=request.user,
                **form.cleaned_data,
            )
        except DomainError as error:
            refused = error
        else:
            messages.success(request, f"{model.run.name}, step {model.step:,} is {review.status}.")
            return redirect("evaluation:reward_model", request.project.slug, model.pk)
    model.refresh_from_db(fields=["status"])
    judgement = judgement_of(model)
    form = _form(request, model, judgement, status, refused)
    code = refused.status if isinstance(refused, Conflict) else 422 if form.errors else 200
    context = _context(request, model, judgement, status)
    context |= {"form": form, "refreshed": isinstance(refused, Conflict)}
    return render(request, "evaluation/decide.html", context, status=code)


def _form(
    request: Request,
    model: Checkpoint,
    judgement: Judgement,
    status: str,
    refused: DomainError | None,
) -> ReviewForm:
    """With what the page shows now; what was typed stays."""
    seen = {"seen_status": model.status, "seen_sha256": judgement.sha256}
    n_open = len(judgement.red) + len(judgement.unmeasured)
    if request.method != "POST":
        return ReviewForm(initial=seen, status=status, n_open=n_open)
    sent = request.POST.copy()
    if refused is not None:
        for name, value in seen.items():
            sent[name] = value
    form = ReviewForm(sent, status=status, n_open=n_open)
    if form.is_valid() and refused is not None:
        form.refuse(refused)
    return form


def _context(
    request: Request, model: Checkpoint, judgement: Judgement, status: str
) -> dict[str, Any]:
    action, what = ACTIONS[_Status(status)]
    verdict = screen.verdict_view(judgement.findings)
    return {
        "checkpoint": model,
        "status": status,
        "action": action,
        "what": what,
        "verdict": verdict,
        "open_lines": [("Red", verdict.red), ("Not measured", verdict.unmeasured)],
        "own_model": model.run.created_by_id == request.user.pk,
        "page_title": f"{action} this reward model?",
        "nav": "reward_models",
    }


@require_safe
@project_page(STAFF)
def review(request: Request, checkpoint_id: str, review_id: int) -> HttpResponse:
    """The page as it was kept; it does not change any more."""
    model = selectors.reward_model_get(project=request.project, checkpoint_id=checkpoint_id)
    found = selectors.review_get(checkpoint=model, review_id=review_id)
    findings = findings_of_state(found.state)
    context = {
        "checkpoint": model,
        "review": found,
        "verdict": screen.verdict_view(findings),
        "groups": screen.group_views(findings),
        "page_title": f"{found.get_status_display().capitalize()} by {found.by_name}",
        "nav": "reward_models",
    }
    return render(request, "evaluation/review.html", context)

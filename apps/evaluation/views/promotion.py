"""Models in service: the stages and their history, asking for a promotion, deciding about it; and
the checklists of a run.
"""

from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from apps.accounts.permissions import READERS, STAFF, project_page
from apps.accounts.reauthentication import fresh_sign_in_required
from apps.common.errors import Conflict, DomainError
from apps.common.http import Request
from apps.evaluation.forms import PromotionForm
from apps.evaluation.models import PromotionRequest, Stage
from apps.evaluation.screens import promotion as screen
from apps.evaluation.selectors import promotion as selectors
from apps.evaluation.selectors.checklists import checklists as checklists_of
from apps.evaluation.selectors.checklists import decisions_about
from apps.evaluation.selectors.evidence import gate_kept, gate_of
from apps.evaluation.services import promoting, stages
from apps.training.selectors import run_get

PER_PAGE = 25
NAV = {"nav": "service"}


@require_safe
@project_page(READERS)
def service(request: Request) -> HttpResponse:
    """`?on=2026-11-03` shows what each stage named on that day."""
    return _service(request)


def _service(request: Request, refused: DomainError | None = None, **typed: Any) -> HttpResponse:
    project, wrong = request.project, ""
    stage = request.GET.get("stage", "")
    stage = stage if stage in Stage.values else ""
    day = None
    try:
        day = selectors.day_of(request.GET.get("on", "").strip())
    except DomainError as error:
        wrong = error.message
    if day is not None:
        found = selectors.namings_on(project=project, day=day, stage=stage)
    else:
        found = selectors.namings(project=project, stage=stage)
    watches = selectors.policy_watches(project)
    now = selectors.stages_now(project)
    context = {
        "stages": [screen.stage_view(name, change, watches) for name, change in now.items()],
        "waiting": list(selectors.requests_of(project=project, state=selectors.WAITING)),
        "decided": selectors.requests_of(project=project).exclude(decision=None)[:PER_PAGE],
        "page": Paginator(found, PER_PAGE).get_page(request.GET.get("page")),
        "day": day,
        "on": request.GET.get("on", ""),
        "wrong_day": wrong,
        "stage": stage,
        "stage_choices": Stage.choices,
        "refused": refused,
        "typed": typed,
        "may_change": request.role == "admin",
        "may_open": request.role in STAFF,
        "page_title": "Models in service",
        **NAV,
    }
    context["rows"] = screen.history_rows(list(context["page"]))
    status = refused.status if refused else 422 if wrong else 200
    return render(request, "evaluation/service.html", context, status=status)


@require_POST
@project_page(READERS)
def stage_change(request: Request, stage: str) -> HttpResponse:
    """`action`: revert, or share; of the change that the page showed."""
    sent = request.POST
    given: dict[str, Any] = {
        "project": request.project,
        "stage": stage,
        "change": _number(sent.get("change", ""), "change"),
        "user": request.user,
        "reason": sent.get("reason", ""),
    }
    try:
        if sent.get("action") == "share":
            made = stages.stage_share(share=_number(sent.get("share", ""), "share"), **given)
        else:
            made = stages.stage_revert(**given)
    except DomainError as error:
        if error.status not in (400, 409):
            raise
        return _service(request, error, stage=stage, reason=given["reason"])
    messages.success(
        request, f"{made.get_stage_display()} names {screen.model_name(made.checkpoint)}."
    )
    return redirect("evaluation:service", request.project.slug)


_ASKED_AGAIN = frozenset({"approve", "override"})  # decisions that need a sign-in of just now


def _number(text: str, field: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 9):
        told = (
            "Share (%): a whole number from 0 to 100."
            if field == "share"
            else f"{field}: no number."
        )
        raise DomainError(told, code="bad_number", field=field)
    return int(text)


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def promotion_new(request: Request, checkpoint_id: str) -> HttpResponse:
    """Ask; the page shows the evidence as it stands now. `?stage=` begins with a stage."""
    model = selectors.policy_get(project=request.project, checkpoint_id=checkpoint_id)
    stage = request.GET.get("stage", "")
    initial = {"stage": stage if stage in Stage.values else Stage.CANDIDATE}
    form = PromotionForm(request.POST or None, initial=initial)
    refused: DomainError | None = None
    if request.method == "POST" and form.is_valid():
        try:
            made = promoting.promotion_request(
                project=request.project,
                checkpoint_id=model.pk,
                user=request.user,
                **form.cleaned_data,
            )
        except DomainError as error:
            form.refuse(error)
            refused = error
        else:
            messages.success(request, "Asked: admins have been told.")
            return redirect("evaluation:promotion", request.project.slug, made.pk)
    chosen = str(form["stage"].value() or Stage.CANDIDATE)
    gate = gate_of(model, chosen if chosen in Stage.values else Stage.CANDIDATE)
    context = {
        "checkpoint": model,
        "form": form,
        "gate": gate,
        "lines": screen.evidence_views(gate),
        "earlier": selectors.requests_for(model),
        "page_title": f"Promote {screen.model_name(model)}?",
        **NAV,
    }
    code = refused.status if isinstance(refused, Conflict) else 422 if form.errors else 200
    return render(request, "evaluation/promotion_new.html", context, status=code)


@require_safe
@project_page(READERS)
def promotion(request: Request, request_id: str) -> HttpResponse:
    found = selectors.request_get(project=request.project, request_id=request_id)
    return _promotion(request, found)


def _promotion(
    request: Request,
    found: PromotionRequest,
    refused: DomainError | None = None,
    reason: str = "",
) -> HttpResponse:
    kept = gate_kept(found.evidence)
    decision = selectors.decision_of(found)
    now = kept if decision else gate_of(found.checkpoint, found.stage)
    named = selectors.stage_now(project=request.project, stage=found.stage)
    context = {
        "promotion": found,
        "checkpoint": found.checkpoint,
        "model": screen.model_name(found.checkpoint),
        "decision": decision,
        "signatures": list(found.signatures.order_by("pk")),
        "look": screen.gate_look(kept),
        "sentence": screen.gate_sentence(kept),
        "lines": screen.evidence_views(kept, now),
        "offers": screen.offers_of(found, now, request.user, request.role),
        "named": named,
        "named_model": screen.model_name(named.checkpoint) if named else "",
        "refused": refused,
        "reason": reason,
        "may_open": request.role in STAFF,
        "page_title": f"{found.get_stage_display()}: {screen.model_name(found.checkpoint)}",
        **NAV,
    }
    status = refused.status if refused else 200
    return render(request, "evaluation/promotion.html", context, status=status)


@require_POST
@project_page(READERS)
@fresh_sign_in_required(when=lambda request: request.POST.get("decision") in _ASKED_AGAIN)
def promotion_decide(request: Request, request_id: str) -> HttpResponse:
    """`decision`: approve, reject, override or withdraw."""
    found = selectors.request_get(project=request.project, request_id=request_id)
    reason = request.POST.get("reason", "")
    try:
        made = promoting.promotion_decide(
            project=request.project,
            request_id=found.pk,
            decision=request.POST.get("decision", ""),
            user=request.user,
            reason=reason,
            seen_change=_number(request.POST.get("change", "0"), "change"),
        )
    except DomainError as error:
        return _promotion(request, found, error, reason)
    if made is None:
        messages.success(request, "Signed. Another person must sign too.")
    else:
        messages.success(request, f"{made.get_kind_display().capitalize()}.")
    return redirect("evaluation:promotion", request.project.slug, found.pk)


@require_safe
@project_page(STAFF)
def checklists(request: Request, run_id: str) -> HttpResponse:
    """The tab's fragment of a run, or a page of its own."""
    run = run_get(project=request.project, run_id=run_id)
    context = {
        "run": run,
        "checklists": screen.checklist_views(checklists_of(run)),
        "decisions": decisions_about(run),
        "page_title": f"Checklists of {run.name}",
        "nav": "runs",
    }
    template = "_checklists" if request.htmx else "checklists"
    return render(request, f"evaluation/{template}.html", context)

"""Promoting a policy: asked by one person with its evidence, decided by another, undone at once.

Rows are added and never changed. Of two people at the same time one decides (a request has one
decision, a stage has each number once); the other is told what happened.
"""

from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.urls import reverse

from apps.accounts.models import Project, Role, User
from apps.accounts.permissions import JUDGES, STAFF
from apps.accounts.services import audit_record, notice_give
from apps.common.errors import Conflict, DomainError, Refused
from apps.evaluation.models import (
    OverrideSignature,
    PromotionDecision,
    PromotionRequest,
    Stage,
    StageChange,
)
from apps.evaluation.selectors.evidence import gate_frozen, gate_of
from apps.evaluation.selectors.promotion import decision_of, policy_get, request_get, stage_now
from apps.evaluation.services.stages import (
    called,
    check_may_serve,
    reason_checked,
    role_of,
    share_checked,
    stage_name,
)
from apps.monitoring.models import Channel
from apps.monitoring.services.notifications import page_url, project_tell
from apps.training.models import Checkpoint

_Kind = PromotionDecision.Kind
_Cause = StageChange.Cause
WORDS = {
    _Kind.APPROVED: "approved",
    _Kind.OVERRIDDEN: "approved by override",
    _Kind.REJECTED: "rejected",
    _Kind.WITHDRAWN: "withdrawn",
}


@transaction.atomic
def promotion_request(
    *,
    project: Project,
    checkpoint_id: str,
    stage: str,
    user: User,
    share: int = 100,
    reason: str = "",
) -> PromotionRequest:
    """Ask that a stage names this checkpoint; its evidence is kept as it stands now, and admins are
    told. share: per cent of the traffic, for production alone. Raises `DomainError` naming the
    field; then nothing was stored."""
    role_of(project, user, STAFF)
    if stage not in Stage.values:
        raise DomainError(
            f"Choose a stage: {', '.join(Stage.values)}.", code="unknown_stage", field="stage"
        )
    reason = reason_checked(reason, needed=False)
    share = share_checked(share, stage)
    model = policy_get(project=project, checkpoint_id=checkpoint_id)
    # Whoever asks for the same a moment later waits here, and then finds this request.
    Checkpoint.objects.select_for_update(no_key=True).get(pk=model.pk)
    check_may_serve(model, "checkpoint")
    _check_is_news(model, stage, share)
    gate = gate_of(model, stage)
    state, sha256 = gate_frozen(gate, model)
    request = PromotionRequest.objects.create(
        project=project,
        checkpoint=model,
        stage=stage,
        share=share,
        reason=reason,
        evidence=state,
        evidence_sha256=sha256,
        is_open=gate.is_open,
        requested_by=user,
        requested_name=str(user)[:150],
    )
    _audit("requested", request, user, {"open": gate.is_open, "evidence_sha256": sha256})
    notice_give(
        project=project,
        roles=(Role.ADMIN,),
        kind="promotion.requested",
        text=f"{user} asks that {request.get_stage_display().lower()} names {called(model)}",
        path=reverse("evaluation:promotion", args=[project.slug, request.pk]),
        by=user,
    )
    return request


@transaction.atomic
def promotion_approve(
    *, project: Project, request_id: str, user: User, seen_change: int, reason: str = ""
) -> PromotionDecision:
    """The stage names the checkpoint from now on. By an admin who did not ask for it, through an
    open gate: of the kept evidence, and of the evidence as it stands now.

    seen_change: the number of the stage's newest change that the person had before them, 0 for
    none. Raises `DomainError`; then nothing has changed.
    """
    request, role = _waiting(project, request_id, user, frozenset({Role.ADMIN}))
    reason = reason_checked(reason, needed=False)
    _check_open(request)
    decision = _decide(request, _Kind.APPROVED, user, role, reason)
    stage_name(request, _Cause.PROMOTION, user, reason or request.reason, seen_change)
    return decision


@transaction.atomic
def promotion_reject(
    *, project: Project, request_id: str, user: User, reason: str
) -> PromotionDecision:
    """By an admin who did not ask for it, with a reason."""
    request, role = _waiting(project, request_id, user, frozenset({Role.ADMIN}))
    return _decide(request, _Kind.REJECTED, user, role, reason_checked(reason))


@transaction.atomic
def promotion_withdraw(
    *, project: Project, request_id: str, user: User, reason: str = ""
) -> PromotionDecision:
    """By whoever asked for it."""
    request = _locked(project, request_id)
    role = role_of(project, user)
    _check_waits(request)
    if request.requested_by_id != user.pk:
        raise Refused(
            f"Only {request.requested_name}, who asked, may withdraw it.", code="not_requester"
        )
    return _decide(request, _Kind.WITHDRAWN, user, role, reason_checked(reason, needed=False))


@transaction.atomic
def promotion_override(
    *, project: Project, request_id: str, user: User, seen_change: int, reason: str
) -> PromotionDecision | None:
    """Sign that it is promoted although its gate is closed. The second signature, of the two at
    least one an admin's, promotes it; until then None is returned.

    By reviewers and admins who did not ask for it, each once, each with a reason.
    """
    request, role = _waiting(project, request_id, user, JUDGES)
    reason = reason_checked(reason)
    if request.is_open:
        raise Conflict(
            "Its gate is open: an admin approves it, nobody needs to override.",
            code="gate_open",
        )
    before = list(request.signatures.order_by("pk"))
    if any(one.by_id == user.pk for one in before):
        raise Conflict(
            "You have signed already: somebody else must be the second.", code="signed_already"
        )
    OverrideSignature.objects.create(
        request=request,
        requested_by_id=request.requested_by_id,
        by=user,
        by_name=str(user)[:150],
        role=role,
        reason=reason,
    )
    _audit("override_signed", request, user, {"reason": reason})
    second = next((one for one in before if Role.ADMIN in (one.role, role)), None)
    if second is None:
        return None
    decision = _decide(request, _Kind.OVERRIDDEN, user, role, reason, second=second)
    stage_name(request, _Cause.OVERRIDE, user, reason, seen_change)
    return decision


def promotion_decide(
    *,
    project: Project,
    request_id: str,
    decision: str,
    user: User,
    reason: str,
    seen_change: int,
) -> PromotionDecision | None:
    """One of the above by name: approve, reject, override or withdraw."""
    given: dict[str, Any] = {
        "project": project,
        "request_id": request_id,
        "user": user,
        "reason": reason,
    }
    if decision == "approve":
        return promotion_approve(seen_change=seen_change, **given)
    if decision == "reject":
        return promotion_reject(**given)
    if decision == "override":
        return promotion_override(seen_change=seen_change, **given)
    if decision == "withdraw":
        return promotion_withdraw(**given)
    raise DomainError(
        "Decide with approve, reject, override or withdraw.",
        code="unknown_decision",
        field="decision",
    )


# --- who, and whether it may be ---


def _locked(project: Project, request_id: str) -> PromotionRequest:
    """Whoever comes second waits here, and then sees what the first has decided."""
    request = request_get(project=project, request_id=request_id)
    PromotionRequest.objects.select_for_update(no_key=True).get(pk=request.pk)
    return request


def _waiting(
    project: Project, request_id: str, user: User, roles: frozenset[Role]
) -> tuple[PromotionRequest, str]:
    """The request, locked, and the person's role: another person than asked for it."""
    role = role_of(project, user, roles)
    request = _locked(project, request_id)
    _check_waits(request)
    if request.requested_by_id == user.pk:
        raise Refused(
            "You asked for this promotion: somebody else must decide.", code="own_request"
        )
    return request, role


def _check_waits(request: PromotionRequest) -> None:
    decision = decision_of(request)
    if decision is not None:
        raise Conflict(
            f"Meanwhile it was {WORDS[_Kind(decision.kind)]} by {decision.decided_name}. Nothing "
            "was changed.",
            code="decided_already",
        )


def _check_open(request: PromotionRequest) -> None:
    if not request.is_open:
        raise Conflict(
            f"The gate is closed. {_closed_by(request.evidence)}. Two other people may override "
            "it, each with a reason.",
            code="gate_closed",
        )
    now = gate_of(request.checkpoint, request.stage)
    if not now.is_open:
        raise Conflict(
            f"The evidence has changed since this was asked: {now.why_closed} Ask again, so that "
            "the request shows it.",
            code="evidence_changed",
        )


def _closed_by(state: Mapping[str, Any]) -> str:
    """The lines that keep the gate closed, by name."""
    lines = [
        f"{one['label']} ({one['verdict']})"
        for one in state["evidence"]
        if one["name"] in state["required"] and one["verdict"] != "green"
    ]
    return "; ".join(lines)


def _check_is_news(model: Checkpoint, stage: str, share: int) -> None:
    named = stage_now(project=model.project, stage=stage)
    if named is not None and named.checkpoint_id == model.pk:
        raise Conflict(
            f"{Stage(stage).label} names this model already"
            + (
                f"; its share is changed on the page of the stages, from {named.share} %."
                if named.share != share
                else "."
            ),
            code="named_already",
            field="stage",
        )
    waits = PromotionRequest.objects.filter(checkpoint=model, stage=stage, decision=None).first()
    if waits is not None:
        raise Conflict(
            f"{waits.requested_name} has asked for the same: request {waits.pk} waits.",
            code="waits_already",
            field="stage",
        )


# --- writing ---


def _decide(
    request: PromotionRequest,
    kind: str,
    user: User,
    role: str,
    reason: str,
    *,
    second: OverrideSignature | None = None,
) -> PromotionDecision:
    decision = PromotionDecision.objects.create(
        request=request,
        requested_by_id=request.requested_by_id,
        is_open=request.is_open,
        kind=kind,
        decided_by=user,
        decided_name=str(user)[:150],
        decided_role=role,
        seconded_by_id=second.by_id if second else None,
        seconded_name=second.by_name if second else "",
        seconded_role=second.role if second else "",
        reason=reason,
    )
    _audit(kind, request, user, {"reason": reason, "second": decision.seconded_by or ""})
    if kind != _Kind.WITHDRAWN:
        notice_give(
            project=request.project,
            user=request.requested_by,
            kind=f"promotion.{kind}",
            text=f"Your request for {called(request.checkpoint)} was {WORDS[_Kind(kind)]} by "
            f"{decision.decided_name}",
            path=reverse("evaluation:promotion", args=[request.project.slug, request.pk]),
            by=user,
        )
    return decision


def _audit(verb: str, request: PromotionRequest, user: User, details: Mapping[str, Any]) -> None:
    """Into the audit log, and to the channels that hear of approvals."""
    project_tell(
        project=request.project,
        about=Channel.Tells.APPROVALS,
        event=f"promotion.{verb}",
        body={
            "promotion": {
                "id": request.pk,
                "model": {"id": request.checkpoint_id, "name": called(request.checkpoint)},
                "stage": request.stage,
                "share": request.share,
                "by": str(user),
                "url": page_url("evaluation:promotion", request.project.slug, request.pk),
            }
        },
    )
    audit_record(
        action=f"promotion.{verb}",
        actor=user,
        project=request.project,
        subject=request.pk,
        details={
            "model": called(request.checkpoint),
            "checkpoint": request.checkpoint_id,
            "stage": request.stage,
            "share": request.share,
        }
        | dict(details),
    )

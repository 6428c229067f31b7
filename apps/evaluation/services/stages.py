"""Which policy a stage names, changed: by a decision, by *revert*, by another share of the traffic.

Each change is a row more, with the next number of its stage; of two people at the same time one
gets the number, and the other is told what happened. Servers of the models get a message.
"""

from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.accounts.identity import membership_get
from apps.accounts.models import Project, Role, User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError, Refused
from apps.common.models import one_line
from apps.evaluation.models import PromotionRequest, Stage, StageChange
from apps.evaluation.models.promotion import LONGEST_REASON
from apps.evaluation.selectors.promotion import back_of, stage_check, stage_now
from apps.monitoring.models import Channel
from apps.monitoring.services.notifications import iso, page_url, project_tell
from apps.training.models import Checkpoint

_Cause = StageChange.Cause


@transaction.atomic
def stage_revert(
    *, project: Project, stage: str, change: int, user: User, reason: str
) -> StageChange:
    """The stage names again what it named before: at once, by one admin, with a reason. `change`:
    the number of the change that is undone, which must be the newest."""
    role_of(project, user, frozenset({Role.ADMIN}))
    reason = reason_checked(reason)
    now = _newest(project, stage_check(stage), change)
    target = back_of(now)
    if target is None:
        raise Conflict(
            f"{now.get_stage_display()} named nothing before: there is nothing to revert to."
            + (" A share of 0 % takes it out of traffic." if stage == Stage.PRODUCTION else ""),
            code="nothing_before",
            field="stage",
        )
    check_may_serve(target.checkpoint, "stage")
    made = _change(
        now,
        project=project,
        stage=stage,
        checkpoint=target.checkpoint,
        share=target.share,
        rest=target.rest,
        cause=_Cause.REVERT,
        back=target.back,
        request=target.request,
        reason=reason,
        user=user,
    )
    _told(made, now.checkpoint)
    return made


@transaction.atomic
def stage_share(
    *, project: Project, stage: str, change: int, share: int, user: User, reason: str
) -> StageChange:
    """Another share of the traffic for what the stage names; by an admin, with a reason."""
    role_of(project, user, frozenset({Role.ADMIN}))
    reason = reason_checked(reason)
    share = share_checked(share, stage_check(stage))
    now = _newest(project, stage, change)
    if share == now.share:
        raise Conflict(f"Its share is {share} % already.", code="nothing_to_change", field="share")
    target = back_of(now)
    rest = now.rest or (target.checkpoint if target else None)
    made = _change(
        now,
        project=project,
        stage=stage,
        checkpoint=now.checkpoint,
        share=share,
        rest=rest if share < 100 else None,
        cause=_Cause.SHARE,
        back=now.back,
        request=now.request,
        reason=reason,
        user=user,
    )
    _told(made, now.checkpoint)
    return made


def _newest(project: Project, stage: str, seen: int) -> StageChange:
    """The stage's newest change, which the person must have seen. Raises `Conflict`."""
    now = stage_now(project=project, stage=stage)
    if now is None:
        raise Conflict(
            f"{Stage(stage).label} names nothing yet.", code="nothing_named", field="stage"
        )
    if now.number != seen:
        raise _moved(now)
    return now


def _moved(now: StageChange) -> Conflict:
    return Conflict(
        f"Meanwhile {now.by_name} changed {now.get_stage_display().lower()}: it names "
        f"{called(now.checkpoint)}. Nothing was changed; look at the page again.",
        code="stage_changed",
        field="change",
    )


def stage_name(
    request: PromotionRequest, cause: str, user: User, reason: str, seen_change: int
) -> StageChange:
    """What a decision ends with: the stage names the checkpoint of its request. Under 100 per cent
    what carries the traffic now keeps the rest."""
    now = stage_now(project=request.project, stage=request.stage)
    if (now.number if now else 0) != seen_change:
        if now is None:
            raise Conflict(
                "The stage names nothing yet: its newest change is 0.",
                code="stage_changed",
                field="change",
            )
        raise _moved(now)
    check_may_serve(request.checkpoint, "checkpoint")
    made = _change(
        now,
        project=request.project,
        stage=request.stage,
        checkpoint=request.checkpoint,
        share=request.share,
        rest=(now.rest or now.checkpoint) if now and request.share < 100 else None,
        cause=cause,
        back=now.number if now else None,
        request=request,
        reason=reason,
        user=user,
    )
    _told(made, now.checkpoint if now else None)
    return made


def _change(now: StageChange | None, *, user: User, **fields: Any) -> StageChange:
    """Add the next change of a stage. Two at once ask for one number: the second is refused."""
    at = timezone.now()
    try:
        with transaction.atomic():
            return StageChange.objects.create(
                number=now.number + 1 if now else 1,
                by=user,
                by_name=str(user)[:150],
                at=max(at, now.at) if now else at,
                **fields,
            )
    except IntegrityError as error:
        if "stage_change_numbered" not in str(error):
            raise
        newest = stage_now(project=fields["project"], stage=fields["stage"])
        if newest is None:
            raise
        raise _moved(newest) from None


def _told(change: StageChange, before: Checkpoint | None) -> None:
    """The audit log, and whoever serves the model: what the stage names now."""
    audit_record(
        action=f"stage.{VERBS[_Cause(change.cause)]}",
        actor=change.by,
        project=change.project,
        subject=change.stage,
        details={
            "model": called(change.checkpoint),
            "checkpoint": change.checkpoint_id,
            "before": before.pk if before else "",
            "share": change.share,
            "reason": change.reason,
        },
    )
    project_tell(
        project=change.project,
        about=Channel.Tells.STAGES,
        event="stage.changed",
        body=stage_message(change, before),
    )


VERBS = {
    _Cause.PROMOTION: "promoted",
    _Cause.OVERRIDE: "promoted",
    _Cause.REVERT: "reverted",
    _Cause.SHARE: "shared",
}


def stage_message(change: StageChange, before: Checkpoint | None) -> dict[str, Any]:
    """What a channel is told, documented in docs/promotion.md. `model` gets `share` per cent of the
    traffic, `rest` what is left; `before` is what the stage named until now."""
    slug = change.project.slug
    return {
        "stage": {
            "name": change.stage,
            "label": change.get_stage_display(),
            "change": change.number,
            "cause": change.cause,
            "share": change.share,
            "reason": change.reason,
            "by": change.by_name,
            "at": iso(change.at),
            "url": page_url("evaluation:service", slug),
        },
        "model": _model_message(change.checkpoint, slug),
        "rest": _model_message(change.rest, slug) if change.rest else None,
        "before": _model_message(before, slug) if before else None,
        "request": {
            "id": change.request_id,
            "url": page_url("evaluation:promotion", slug, change.request_id),
            "evidence_sha256": change.request.evidence_sha256,
        },
    }


def _model_message(model: Checkpoint, slug: str) -> dict[str, Any]:
    return {
        "id": model.pk,
        "name": called(model),
        "run": model.run_id,
        "step": model.step,
        "sha256": model.sha256,
        "uri": model.uri,
        "url": page_url("training:model", slug, model.pk),
        "download": page_url("api:model_download", slug, model.pk),
    }


def called(model: Checkpoint) -> str:
    return f"{model.run.name}, step {model.step:,}"


# --- what decisions and changes check alike ---


def role_of(project: Project, user: User, roles: frozenset[Role] = frozenset(Role)) -> str:
    membership = membership_get(user=user, slug=project.slug)
    if membership is None or membership.role not in roles:
        wanted = " or ".join(sorted(str(role) for role in roles))
        raise Refused(f"This needs the role {wanted}.")
    return membership.role


def check_may_serve(model: Checkpoint, field: str) -> None:
    if model.files_removed_at is not None:
        raise Conflict(
            f"The files of {called(model)} were removed: it cannot be served.",
            code="files_removed",
            field=field,
        )
    if "failed" in model.tags:
        raise Conflict(
            f"{called(model)} was saved when its run failed.", code="failed_model", field=field
        )
    if model.status in (Checkpoint.Status.REJECTED, Checkpoint.Status.RETIRED):
        raise Conflict(
            f"{called(model)} is {model.status}.", code=f"checkpoint_{model.status}", field=field
        )


def reason_checked(text: str, *, needed: bool = True) -> str:
    text = one_line(text)
    if needed and not text:
        raise DomainError(
            "Give a reason; it is stored with the decision.", code="reason_missing", field="reason"
        )
    if len(text) > LONGEST_REASON:
        raise DomainError(
            f"The reason is longer than {LONGEST_REASON:,} characters.",
            code="bad_reason",
            field="reason",
        )
    return text


def share_checked(share: int, stage: str) -> int:
    if isinstance(share, bool) or not isinstance(share, int) or not 0 <= share <= 100:
        raise DomainError("A share is 0 to 100 per cent.", code="bad_share", field="share")
    if share < 100 and stage != Stage.PRODUCTION:
        raise DomainError(
            "Only production has traffic to share: leave it at 100.",
            code="bad_share",
            field="share",
        )
    return share

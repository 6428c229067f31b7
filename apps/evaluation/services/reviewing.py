"""Deciding about a reward model: approved, rejected or retired, by a named person who saw its
page.
"""

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from apps.accounts.models import Project, User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError
from apps.common.models import one_line
from apps.evaluation.models import ModelReview
from apps.evaluation.selectors.assessments import assess_runs, dataset_of
from apps.evaluation.selectors.models import (
    Judgement,
    judgement_of,
    page_sha256,
    reward_model_get,
    state_sha256,
)
from apps.training.models import Checkpoint, Run
from apps.training.services import run_launch
from apps.training.services.kinds import Input
from workers.contract.wire import QUEUE_CPU

LEAST_REASON = 10  # characters, for an approval in spite of lines that are not green
_LONGEST_REASON = 1000
_Status = Checkpoint.Status
DECISIONS = (_Status.APPROVED, _Status.REJECTED, _Status.RETIRED)


@transaction.atomic
def model_review(
    *,
    project: Project,
    checkpoint_id: str,
    status: str,
    user: User,
    reason: str = "",
    seen_status: str,
    seen_sha256: str,
) -> ModelReview:
    """Give a model its status and keep the page that it was decided on.

    `seen_status` and `seen_sha256` say what the person had before them. When somebody else was
    faster, or the page has changed since, nothing is decided (`Conflict`), so that nobody approves
    what they did not see. An approval with lines that are red or not measured needs a reason, and
    so does every rejection and retirement.
    """
    if status not in DECISIONS:
        raise DomainError(
            f"A model can be {', '.join(DECISIONS)}; not '{status}'.",
            code="unknown_status",
            field="status",
        )
    reason = one_line(reason)
    model = reward_model_get(project=project, checkpoint_id=checkpoint_id)
    # Whoever comes second waits here, and then sees what the first has decided.
    model.status = (
        Checkpoint.objects.select_for_update().values_list("status", flat=True).get(pk=model.pk)
    )
    newest = ModelReview.objects.filter(checkpoint=model).order_by("-pk").first()
    _check_unchanged(model, newest, seen_status)
    judgement = judgement_of(model)
    state = judgement.state
    if seen_sha256 != page_sha256(state):
        raise Conflict(
            "The page changed since you opened it: review its checks again, then decide.",
            code="page_changed",
            field="seen_sha256",
        )
    if newest and newest.status == status and page_sha256(newest.state) == seen_sha256:
        raise Conflict(
            f"This model is {status} already, and nothing on its page has changed since.",
            code="nothing_to_decide",
            field="status",
        )
    _check_reason(status, reason, judgement)
    review = ModelReview.objects.create(
        project=project,
        checkpoint=model,
        status=status,
        reason=reason,
        by=user,
        by_name=str(user)[:150],
        assessment=judgement.assessment.run if judgement.assessment else None,
        state=state,
        state_sha256=state_sha256(state),
    )
    before, model.status = model.status, status
    model.save(update_fields=["status", "updated_at"])
    audit_record(
        action=f"model.{status}",
        actor=user,
        project=project,
        subject=model.pk,
        details={
            "model": f"{model.run.name}, step {model.step}",
            "before": before,
            "reason": reason,
            "red": [one.line for one in judgement.red],
            "unmeasured": [one.line for one in judgement.unmeasured],
            "state_sha256": review.state_sha256,
        },
    )
    return review


def _check_unchanged(model: Checkpoint, newest: ModelReview | None, seen: str) -> None:
    if model.status == seen:
        return
    who = f"{newest.by_name} has" if newest else "somebody has"
    raise Conflict(
        f"Meanwhile {who} decided: this model is now {model.status}. Nothing was changed.",
        code="status_changed",
        field="seen_status",
    )


def _check_reason(status: str, reason: str, judgement: Judgement) -> None:
    if len(reason) > _LONGEST_REASON:
        raise DomainError(
            f"The reason is longer than {_LONGEST_REASON:,} characters.",
            code="bad_reason",
            field="reason",
        )
    if status != _Status.APPROVED:
        if not reason:
            raise DomainError(
                "Give a reason; it is stored with the decision.",
                code="reason_missing",
                field="reason",
            )
        return
    open_lines = len(judgement.red) + len(judgement.unmeasured)
    if open_lines and len(reason) < LEAST_REASON:
        raise DomainError(
            f"{open_lines} check{'s' if open_lines > 1 else ''} failed or not measured: explain in "
            f"at least {LEAST_REASON} characters why the model is approved anyway.",
            code="reason_missing",
            field="reason",
        )


# Starting an assessment of a reward model.

_LONGEST_NAME = 120


def assessment_start(
    *,
    checkpoint: Checkpoint,
    inputs: Mapping[str, Input],
    config: Mapping[str, Any],
    name: str = "",
    seed: int = 0,
    queue: str = QUEUE_CPU,
    user: User | None = None,
    idempotency_key: str = "",
) -> Run:
    """Launch an `assess` run of this model. Without `data` among the inputs it is judged on the
    unseen rows of the dataset that it was trained on.

    Raises `DomainError` naming the field; then nothing was stored.
    """
    given = dict(inputs)
    if given.get("reward", checkpoint) != checkpoint:
        raise DomainError(
            "The model of this page is the one that is assessed; leave the input out.",
            code="other_model",
            field="inputs.reward",
        )
    trained_on = dataset_of(checkpoint.run)
    if "data" not in given and trained_on is not None:
        given["data"] = trained_on
    return run_launch(
        project=checkpoint.project,
        kind=Run.Kind.ASSESS,
        name=name or assessment_name(checkpoint),
        config=config,
        inputs={**given, "reward": checkpoint},
        seed=seed,
        queue=queue,
        user=user,
        idempotency_key=idempotency_key,
    )


def assessment_name(checkpoint: Checkpoint) -> str:
    """ "rewards, step 400: assessment 2" """
    after = f", step {checkpoint.step}: assessment {assess_runs(checkpoint).count() + 1}"
    return f"{checkpoint.run.name[: _LONGEST_NAME - len(after)]}{after}"

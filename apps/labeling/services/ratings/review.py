"""What an admin does with a rating task: drop it, or put one back that was put aside."""

from django.db import transaction

from apps.accounts.models import User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict
from apps.labeling.models import RatingSlot, RatingTask


@transaction.atomic
def rating_task_drop(*, task: RatingTask, by: User) -> None:
    """Take a task out of the queue; its ratings stay, and it can be put back."""
    found = RatingTask.objects.select_for_update(no_key=True).get(pk=task.pk)
    if found.state == RatingTask.State.DROPPED:
        raise Conflict("This task is dropped already.", code="already_dropped")
    RatingSlot.objects.filter(task=found, state=RatingSlot.State.FREE).update(
        state=RatingSlot.State.WITHDRAWN
    )
    _move(found, RatingTask.State.DROPPED, found.review_reason, by, "rating_task.dropped")


@transaction.atomic
def rating_task_reopen(*, task: RatingTask, by: User) -> None:
    """Put a task back that was dropped or sent to review; those who skipped it do not get it."""
    found = RatingTask.objects.select_for_update(no_key=True).get(pk=task.pk)
    if found.state not in (RatingTask.State.DROPPED, RatingTask.State.REVIEW):
        raise Conflict("This task is in the queue or rated already.", code="not_put_aside")
    rated = found.n_ratings >= found.overlap
    RatingSlot.objects.filter(task=found, state=RatingSlot.State.WITHDRAWN).update(
        state=RatingSlot.State.FREE
    )
    state = RatingTask.State.RATED if rated else RatingTask.State.OPEN
    _move(found, state, "", by, "rating_task.reopened")


def _move(task: RatingTask, state: str, reason: str, by: User, action: str) -> None:
    audit_record(
        action=action,
        actor=by,
        project=task.project,
        subject=task.external_id or str(task.pk),
        details={"from": task.state, "to": str(state)},
    )
    RatingTask.objects.filter(pk=task.pk).update(state=state, review_reason=reason)

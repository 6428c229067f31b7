"""Handing out rating tasks: exactly as pairs, with one statement and the same gates.

`FOR NO KEY UPDATE SKIP LOCKED` lets any number of people draw at once; that nobody meets a task
twice is a unique index, that a task has no more slots than its overlap a trigger.
"""

from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.backends.utils import CursorWrapper

from apps.accounts.models import Project, User
from apps.common.cursors import prepared_cursor
from apps.common.errors import DomainError, Missing
from apps.common.transactions import retried
from apps.labeling.models import LabelingSettings, RatingSkip, RatingSlot, RatingTask
from apps.labeling.services.ratings import statements as sql
from apps.labeling.services.ratings.gates import closed, seat_lock
from apps.labeling.services.ratings.results import RatingLease, Scale
from apps.labeling.services.results import NothingReason
from apps.labeling.services.seats import Seat

_LONGEST_REASON = 300
_DEFAULTS = LabelingSettings()


@retried
@transaction.atomic
def rating_lease_next(*, project: Project, annotator: User) -> RatingLease | NothingReason:
    """The task this annotator works on: the one they hold, else the next.

    A reload returns the same task in the same order and prolongs the lease. Errors: `Missing` for
    people outside the project, `Refused` for roles that do not label.
    """
    with prepared_cursor() as cursor:
        seat = seat_lock(cursor, project.pk, annotator.pk)
        return draw(cursor, project.pk, annotator.pk, seat)


@retried
@transaction.atomic
def rating_skip(*, slot: int, annotator: User, reason: str = "") -> RatingLease | NothingReason:
    """Pass on a task: it goes to others, never back to this annotator, and the next one comes.

    Skipping a task that is no longer held changes nothing but still answers with the next one.
    Enough skips by different people take the task out of the queue for an admin to look at.
    """
    if len(reason) > _LONGEST_REASON:
        raise DomainError(f"At most {_LONGEST_REASON} characters.", field="reason")
    if "\x00" in reason:
        raise DomainError("No NUL characters.", field="reason")
    project = project_of(slot)
    with prepared_cursor() as cursor:
        seat = member_lock(cursor, project, annotator.pk)
        cursor.execute(sql.RELEASE, {"slot": slot, "annotator": annotator.pk})
        released = cursor.fetchone()
        if released is not None:
            _skip_record(project, released[0], annotator.pk, reason.strip())
        return draw(cursor, project, annotator.pk, seat)


def project_of(slot: int) -> str:
    project = RatingSlot.objects.filter(pk=slot).values_list("project_id", flat=True).first()
    if project is None:
        raise Missing("There is no such rating task.", field="slot")
    return project


def member_lock(cursor: CursorWrapper, project: str, annotator: int) -> Seat:
    """`seat_lock`, for a slot somebody named: to outsiders it is as unknown as any other."""
    try:
        return seat_lock(cursor, project, annotator)
    except Missing:
        raise Missing("There is no such rating task.", field="slot") from None


def draw(
    cursor: CursorWrapper, project: str, annotator: int, seat: Seat
) -> RatingLease | NothingReason:
    """The next task for an annotator whose membership row is locked."""
    if nothing := closed(seat):
        return nothing
    values = {
        "project": project,
        "annotator": annotator,
        "seconds": seat.lease_seconds,
        **seat.limits,
    }
    cursor.execute(sql.DRAW, values)
    row = cursor.fetchone()
    if row is None:
        return _nothing(cursor, values, seat)
    return _lease(row, project, annotator, seat.n_today)


def _lease(row: tuple[Any, ...], project: str, annotator: int, n_today: int) -> RatingLease:
    slot, key, shown, leased_at, leased_until = row
    task = RatingTask.objects.select_related("prompt").get(pk=key)
    responses = dict(task.items.values_list("position", "response__messages"))
    return RatingLease(
        slot=slot,
        task=key,
        project=project,
        annotator=annotator,
        leased_at=leased_at,
        leased_until=leased_until,
        prompt=task.prompt.messages,
        responses=tuple(responses[position] for position in shown),
        scale=Scale.of(task),
        n_today=n_today,
    )


def _skip_record(project: str, task: int, annotator: int, reason: str) -> None:
    RatingSkip.objects.update_or_create(
        task_id=task, annotator_id=annotator, defaults={"reason": reason}
    )
    n_skips = RatingSkip.objects.filter(task=task).count()
    settings = LabelingSettings.objects.filter(project=project).first() or _DEFAULTS
    if n_skips < settings.skips_to_review:
        return
    people = "1 person" if n_skips == 1 else f"{n_skips} people"
    moved = RatingTask.objects.filter(pk=task, state=RatingTask.State.OPEN).update(
        state=RatingTask.State.REVIEW, review_reason=f"skipped by {people}"
    )
    if moved:
        RatingSlot.objects.filter(task=task, state=RatingSlot.State.FREE).update(
            state=RatingSlot.State.WITHDRAWN
        )


def _nothing(cursor: CursorWrapper, values: dict[str, Any], seat: Seat) -> NothingReason:
    """Why the queue has nothing for someone who may rate."""
    cursor.execute(sql.WHY_NOTHING, values)
    any_at_all, any_free, n_held, back_at, now = cursor.fetchone()
    if not any_at_all:
        return NothingReason(
            "empty",
            "Nothing to rate yet",
            "No rating tasks have been imported into this project. An admin or engineer does that.",
        )
    if n_held:
        tasks = "task is" if n_held == 1 else "tasks are"
        minutes = _minutes(back_at, now)
        return NothingReason(
            "held",
            "Others hold what is left",
            f"{n_held:,} {tasks} with other annotators right now. What they do not answer comes "
            f"back, the first in at most {minutes} {'minute' if minutes == 1 else 'minutes'}.",
            back_at=back_at,
            n_today=seat.n_today,
        )
    if any_free:
        mine = [*(seat.topics or ()), *(seat.languages or ())]
        limited = f" You get tasks of these only: {', '.join(mine)}." if mine else ""
        return NothingReason(
            "yours_done",
            "You have done your part",
            "You have rated or skipped every task that still needs ratings; the rest is for "
            f"others, since nobody rates a task twice.{limited}",
            n_today=seat.n_today,
        )
    return NothingReason(
        "all_done",
        "Everything is rated",
        "Every rating task of this project has the ratings it needs.",
        n_today=seat.n_today,
    )


def _minutes(until: datetime, now: datetime) -> int:
    return max(1, -(-int((until - now).total_seconds()) // 60))

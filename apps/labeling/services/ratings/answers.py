"""Taking ratings: one transaction from the locked slot to the stored row and the next task."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.db import transaction
from django.db.backends.utils import CursorWrapper
from django.db.models import F
from django.utils.translation import gettext

from apps.accounts.models import User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError, Missing
from apps.common.models import longest
from apps.common.numbers import count
from apps.common.transactions import prepared_cursor, retried
from apps.labeling.models import Guideline, Rating, RatingSlot, RatingTask
from apps.labeling.services.answers import times_bounded
from apps.labeling.services.eligibility import Eligibility
from apps.labeling.services.ratings import leasing as sql
from apps.labeling.services.ratings.leasing import (
    RatingResult,
    draw,
    member_lock,
    project_of,
    rating_lease_was_given,
)
from measures.ratings import competition_ranks

LONGEST_NOTE = 4000
_LONGEST_KEY = longest(Rating, "idempotency_key")
_LONGEST_TIME = 7 * 86_400_000  # milliseconds


@dataclass(frozen=True, slots=True)
class _Given:
    """One answer as it came: values in the order the responses were shown."""

    values: tuple[int, ...]
    note: str
    active_ms: int | None
    wall_ms: int | None


@dataclass(frozen=True, slots=True)
class _LeasedRatingSlot:
    """A slot and its task while we hold both rows."""

    slot: int
    project: str
    task: int
    state: str
    annotator: int | None
    shown: list[int]
    leased_at: datetime | None
    now: datetime
    kind: str
    low: int
    high: int


@retried
@transaction.atomic
def rating_submit(
    *,
    slot: int,
    annotator: User,
    idempotency_key: str,
    values: Sequence[int],
    note: str = "",
    active_ms: int | None = None,
    wall_ms: int | None = None,
    source: str = Rating.Source.PAGE,
    lease_next: bool = True,
) -> RatingResult:
    """Store one rating of a whole task, and lease the next.

    values: one for each response in the order shown: grades on the task's scale, or ranks (1 is
    best; equal ranks are ties). The same submit again, by `idempotency_key`, returns what was
    stored. A lease that has run out is still good while nobody else has the slot; after that
    another free slot of the task is taken for whoever can show the key of the lease they had.

    Errors: `Missing` (no such slot, or not a member), `Refused` (role), `Conflict` with code
    `lease_lost`, `already_rated` or `key_reused`; `DomainError` naming the field for the rest.
    """
    given, key = _given(values, note, active_ms, wall_ms), _key_checked(idempotency_key)
    project = project_of(slot)
    with prepared_cursor() as cursor:
        eligibility = member_lock(cursor, project, annotator.pk)
        leased = _lock(cursor, slot)
        known = Rating.objects.filter(annotator=annotator, idempotency_key=key).first()
        if known is not None:
            _same_or_refuse(known, leased, given)
            following = draw(cursor, project, annotator.pk, eligibility) if lease_next else None
            return RatingResult(known, following, replayed=True)
        if not (leased.state == RatingSlot.State.LEASED and leased.annotator == annotator.pk):
            leased = _retaken(cursor, leased, annotator.pk, key)
            # How long they held the task before is not known any more.
            given = replace(given, active_ms=None, wall_ms=None)
        rating = _write(leased, annotator.pk, given, key, source, eligibility)
        eligibility = replace(eligibility, n_today=eligibility.n_today + 1)
        following = draw(cursor, project, annotator.pk, eligibility) if lease_next else None
        return RatingResult(rating, following)


@retried
@transaction.atomic
def rating_revise(
    *,
    rating: int,
    annotator: User,
    idempotency_key: str,
    values: Sequence[int],
    note: str = "",
    active_ms: int | None = None,
    wall_ms: int | None = None,
    source: str = Rating.Source.PAGE,
) -> RatingResult:
    """Change one's mind: a new revision is added, the old row stays as it was.

    Revising a rating that has been revised meanwhile is a `Conflict` (`not_current`). Repeating a
    submit by its key changes nothing. Errors otherwise as in `rating_submit`.
    """
    given, key = _given(values, note, active_ms, wall_ms), _key_checked(idempotency_key)
    old = Rating.objects.filter(pk=rating, annotator=annotator).first()
    if old is None:
        raise Missing(gettext("There is no such rating of yours."), field="rating")
    with prepared_cursor() as cursor:
        eligibility = member_lock(cursor, old.project_id, annotator.pk)
        leased = _lock(cursor, old.slot_id)
        known = Rating.objects.filter(annotator=annotator, idempotency_key=key).first()
        if known is not None:
            _same_or_refuse(known, leased, given)
            return RatingResult(known, replayed=True)
        if not Rating.objects.filter(pk=old.pk, is_current=True).update(is_current=False):
            raise Conflict(
                gettext("This rating has been changed meanwhile; reload it."), code="not_current"
            )
        return RatingResult(
            _write(leased, annotator.pk, given, key, source, eligibility, replaces=old)
        )


def _write(
    leased: _LeasedRatingSlot,
    annotator: int,
    given: _Given,
    key: str,
    source: str,
    eligibility: Eligibility,
    replaces: Rating | None = None,
) -> Rating:
    """Add the row, close the slot, count."""
    leased_ms = max(0, int((leased.now - (leased.leased_at or leased.now)).total_seconds() * 1000))
    active, wall = times_bounded(given.active_ms, given.wall_ms, leased_ms=leased_ms)
    rating = Rating.objects.create(
        project_id=leased.project,
        task_id=leased.task,
        slot_id=leased.slot,
        annotator_id=annotator,
        values=_canonical(given.values, leased),
        shown=leased.shown,
        note=given.note,
        guideline_id=_guideline_known(leased.project, eligibility),
        active_ms=active,
        wall_ms=wall,
        idempotency_key=key,
        source=source,
        revision=replaces.revision + 1 if replaces else 1,
        supersedes=replaces,
        rated_at=leased.now,
    )
    if replaces is None:
        RatingSlot.objects.filter(pk=leased.slot).update(
            state=RatingSlot.State.DONE, leased_until=None
        )
        RatingTask.objects.filter(pk=leased.task).update(n_ratings=F("n_ratings") + 1)
        RatingTask.objects.filter(
            pk=leased.task, state=RatingTask.State.OPEN, n_ratings=F("overlap")
        ).update(state=RatingTask.State.RATED)
    return rating


def _canonical(values: tuple[int, ...], leased: _LeasedRatingSlot) -> list[int]:
    """By stored place, in the one form of an order; errors name the response as it was shown."""
    n = len(leased.shown)
    if len(values) != n:
        raise DomainError(
            f"{len(values)} values for {n} response{'s' if n > 1 else ''}.", field="values"
        )
    for number, value in enumerate(values, start=1):
        if not leased.low <= value <= leased.high:
            raise DomainError(
                gettext("Response %(number)s has %(value)s; from %(low)s to %(high)s is asked.")
                % {"number": number, "value": value, "low": leased.low, "high": leased.high},
                field="values",
            )
    by_place = [value for _, value in sorted(zip(leased.shown, values, strict=True))]
    return competition_ranks(by_place) if leased.kind == RatingTask.Kind.RANKING else by_place


def _retaken(
    cursor: CursorWrapper, leased: _LeasedRatingSlot, annotator: int, key: str
) -> _LeasedRatingSlot:
    """Another slot of the task, for someone whose lease others have now.

    They rated what they saw: the order shown depends on person and task, so it is the same.
    """
    if leased.state == RatingSlot.State.DONE and leased.annotator == annotator:
        raise Conflict(
            gettext("You have already rated this task. Change the rating under My ratings."),
            code="already_rated",
        )
    if rating_lease_was_given(key, slot=leased.slot, annotator=annotator):
        values = {"task": leased.task, "annotator": annotator, "slot": leased.slot}
        cursor.execute(sql.TAKE, values)
        row = cursor.fetchone()
        if row is not None:
            return _lock(cursor, row[0])
    raise Conflict(
        gettext(
            "This task went to someone else while it was away, so this rating was not counted. "
            "It does not count against you."
        ),
        code="lease_lost",
    )


def _same_or_refuse(known: Rating, leased: _LeasedRatingSlot, given: _Given) -> None:
    same = (
        known.task_id == leased.task
        and known.values == _canonical(given.values, replace(leased, shown=known.shown))
        and known.note == given.note
    )
    if not same:
        raise Conflict(
            gettext("This key was already used for a different rating."), code="key_reused"
        )


def _guideline_known(project: str, eligibility: Eligibility) -> int | None:
    """The newest version they know: not one that waits to be acknowledged."""
    versions = Guideline.objects.filter(project=project)
    if eligibility.guideline_due is not None:
        versions = versions.filter(version__lt=eligibility.guideline_due)
    return versions.order_by("-version").values_list("pk", flat=True).first()


def _lock(cursor: CursorWrapper, slot: int) -> _LeasedRatingSlot:
    cursor.execute(sql.LOCK, {"slot": slot})
    return _LeasedRatingSlot(*cursor.fetchone())


def _given(values: Sequence[int], note: str, active_ms: int | None, wall_ms: int | None) -> _Given:
    if any(isinstance(value, bool) or not isinstance(value, int) for value in values):
        raise DomainError("Whole numbers, one for each response.", field="values")
    note = note.strip()
    if len(note) > LONGEST_NOTE:
        raise DomainError(
            gettext("At most %(n)s characters.") % {"n": count(LONGEST_NOTE)}, field="note"
        )
    if "\x00" in note:
        raise DomainError(gettext("A NUL character cannot be stored."), field="note")
    for name, time in (("active_ms", active_ms), ("wall_ms", wall_ms)):
        if time is not None and not 0 <= time <= _LONGEST_TIME:
            raise DomainError("Milliseconds, at most seven days of them.", field=name)
    return _Given(tuple(values), note, active_ms, wall_ms)


def _key_checked(key: str) -> str:
    if not key or len(key) > _LONGEST_KEY or "\x00" in key:
        raise DomainError(f"1 to {_LONGEST_KEY} characters.", field="idempotency_key")
    return key


# What an admin does with a rating task: drop it, or put one back that was put aside.


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

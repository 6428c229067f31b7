"""Taking votes: one transaction from the locked slot to the stored decision and the next pair.

A vote costs four statements: lock and read; write the vote and count; store the decision; lease
the next pair. Nothing here waits for Celery.
"""

from dataclasses import replace
from datetime import datetime
from typing import Unpack

from django.db import transaction
from django.db.backends.utils import CursorWrapper
from django.utils.translation import gettext

from apps.accounts.models import Project, User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError, Missing
from apps.common.models import longest
from apps.common.transactions import prepared_cursor, retried
from apps.labeling.models import Answer as StoredAnswer
from apps.labeling.models import Slot, Task, Vote
from apps.labeling.selectors.own import is_shown_as_gold
from apps.labeling.services import leasing
from apps.labeling.services import statements as sql
from apps.labeling.services.answers import (
    UNSAFE,
    Answer,
    AnswerFields,
    LeasedSlot,
    answer_from,
    counts_read,
    slot_lock,
    vote_write,
    warning_follow,
)
from apps.labeling.services.deciding import decision_store
from apps.labeling.services.eligibility import labelers_count
from apps.labeling.services.exhausting import comparisons_settle
from apps.labeling.services.leasing import Kinds
from apps.labeling.services.results import VoteResult, lease_was_given
from measures.voting import Decision, Outcome, decide

_LONGEST_KEY = longest(StoredAnswer, "idempotency_key")


@retried
def vote_cast(
    *,
    slot: int,
    annotator: User,
    idempotency_key: str,
    source: str = Vote.Source.PAGE,
    cast_at: datetime | None = None,
    lease_next: bool = True,
    kinds: Kinds = None,
    **fields: Unpack[AnswerFields],
) -> VoteResult:
    """Store one answer to a leased slot, decide a pair, lease the next task (of these `kinds`).

    `fields` say what the annotator gave (see `AnswerFields`).
    The same submit again, by `idempotency_key`, returns what was stored and changes nothing. A
    lease that has run out is still good while nobody else has the slot; after that, another free
    slot of the same comparison is taken for whoever can show the key of the lease they were given.

    Errors: `Missing` (no such slot, or not a member), `Refused` (role), `Conflict` with code
    `lease_lost` (others have it now; nothing is counted), `key_reused` (the key was used for a
    different vote) or `already_voted`; `DomainError` naming the field for anything malformed.
    """
    with transaction.atomic(), prepared_cursor() as cursor:
        return cast(
            cursor,
            slot=slot,
            annotator=annotator.pk,
            answer=answer_from(**fields),
            key=_key_checked(idempotency_key),
            source=source,
            cast_at=cast_at,
            lease_next=lease_next,
            kinds=kinds,
        )


def cast(
    cursor: CursorWrapper,
    *,
    slot: int,
    annotator: int,
    answer: Answer,
    key: str,
    source: str,
    cast_at: datetime | None = None,
    lease_next: bool = True,
    kinds: Kinds = None,
) -> VoteResult:
    """`vote_cast` inside the caller's transaction, without a savepoint: bulk imports use it."""
    try:
        leased = slot_lock(cursor, slot, annotator, source)
    except Missing:
        if lease_was_given(key, slot=slot, annotator=annotator):
            _gone_check(slot)
        raise
    if leased.task_kind == Task.Kind.WRITE:
        raise Missing(gettext("There is no such pair."), field="slot")
    if not (leased.state == Slot.State.LEASED and leased.annotator == annotator):
        known = StoredAnswer.objects.filter(annotator_id=annotator, idempotency_key=key).first()
        if known is not None:
            return _replayed(cursor, known, leased, answer, lease_next, kinds)
        leased = _retaken(cursor, leased, annotator, key, source)
        if not leased.is_pair:  # how long they held it before is not known any more
            answer = replace(answer, active_ms=None, wall_ms=None)
    result = vote_write(cursor, leased, annotator, answer, key, source, cast_at)
    if source != Vote.Source.IMPORT:
        _settle(leased, result.decision)
    if lease_next:
        eligibility = leased.eligibility.after_a_vote()
        following = leasing.draw(cursor, leased.project, annotator, eligibility, kinds)
        return replace(result, next=following)
    return result


@retried
def vote_revise(
    *,
    vote: int,
    annotator: User,
    idempotency_key: str,
    source: str = Vote.Source.PAGE,
    **fields: Unpack[AnswerFields],
) -> VoteResult:
    """Change one's mind: a new revision is added, the old row stays as it was.

    `vote` is the current vote; revising one that has been revised meanwhile is a `Conflict`
    (`not_current`), and so is one whose comparison was sent to re-annotation (`earlier_round`).
    Repeating a submit by its key changes nothing. Errors as in `vote_cast`.
    """
    answer, key = answer_from(**fields), _key_checked(idempotency_key)
    with transaction.atomic(), prepared_cursor() as cursor:
        old = _own_vote(vote, annotator)
        leased = slot_lock(cursor, old.slot_id, annotator.pk, source)
        known = StoredAnswer.objects.filter(annotator=annotator, idempotency_key=key).first()
        if known is not None:
            return _replayed(cursor, known, leased, answer, lease_next=False)
        _round_check(leased)
        _gold_check(old, leased)
        _retire(old)
        result = vote_write(cursor, leased, annotator.pk, answer, key, source, None, replaces=old)
        _settle(leased, result.decision)
        return result


@retried
@transaction.atomic
def vote_withdraw(*, vote: int, annotator: User, reason: str = "") -> Decision | None:
    """Take an answer back without another: the row stays as history, the slot goes to others.

    The annotator does not meet the task again, as after a skip. Returns a pair's decision without
    it.
    """
    old = _own_vote(vote, annotator)
    with prepared_cursor() as cursor:
        leased = slot_lock(cursor, old.slot_id, annotator.pk, Vote.Source.PAGE)
        _round_check(leased)
        _gold_check(old, leased)
        _retire(old)
        if UNSAFE in old.flags:
            warning_follow(leased.task)
        Slot.objects.filter(pk=old.slot_id).update(
            state=Slot.State.FREE,
            annotator=None,
            leased_at=None,
            leased_until=None,
            left_is="",
            shown=[],
        )
        leasing.skip_record(
            project=leased.project,
            task=leased.task,
            annotator=annotator.pk,
            reason=reason.strip() or "took the answer back",
        )
        audit_record(
            action="vote.withdrawn",
            actor=annotator,
            project=old.project,
            subject=str(old.pk),
            details={"comparison": leased.task},
        )
        if not leased.decides:
            cursor.execute(sql.ANSWERS, {"task": leased.task})
            cursor.execute(sql.COUNT_ANSWERS, {"task": leased.task, "n": cursor.fetchone()[0]})
            return None
        return decision_store(
            cursor,
            project=leased.project,
            comparison=leased.task,
            counts=counts_read(cursor, leased.task),
            overlap=leased.overlap,
            policy=leased.policy,
        )


def _settle(leased: LeasedSlot, decision: Decision | None) -> None:
    """Once everybody may have voted on it, a look at its comparison. What this misses (somebody
    skipped, or is limited to other topics) the sweep finds."""
    if (
        decision is not None
        and decision.outcome is Outcome.NEEDS_VOTES
        and decision.n_votes > 1
        and decision.n_votes >= labelers_count(project=leased.project)
    ):
        project = Project.objects.get(pk=leased.project)
        comparisons_settle(project=project, only=[leased.task])


def _retaken(
    cursor: CursorWrapper, leased: LeasedSlot, annotator: int, key: str, source: str
) -> LeasedSlot:
    """The slot again, or another of its task, for someone whose lease others have now."""
    if leased.state == Slot.State.DONE and leased.annotator == annotator:
        raise Conflict(
            gettext("You have already answered this. Change the answer under My answers."),
            code="already_voted" if leased.is_pair else "already_rated",
        )
    if lease_was_given(key, slot=leased.slot, annotator=annotator):
        cursor.execute(
            sql.TAKE,
            {"task": leased.task, "annotator": annotator, "slot": leased.slot},
        )
        row = cursor.fetchone()
        if row is not None:
            return slot_lock(cursor, row[0], annotator, source)
    raise Conflict(
        gettext(
            "This went to someone else while it was away, so this answer was not counted. "
            "It does not count against you."
        ),
        code="lease_lost",
    )


def _gone_check(slot: int) -> None:
    """Raises Conflict where the pair somebody had in hand went with an import that was undone."""
    if not Slot.objects.filter(pk=slot).exists():
        raise Conflict(
            "This pair was removed from the project meanwhile, so this answer was not counted. "
            "It does not count against you.",
            code="lease_lost",
        )


def _replayed(
    cursor: CursorWrapper,
    known: StoredAnswer,
    leased: LeasedSlot,
    answer: Answer,
    lease_next: bool,
    kinds: Kinds = None,
) -> VoteResult:
    """The answer to a submit that has been stored before: what was stored, and the same next."""
    if known.task_id != leased.task or not answer.same_as(known, leased):
        raise Conflict(
            gettext("This has already been answered differently. Change it under My answers."),
            code="key_reused",
        )
    following = None
    if lease_next:
        person, eligibility = known.annotator_id, leased.eligibility
        following = leasing.draw(cursor, leased.project, person, eligibility, kinds)
    if known.kind != Task.Kind.PAIR:
        return VoteResult(vote=known, decision=None, next=following, replayed=True)
    counts = counts_read(cursor, leased.task)
    decision = decide(
        counts, leased.policy.rule(), votes_possible=max(leased.policy.max_overlap, leased.overlap)
    )
    vote = Vote.objects.get(pk=known.pk)
    return VoteResult(vote=vote, decision=decision, next=following, replayed=True)


def _own_vote(vote: int, annotator: User) -> StoredAnswer:
    found = StoredAnswer.objects.filter(pk=vote, annotator=annotator).first()
    if found is None:
        raise Missing(gettext("There is no such answer of yours."), field="vote")
    return found


def _round_check(leased: LeasedSlot) -> None:
    """Votes of a round before re-annotation are history: what is changed about them would count
    nowhere, so it is refused and said."""
    if leased.kind == Slot.Kind.DISCARD:
        raise Conflict(
            gettext(
                "Others judge this pair again; your answer stays as it was and is not counted."
            ),
            code="vote_discarded",
        )
    if leased.kind == Slot.Kind.FORMER:
        raise Conflict(
            gettext(
                "This pair was sent to re-annotation after you answered it, under newer "
                "guidelines. Your answer stays as it was; you may meet the pair again."
            ),
            code="earlier_round",
        )


def _gold_check(vote: StoredAnswer, leased: LeasedSlot) -> None:
    """What its person may have read the right answer of measures them as it was."""
    if leased.kind == Slot.Kind.GOLD and is_shown_as_gold(vote):
        raise Conflict(
            gettext("This pair's known answer is under My progress, so yours stays as it was."),
            code="gold_shown",
        )


def _retire(vote: StoredAnswer) -> None:
    """Mark a vote as no longer current, once; the trigger forbids every other change to it."""
    if not StoredAnswer.objects.filter(pk=vote.pk, is_current=True).update(is_current=False):
        raise Conflict(
            gettext("This answer has been changed meanwhile; reload it."), code="not_current"
        )


def _key_checked(key: str) -> str:
    if not key or len(key) > _LONGEST_KEY:
        raise DomainError(f"1 to {_LONGEST_KEY} characters.", field="idempotency_key")
    if "\x00" in key:
        raise DomainError("No NUL characters.", field="idempotency_key")
    return key

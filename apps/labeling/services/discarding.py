"""Votes of one person set aside, so that others judge the pairs; and the way back.

Nothing is deleted. The slot of a discarded vote becomes of kind `discard`: its vote decides nothing
and stands in no statistic and no new dataset, its annotator does not meet the pair again, and the
comparison is decided by the votes that remain. Where these are too few, others are asked. Frozen
datasets stay as they are.

The person's membership is locked first, then slots, then comparisons, as every vote does: a vote
that is being cast is either among those discarded or comes after them and counts.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from apps.accounts import services as accounts
from apps.accounts.models import Membership, Project, User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError, Missing
from apps.common.models import longest
from apps.common.transactions import retried
from apps.labeling.models import Comparison, Decision, Discard, DiscardedVote, Slot
from apps.labeling.selectors.person_votes import COUNTED, VoteFilter, person_votes
from apps.labeling.services import bulk_statements as sql
from apps.labeling.services.exhausting import comparisons_settle
from apps.labeling.services.redeciding import votes_recount

MOST_DISCARDED = 20_000  # votes at once


@dataclass(frozen=True, slots=True)
class Discarded:
    """What discarding votes did, or would do. `changed`: {(outcome before, after): comparisons};
    `changed_pairs`: which they are; `n_asked`: votes that others are asked for; `discard`: its id.
    """

    discard: int
    n_votes: int
    n_comparisons: int
    n_asked: int
    changed: dict[tuple[str, str], int] = field(default_factory=dict)
    changed_pairs: frozenset[int] = frozenset()

    @property
    def n_changed(self) -> int:
        return sum(self.changed.values())


@retried
def votes_discard(
    *,
    project: Project,
    annotator: User,
    by: User | None,
    reason: str = "",
    wanted: VoteFilter | None = None,
    expected: int | None = None,
    pause: bool = False,
    dry_run: bool = False,
    most: int | None = MOST_DISCARDED,
) -> Discarded:
    """Discard those votes of a person that count and that `wanted` names (all of them without it).

    expected: how many somebody was shown; pause: give the person no more pairs. dry_run: say what
    would happen and change nothing. Errors: `DomainError` on `reason` or for more than
    `most` votes; `Conflict` with code `nothing_to_discard` or `numbers_changed`.
    """
    with transaction.atomic():
        if not dry_run:
            reason = _reason_checked(reason)
        members = Membership.objects.select_for_update(no_key=True)
        member = members.filter(project=project, user=annotator).first()
        votes = person_votes(project=project, annotator=annotator, wanted=wanted)
        votes = votes.filter(slot__kind__in=COUNTED).order_by("pk")
        limit = None if most is None else most + 1
        rows = list(votes.values_list("pk", "comparison_id")[:limit])
        if not rows:
            raise Conflict("No vote that counts is among them.", code="nothing_to_discard")
        if most is not None and len(rows) > most:
            raise DomainError(
                f"At most {most:,} votes at once; narrow them by date.",
                code="too_many_votes",
            )
        if expected is not None and expected != len(rows):
            raise Conflict(
                f"Meanwhile they are {len(rows):,} votes, not {expected:,}. Nothing was discarded; "
                "look at the new numbers.",
                code="numbers_changed",
            )
        comparisons = _locked({comparison for _, comparison in rows})
        discard = Discard.objects.create(
            project=project,
            annotator=annotator,
            by=by,
            reason=reason,
            filters=wanted.as_dict() if wanted else {},
            n_votes=len(rows),
            n_comparisons=len(comparisons),
        )
        slots = Slot.objects.filter(votes__in=[vote for vote, _ in rows])
        kinds = dict(slots.values_list("votes__pk", "kind"))
        DiscardedVote.objects.bulk_create(
            [DiscardedVote(discard=discard, vote_id=vote, was=kinds[vote]) for vote, _ in rows],
            batch_size=5_000,
        )
        before, n_free = _outcomes(comparisons), _n_free(comparisons)
        slots.update(kind=Slot.Kind.DISCARD)
        _decided_again(project, comparisons)
        after = _outcomes(comparisons)
        done = Discarded(
            discard=discard.pk,
            n_votes=len(rows),
            n_comparisons=len(comparisons),
            n_asked=_n_free(comparisons) - n_free,
            changed=_changed(before, after),
            changed_pairs=frozenset(pk for pk, was in before.items() if after[pk] != was),
        )
        if dry_run:
            transaction.set_rollback(True)
            return done
        if pause and member is not None and not member.paused_reason:
            accounts.membership_pause(project=project, user=annotator, by=by, reason=reason)
        _record("votes.discarded", discard, by, done.n_changed)
    return done


@retried
@transaction.atomic
def discard_undo(*, project: Project, discard: int, by: User) -> Discarded:
    """The votes count again beside those that were cast meanwhile, and everything is decided again.
    Errors: `Missing`; `Conflict` (`discard_undone`) for one that was undone already."""
    found = Discard.objects.select_for_update(of=("self",)).select_related("annotator", "project")
    row = found.filter(project=project, pk=discard).first()
    if row is None:
        raise Missing("There is no such discard in this project.")
    if row.undone_at is not None:
        raise Conflict("These votes count again already.", code="discard_undone")
    if row.annotator.erased_at is not None:
        raise Conflict("Who cast these votes was erased.", code="person_erased")
    member = Membership.objects.select_for_update(no_key=True)
    list(member.filter(project=project, user=row.annotator).values_list("pk"))
    votes = DiscardedVote.objects.filter(discard=row)
    comparisons = _locked(set(votes.values_list("vote__comparison", flat=True)))
    before, n_free = _outcomes(comparisons), _n_free(comparisons)
    with connection.cursor() as cursor:
        cursor.execute(sql.DISCARD_UNDO_PLACES, {"discard": row.pk})
    for kind in Slot.Kind.values:
        slots = votes.filter(was=kind).values("vote__slot")
        Slot.objects.filter(pk__in=slots, kind=Slot.Kind.DISCARD).update(kind=kind)
    row.undone_at, row.undone_by = timezone.now(), by
    row.save(update_fields=["undone_at", "undone_by", "updated_at"])
    _decided_again(project, comparisons)
    changed = _changed(before, _outcomes(comparisons))
    done = Discarded(row.pk, row.n_votes, row.n_comparisons, _n_free(comparisons) - n_free, changed)
    _record("votes.discard_undone", row, by, done.n_changed)
    return done


def _reason_checked(reason: str) -> str:
    reason = reason.strip()
    if not reason:
        raise DomainError("Say why: it stands in the audit log.", field="reason")
    if len(reason) > longest(Discard, "reason"):
        raise DomainError(f"At most {longest(Discard, 'reason')} characters.", field="reason")
    if "\x00" in reason:
        raise DomainError("A NUL character cannot be stored.", field="reason")
    return reason


def _locked(comparisons: set[int]) -> list[int]:
    """Their ids in order, with the rows and those of their slots locked."""
    ids = sorted(comparisons)
    slots = Slot.objects.select_for_update(no_key=True).filter(task__in=ids)
    list(slots.order_by("pk").values_list("pk"))
    with connection.cursor() as cursor:
        cursor.execute(sql.LOCK_COMPARISONS, {"ids": ids})
    return ids


def _decided_again(project: Project, comparisons: list[int]) -> None:
    votes_recount(project=project, comparisons=comparisons)
    Decision.objects.filter(
        comparison__in=comparisons,
        outcome=Decision.Outcome.NEEDS_VOTES,
        comparison__n_votes=0,
    ).delete()
    values: dict[str, str | list[int]] = {"project": project.pk, "ids": comparisons}
    with connection.cursor() as cursor:
        cursor.execute(sql.PLACES_BACK, values)
        cursor.execute(sql.PLACES_MORE, values)
    comparisons_settle(project=project, only=comparisons)


def _outcomes(comparisons: list[int]) -> dict[int, str]:
    """{comparison: what stands for it}, as a list of comparisons shows it."""
    rows = Comparison.objects.filter(pk__in=comparisons).values_list(
        "pk", "state", "decision__winner"
    )
    return {pk: f"{state}: {winner}" if winner else state for pk, state, winner in rows}


def _changed(before: dict[int, str], after: dict[int, str]) -> dict[tuple[str, str], int]:
    return dict(Counter((was, after[pk]) for pk, was in before.items() if after[pk] != was))


def _n_free(comparisons: list[int]) -> int:
    return Slot.objects.filter(task__in=comparisons, state=Slot.State.FREE).count()


def _record(action: str, discard: Discard, by: User | None, n_changed: int) -> None:
    details: dict[str, Any] = {
        "reason": discard.reason,
        "votes": discard.n_votes,
        "comparisons": discard.n_comparisons,
        "decisions_changed": n_changed,
        "discard": discard.pk,
    }
    audit_record(
        action=action,
        actor=by,
        project=discard.project,
        subject=discard.annotator,
        details=details | discard.filters,
    )

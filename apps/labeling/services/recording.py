"""The steps every stored vote goes through: lock and read, add the row, close the slot, decide."""

import json
from dataclasses import dataclass
from datetime import datetime

from django.db.backends.utils import CursorWrapper

from apps.common.errors import Conflict, Missing
from apps.labeling.models import Slot, Vote
from apps.labeling.services import statements as sql
from apps.labeling.services.ballots import Ballot, offered_check, times_bounded
from apps.labeling.services.deciding import Policy, decision_store
from apps.labeling.services.improving import improvement_store
from apps.labeling.services.results import OFFER_COLUMNS, Offers, VoteResult
from apps.labeling.services.seats import Seat, role_check
from measures.voting import Choice, count_votes

# Where the columns of `LOCK_FOR_VOTE` change from one thing to the next.
_N_FIELDS = 13
_SEAT_END = _N_FIELDS + Seat.N_COLUMNS
_OFFERS_END = _SEAT_END + len(OFFER_COLUMNS)
# Votes of these slots decide; hidden repeats and audit re-votes measure the annotator instead.
_COUNTED = (Slot.Kind.REGULAR, Slot.Kind.GOLD)


@dataclass(frozen=True, slots=True)
class Held:
    """A slot and its comparison while we hold both rows, and what is needed to vote on them."""

    slot: int
    project: str
    comparison: int
    kind: str
    state: str
    annotator: int | None
    left_is: str
    leased_at: datetime | None
    now: datetime
    response_a: int
    response_b: int
    overlap: int
    guideline: int | None
    seat: Seat
    offers: Offers
    policy: Policy


def slot_lock(cursor: CursorWrapper, slot: int, annotator: int, source: str) -> Held:
    """Lock membership, slot and comparison, in that order, and read what a vote needs."""
    cursor.execute(sql.LOCK_FOR_VOTE, {"slot": slot, "annotator": annotator})
    row = cursor.fetchone()
    if row is None:
        raise Missing("There is no such pair.", field="slot")
    seat = Seat.of(row[_N_FIELDS:_SEAT_END])
    if source != Vote.Source.IMPORT:  # imported people are not members: they cannot sign in
        if seat.role is None:
            raise Missing("There is no such pair.", field="slot")
        role_check(seat.role)
    return Held(
        *row[:_N_FIELDS],
        seat=seat,
        offers=Offers.from_columns(row[_SEAT_END:_OFFERS_END]),
        policy=Policy.of(row[_OFFERS_END:]),
    )


def vote_write(
    cursor: CursorWrapper,
    held: Held,
    annotator: int,
    ballot: Ballot,
    key: str,
    source: str,
    cast_at: datetime | None,
    replaces: Vote | None = None,
) -> VoteResult:
    """Add the vote, close the slot, count, decide."""
    choice = ballot.canonical(held.left_is)
    if source != Vote.Source.IMPORT:
        offered_check(ballot, choice, held.offers)
    chosen = {"a": held.response_a, "b": held.response_b}.get(choice)
    held_ms = _milliseconds_since(held.leased_at, held.now)
    active, wall = times_bounded(ballot.active_ms, ballot.wall_ms, held_ms=held_ms)
    vote = Vote(
        project_id=held.project,
        comparison_id=held.comparison,
        slot_id=held.slot,
        annotator_id=annotator,
        choice=choice,
        chosen_id=chosen,
        left_is="" if source == Vote.Source.IMPORT else held.left_is,
        strength=ballot.strength,
        criteria=ballot.canonical_criteria(held.left_is),
        reasons=ballot.reasons,
        rationale=ballot.rationale,
        flags=ballot.flags,
        improvement_id=improvement_store(
            text=ballot.improvement,
            chosen={"a": held.response_a, "b": held.response_b}.get(choice),
            annotator=annotator,
        ),
        guideline_id=None if source == Vote.Source.IMPORT else held.guideline,
        active_ms=active,
        wall_ms=wall,
        idempotency_key=key,
        source=source,
        revision=replaces.revision + 1 if replaces else 1,
        supersedes_id=replaces.pk if replaces else None,
        cast_at=cast_at or held.now,
    )
    counts = _insert(cursor, vote)
    if held.kind in _COUNTED:
        counts[Choice(choice)] += 1
    decision = decision_store(
        cursor,
        project=held.project,
        comparison=held.comparison,
        counts=counts,
        overlap=held.overlap,
        policy=held.policy,
    )
    return VoteResult(vote=vote, decision=decision)


def counts_read(cursor: CursorWrapper, comparison: int) -> dict[Choice, int]:
    cursor.execute(sql.CHOICES, {"comparison": comparison})
    return count_votes(choice for (choice,) in cursor.fetchall())


def _insert(cursor: CursorWrapper, vote: Vote) -> dict[Choice, int]:
    """Add the row and close its slot; returns the votes that count besides it."""
    cursor.execute(
        sql.INSERT_VOTE,
        {
            name: getattr(vote, name)
            for name in (
                "project_id", "comparison_id", "slot_id", "annotator_id", "choice", "chosen_id",
                "left_is", "strength", "reasons", "rationale", "flags", "improvement_id",
                "guideline_id",
                "active_ms", "wall_ms", "idempotency_key", "source", "revision", "supersedes_id",
                "cast_at",
            )
        }
        | {"criteria": json.dumps(vote.criteria)},
    )  # fmt: skip
    vote.pk, *others = cursor.fetchone()
    if vote.pk is None:
        raise Conflict(
            "This key was already used for a vote on another pair.",
            code="key_reused",
            field="idempotency_key",
        )
    return dict(zip((Choice.A, Choice.B, Choice.TIE, Choice.BOTH_BAD), others, strict=True))


def _milliseconds_since(start: datetime | None, now: datetime) -> int:
    return max(0, int((now - (start or now)).total_seconds() * 1000))

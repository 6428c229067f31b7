"""Handing out slots: who votes on what next, and until when it is theirs.

Each hand-out is one statement. `FOR NO KEY UPDATE SKIP LOCKED` lets any number of annotators draw
at once without waiting for each other and without two getting the same slot; that nobody meets a
comparison twice is also a unique index on (comparison, annotator). Locks are always taken in the
order membership, slot, comparison, and draws never wait for a slot, so nothing can deadlock.

The order of drawing: the annotator's own lease (a reload returns it unchanged), then a slot whose
lease has lapsed, then a free one: by priority or at random, in the share the project sets. The
random order is a seeded shuffle stored with the slot; each annotator goes on from where they were
in it, so a long history behind them costs nothing.
"""

import json
import random
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.backends.utils import CursorWrapper

from apps.accounts.models import Project, Role, User
from apps.common.errors import Conflict, DomainError, Missing, Refused
from apps.labeling.models import Comparison, LabelingSettings, Skip, Slot
from apps.labeling.services import statements as sql
from apps.labeling.services.cursors import prepared_cursor
from apps.labeling.services.results import Lease, NothingReason, Offers

# Engineers see where answers come from and how others voted, so they do not vote.
LABELERS = frozenset({Role.ANNOTATOR, Role.REVIEWER, Role.ADMIN})
SKIPS_TO_REVIEW = 3  # so many people passing on a pair send it to the admin's list
_LONGEST_REASON = 300
_DEFAULTS = LabelingSettings()


def slot_lease_next(*, project: Project, annotator: User) -> Lease | NothingReason:
    """The pair this annotator works on: the one they hold, else the next.

    A reload returns the same pair on the same sides and prolongs the lease. Errors: `Missing` for
    people outside the project, `Refused` for roles that do not label.
    """
    with transaction.atomic(), prepared_cursor() as cursor:
        seat = _seat_lock(cursor, project.pk, annotator.pk)
        if seat.paused:
            return nothing_paused(seat.paused)
        return draw(cursor, project.pk, annotator.pk, seat)


def slot_lease_for(*, comparison: Comparison, annotator: User) -> int:
    """Lease a slot of one given comparison, for a vote that was cast elsewhere; returns its id.

    Where no slot is left one is added, up to the project's maximum. Errors: `Conflict` when the
    annotator has already met this comparison (`already_met`) or it is full (`comparison_full`).
    """
    with transaction.atomic(), prepared_cursor() as cursor:
        Comparison.objects.select_for_update(no_key=True).get(pk=comparison.pk)
        return take_for(cursor, comparison.pk, annotator.pk)


@transaction.atomic
def slot_skip(*, slot: int, annotator: User, reason: str = "") -> Lease | NothingReason:
    """Pass on a pair: it goes to others, never back to this annotator, and the next one comes.

    Skipping a pair that is no longer held changes nothing but still answers with the next pair.
    Enough skips by different people take the comparison out of the queue for an admin to look at.
    """
    if len(reason) > _LONGEST_REASON:
        raise DomainError(f"At most {_LONGEST_REASON} characters.", field="reason")
    place = Slot.objects.filter(pk=slot).values("project_id", "comparison_id").first()
    if place is None:
        raise Missing("There is no such pair.", field="slot")
    with prepared_cursor() as cursor:
        try:
            seat = _seat_lock(cursor, place["project_id"], annotator.pk)
        except Missing:  # not a member: the slot is as unknown as any other
            raise Missing("There is no such pair.", field="slot") from None
        cursor.execute(sql.RELEASE, {"slot": slot, "annotator": annotator.pk})
        if cursor.fetchone() is not None:
            skip_record(
                project=place["project_id"],
                comparison=place["comparison_id"],
                annotator=annotator.pk,
                reason=reason.strip(),
            )
        if seat.paused:
            return nothing_paused(seat.paused)
        return draw(cursor, place["project_id"], annotator.pk, seat)


def skip_record(*, project: str, comparison: int, annotator: int, reason: str) -> None:
    """Remember that someone passed on a comparison; the third such person sends it to review."""
    Skip.objects.update_or_create(
        comparison_id=comparison,
        annotator_id=annotator,
        defaults={"project_id": project, "reason": reason},
    )
    if Skip.objects.filter(comparison_id=comparison).count() < SKIPS_TO_REVIEW:
        return
    moved = Comparison.objects.filter(pk=comparison, state=Comparison.State.OPEN).update(
        state=Comparison.State.REVIEW
    )
    if moved:
        Slot.objects.filter(comparison_id=comparison, state=Slot.State.FREE).update(
            state=Slot.State.WITHDRAWN
        )


# --- what the statements need and give -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Seat:
    """An annotator's place in a project while we hold their membership row."""

    paused: str
    lease_seconds: int
    random_share: float


def _seat_lock(cursor: CursorWrapper, project: str, annotator: int) -> Seat:
    """Lock the membership: one person's requests in one project come one after another."""
    cursor.execute(sql.SEAT, {"project": project, "annotator": annotator})
    row = cursor.fetchone()
    if row is None:
        raise Missing("There is no such project, or you are not a member of it.")
    role, paused, lease_seconds, random_share = row
    role_check(role)
    return Seat(
        paused,
        _DEFAULTS.lease_seconds if lease_seconds is None else lease_seconds,
        _DEFAULTS.random_share if random_share is None else random_share,
    )


def role_check(role: str) -> None:
    if role not in LABELERS:
        raise Refused(f"Your role here is {role}, and people of that role do not label.")


def draw(cursor: CursorWrapper, project: str, annotator: int, seat: Seat) -> Lease | NothingReason:
    """One statement: the next pair for an annotator whose membership row is locked."""
    values = {
        "project": project,
        "annotator": annotator,
        "seconds": seat.lease_seconds,
        "by_priority": random.random() >= seat.random_share,
    }
    cursor.execute(sql.DRAW, values)
    row = cursor.fetchone()
    if row is None:
        return _nothing(cursor, project, annotator)
    return _lease(row, project, annotator)


def take_for(cursor: CursorWrapper, comparison: int, annotator: int) -> int:
    """A slot of this comparison, whose row the caller has locked; see `slot_lease_for`."""
    cursor.execute(sql.TAKE, {"comparison": comparison, "annotator": annotator, "slot": None})
    row = cursor.fetchone()
    if row is not None:
        return row[0]
    cursor.execute(sql.WHY_NOT, {"comparison": comparison, "annotator": annotator})
    met, n_slots, most = cursor.fetchone()
    if met:
        raise Conflict("This person has already met this comparison.", code="already_met")
    raise Conflict(
        f"This comparison has {n_slots} votes or leases, and the project takes at most "
        f"{max(most or 0, _DEFAULTS.max_overlap if most is None else most)}.",
        code="comparison_full",
    )


def _lease(row: tuple[Any, ...], project: str, annotator: int) -> Lease:
    slot, comparison, left_is, leased_at, leased_until, prompt, a, b, n_today, *offers = row
    answers = {"a": json.loads(a), "b": json.loads(b)}
    return Lease(
        slot=slot,
        comparison=comparison,
        project=project,
        annotator=annotator,
        left_is=left_is,
        leased_at=leased_at,
        leased_until=leased_until,
        prompt=json.loads(prompt),
        left=answers[left_is],
        right=answers["b" if left_is == "a" else "a"],
        n_today=n_today,
        offers=Offers.from_columns(offers),
    )


def nothing_paused(reason: str) -> NothingReason:
    return NothingReason(
        code="paused",
        title="Your labeling is paused",
        text=f"An admin of this project paused it: {reason}",
    )


def _nothing(cursor: CursorWrapper, project: str, annotator: int) -> NothingReason:
    cursor.execute(sql.WHY_NOTHING, {"project": project, "annotator": annotator})
    any_at_all, n_free, n_held, back_at, now, n_today = cursor.fetchone()
    if not any_at_all:
        return NothingReason(
            "empty",
            "Nothing to label yet",
            "No comparisons have been imported into this project. An admin or engineer does that.",
        )
    if n_held:
        minutes = _minutes(back_at, now)
        pairs = "pair is" if n_held == 1 else "pairs are"
        return NothingReason(
            "held",
            "Others hold what is left",
            f"{n_held:,} {pairs} with other annotators right now. What they do not answer comes "
            f"back, the first in at most {minutes} {'minute' if minutes == 1 else 'minutes'}.",
            back_at=back_at,
            n_today=n_today,
        )
    if n_free:
        return NothingReason(
            "yours_done",
            "You have done your part",
            "You have answered or skipped every pair that still needs votes; the rest is for "
            "others, since nobody judges a pair twice.",
            n_today=n_today,
        )
    return NothingReason(
        "all_done",
        "Everything is labeled",
        "Every comparison of this project has the votes it needs.",
        n_today=n_today,
    )


def _minutes(until: datetime, now: datetime) -> int:
    return max(1, -(-int((until - now).total_seconds()) // 60))

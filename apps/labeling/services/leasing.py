"""Handing out slots: who votes on what next, and until when it is theirs.

Each hand-out is one statement. `FOR NO KEY UPDATE SKIP LOCKED` lets any number of annotators draw
at once without waiting for each other and without two getting the same slot; that nobody meets a
comparison twice is also a unique index on (comparison, annotator). Locks are always taken in the
order membership, slot, comparison; the rare cycle that SKIP LOCKED leaves possible the database
ends, and the transaction is run again (`apps.common.transactions`).

The order of drawing: the annotator's own lease (a reload returns it unchanged), then a slot whose
lease has lapsed, then a free one: by priority or at random, in the share the project sets. The
random order is a seeded shuffle stored with the slot; each annotator continues from where they were
in it, so a long history behind them costs nothing.

In the shares the project sets, a pair comes instead from what measures people: gold pairs, the
annotator's own earlier pairs mirrored, and for reviewers votes of others to audit. These slots
are made for one person when they are handed out, and look like any other.
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper
from django.utils.translation import gettext, ngettext

from apps.accounts.models import Project, User
from apps.common.errors import Conflict, DomainError, Missing, Refused
from apps.common.numbers import count
from apps.common.transactions import prepared_cursor, retried, row_named
from apps.labeling.models import PAIRED, Comparison, LabelingSettings, Skip, Slot, Task
from apps.labeling.services import statements as sql
from apps.labeling.services.eligibility import AUDITORS, Eligibility, role_check
from apps.labeling.services.exhausting import comparisons_settle
from apps.labeling.services.results import Lease, NothingReason, Questions, Scale
from apps.labeling.services.review import tasks_set_aside

REPEAT_AFTER = 20  # votes between a pair and its hidden repeat, at least …
REPEAT_WITHIN = 400  # … and most often no more than so many further
_LONGEST_REASON = 300
WRITING_SECONDS = 2 * 3600  # for which a text is somebody's; every saved draft begins them again
Kinds = Sequence[str] | None  # the kinds of tasks somebody can show; None: all
_DEFAULTS = LabelingSettings()
_LOWEST_HASH = -(2**63)
_HASHES = 2**64


@retried
def slot_lease_next(
    *, project: Project, annotator: User, kinds: Kinds = None
) -> Lease | NothingReason:
    """The task this annotator works on: the one they hold, else the next, of these kinds.

    A reload returns the same task on the same sides and prolongs the lease. Errors: `Missing` for
    people outside the project, `Refused` for roles that do not label.
    """
    with transaction.atomic(), prepared_cursor() as cursor:
        eligibility = _eligibility_lock(cursor, project.pk, annotator.pk)
        return draw(cursor, project.pk, annotator.pk, eligibility, kinds)


@retried
def slot_lease_audit(*, project: Project, annotator: User) -> Lease | NothingReason:
    """A vote of the audit sample to judge again, for a reviewer who asks for one.

    The pair they hold comes first, whatever it is. Errors as in `slot_lease_next`; `Refused` for
    annotators, who do not judge the votes of others.
    """
    with transaction.atomic(), prepared_cursor() as cursor:
        eligibility = _eligibility_lock(cursor, project.pk, annotator.pk)
        if eligibility.role not in AUDITORS:
            raise Refused(gettext("Only reviewers and admins audit votes."))
        if nothing := eligibility.closed(project.pk):
            return nothing
        held = Slot.objects.filter(project=project, annotator=annotator, state="leased")
        if held.exclude(kind=Slot.Kind.WRITE).exists():
            return draw(cursor, project.pk, annotator.pk, eligibility)
        values = {
            "project": project.pk,
            "annotator": annotator.pk,
            "seconds": eligibility.lease_seconds,
            "kinds": None,
            **eligibility.limits,
        }
        row = _special(cursor, "audit", values, eligibility)
        if row is not None:
            return _lease(cursor, row, project.pk, annotator.pk, eligibility.n_today)
        return NothingReason(
            "audits_done",
            gettext("No audit is left for you"),
            gettext(
                "Of the votes that were drawn for audits, all that you may judge are judged or in "
                "someone’s hands: not your own, and not on pairs you have met. More come as "
                "comparisons are decided."
            ),
            n_today=eligibility.n_today,
        )


@dataclass(frozen=True, slots=True)
class LabelingStatus:
    """How things stand for one person in one project, read without taking anything.

    `nothing` is what the label screen would say instead of a pair; None when there is one.
    `leased_until` is the end of their lease while they hold a pair.
    """

    nothing: NothingReason | None
    leased_until: datetime | None
    n_today: int
    eligibility: Eligibility


def labeling_status(*, project: Project, annotator: User) -> LabelingStatus:
    """The label screen's answer in advance, for pages that must not take a lease.

    Errors as in `slot_lease_next`.
    """
    values: dict[str, Any] = {"project": project.pk, "annotator": annotator.pk}
    with connection.cursor() as cursor:
        cursor.execute(sql.LOOK, values)
        eligibility = _eligibility(row_named(cursor))
        values |= {"seconds": eligibility.lease_seconds, "kinds": None, **eligibility.limits}
        cursor.execute(sql.PROSPECT, values)
        prospect = row_named(cursor) or {}
        leased_until, any_left = prospect["leased_until"], prospect["any_left"]
        nothing = eligibility.closed(project.pk)
        if nothing is None and leased_until is None and not any_left:
            nothing = _nothing(cursor, values, eligibility)
    return LabelingStatus(nothing, leased_until, eligibility.n_today, eligibility)


def closed_reason(*, project: Project, annotator: User) -> NothingReason | None:
    """What keeps this person from labeling here whatever there is to label, for work that is not
    handed out by the queue. Errors as in `slot_lease_next`."""
    with connection.cursor() as cursor:
        cursor.execute(sql.LOOK, {"project": project.pk, "annotator": annotator.pk})
        return _eligibility(row_named(cursor)).closed(project.pk)


def slot_lease_for(*, comparison: Comparison, annotator: User) -> int:
    """Lease a slot of one given comparison, for a vote that was cast elsewhere; returns its id.

    Where no slot is left one is added, up to the project's maximum. Errors: `Conflict` when the
    annotator has already met this comparison (`already_met`) or it is full (`comparison_full`).
    """
    with transaction.atomic(), prepared_cursor() as cursor:
        Comparison.objects.select_for_update(no_key=True).get(pk=comparison.pk)
        return take_for(cursor, comparison.pk, annotator.pk)


@retried
@transaction.atomic
def slot_skip(
    *, slot: int, annotator: User, reason: str = "", kinds: Kinds = None
) -> Lease | NothingReason:
    """Pass on a task: it goes to others, never back to this annotator, and the next one comes.

    Skipping a task that is no longer held changes nothing but still answers with the next one.
    Enough skips by different people take the task out of the queue for an admin to look at.
    """
    place = Slot.objects.filter(pk=slot).exclude(kind=Slot.Kind.WRITE).values("project_id").first()
    if place is None:
        raise Missing(gettext("There is no such pair."), code="slot_gone", field="slot")
    with prepared_cursor() as cursor:
        try:
            eligibility = _eligibility_lock(cursor, place["project_id"], annotator.pk)
        except Missing:  # not a member: the slot is as unknown as any other
            raise Missing(gettext("There is no such pair."), field="slot") from None
        slot_release(cursor, slot=slot, annotator=annotator.pk, reason=reason)
        return draw(cursor, place["project_id"], annotator.pk, eligibility, kinds)


def slot_release(cursor: CursorWrapper, *, slot: int, annotator: int, reason: str) -> bool:
    """Give back a slot that this person holds, with why; False where they do not hold it. The
    caller has locked their membership. Errors name the field `reason`."""
    if len(reason) > _LONGEST_REASON:
        raise DomainError(
            gettext("At most %(n)s characters.") % {"n": _LONGEST_REASON}, field="reason"
        )
    if "\x00" in reason:
        raise DomainError(gettext("A NUL character cannot be stored."), field="reason")
    place = Slot.objects.filter(pk=slot).values("project_id", "task_id", "left_is").get()
    cursor.execute(sql.RELEASE, {"slot": slot, "annotator": annotator})
    if cursor.fetchone() is None:
        return False
    skip_record(
        project=place["project_id"],
        task=place["task_id"],
        annotator=annotator,
        reason=reason.strip(),
        left_is=place["left_is"],
    )
    return True


@retried
@transaction.atomic
def skip_undo(*, project: Project, annotator: User, comparison: int) -> None:
    """Take a skip back: the comparison is this annotator's pair again, and the one they hold goes
    to others. Errors: `Missing` where nothing was skipped; `Conflict` when others have it by now
    (`comparison_full`) or it needs no votes any more (`not_open`)."""
    with prepared_cursor() as cursor:
        _eligibility_lock(cursor, project.pk, annotator.pk)
        row = Task.objects.select_for_update(no_key=True).exclude(kind=Task.Kind.WRITE)
        found = row.filter(pk=comparison, project=project).first()
        skip = Skip.objects.filter(task=found, annotator=annotator)
        if found is None or not skip.exists():
            raise Missing(gettext("You have not skipped this pair."), field="comparison")
        if found.state != Comparison.State.OPEN:
            raise Conflict(
                gettext("The pair you skipped needs no more votes by now."), code="not_open"
            )
        held = Slot.objects.filter(project=project, annotator=annotator, state=Slot.State.LEASED)
        held = held.exclude(kind=Slot.Kind.WRITE)
        for slot in held.values_list("pk", flat=True):
            cursor.execute(sql.RELEASE, {"slot": slot, "annotator": annotator.pk})
        skip.delete()
        try:
            take_for(cursor, comparison, annotator.pk)
        except Conflict:
            raise Conflict(
                gettext("Others have the pair you skipped by now."), code="comparison_full"
            ) from None


def skip_record(*, project: str, task: int, annotator: int, reason: str, left_is: str = "") -> None:
    """Remember that someone passed on a task; enough such people send it to review, where it is one
    to judge."""
    Skip.objects.update_or_create(
        task_id=task,
        annotator_id=annotator,
        defaults={"project_id": project, "reason": reason, "left_is": left_is},
    )
    n_skips = Skip.objects.filter(task_id=task).count()
    settings = LabelingSettings.objects.filter(project=project).first() or _DEFAULTS
    if n_skips < settings.skips_to_review:
        return
    people = "1 person" if n_skips == 1 else f"{n_skips} people"
    reason = f"skipped by {people}"
    found = Task.objects.select_for_update(no_key=True).get(pk=task)
    if found.state == Task.State.OPEN and found.kind != Task.Kind.WRITE:
        tasks_set_aside([task], Task.State.REVIEW, reason)


@retried
def writing_lease_next(*, project: Project, annotator: User) -> Lease | NothingReason:
    """The text this person works on: one in their hands or sent back to them, else the next place
    to write at. Errors as in `slot_lease_next`."""
    with transaction.atomic(), prepared_cursor() as cursor:
        eligibility = _eligibility_lock(cursor, project.pk, annotator.pk)
        if nothing := eligibility.closed(project.pk):
            return nothing
        values = _writing_values(project.pk, annotator.pk, eligibility)
        e = eligibility
        cursor.execute(sql.DRAW_WRITING[bool(e.topics), bool(e.languages), e.careful], values)
        row = row_named(cursor)
        if row is not None:
            return _lease(cursor, row, project.pk, annotator.pk, eligibility.n_today)
        return _nothing_to_write(cursor, values, eligibility)


@dataclass(frozen=True, slots=True)
class WritingLeft:
    """What there is to write for one person: places in their hands, and free ones. `nothing` says
    why they may not write at all just now."""

    n_held: int
    n_free: int
    nothing: NothingReason | None


def writing_left(*, project: Project, annotator: User) -> WritingLeft:
    """Takes nothing. Errors as in `slot_lease_next`."""
    with connection.cursor() as cursor:
        cursor.execute(sql.LOOK, {"project": project.pk, "annotator": annotator.pk})
        eligibility = _eligibility(row_named(cursor))
        cursor.execute(sql.WRITING_LEFT, _writing_values(project.pk, annotator.pk, eligibility))
        left = row_named(cursor) or {}
    held = Slot.objects.filter(project=project, annotator=annotator, state=Slot.State.LEASED)
    return WritingLeft(
        n_held=held.filter(kind=Slot.Kind.WRITE).count(),
        n_free=left["n_free"],
        nothing=eligibility.closed(project.pk),
    )


def writing_lock(cursor: CursorWrapper, project: str, annotator: int) -> Eligibility:
    """Lock the membership, before a slot is locked; errors as in `slot_lease_next`."""
    return _eligibility_lock(cursor, project, annotator)


def _writing_values(project: str, annotator: int, eligibility: Eligibility) -> dict[str, Any]:
    return {
        "project": project,
        "annotator": annotator,
        "seconds": WRITING_SECONDS,
        "by_priority": False,
        **eligibility.limits,
    }


def _nothing_to_write(
    cursor: CursorWrapper, values: dict[str, Any], eligibility: Eligibility
) -> NothingReason:
    cursor.execute(sql.WRITING_LEFT, values)
    left = row_named(cursor) or {}
    n_today = eligibility.n_today
    if left["n_held"] or left["n_free"]:  # a free one that was not drawn is just being taken
        return NothingReason(
            "held",
            gettext("Others are writing the rest"),
            gettext(
                "What they pass on, or leave for too long, comes back to the others of the project."
            ),
            back_at=left["back_at"] or left["now"],
            n_today=n_today,
        )
    return NothingReason(
        "yours_done",
        gettext("Nothing to write right now"),
        gettext("You have written or passed on every text that is asked for here, or others have."),
        n_today=n_today,
    )


# --- what the statements need and give -----------------------------------------------------------


def _eligibility_lock(cursor: CursorWrapper, project: str, annotator: int) -> Eligibility:
    """Lock the membership: one person's requests in one project come one after another."""
    cursor.execute(sql.ELIGIBILITY_LOCK, {"project": project, "annotator": annotator})
    return _eligibility(row_named(cursor))


def _eligibility(row: Mapping[str, Any] | None) -> Eligibility:
    if row is None:
        raise Missing(gettext("There is no such project, or you are not a member of it."))
    eligibility = Eligibility.of(row)
    role_check(eligibility.role)
    return eligibility


def draw(
    cursor: CursorWrapper,
    project: str,
    annotator: int,
    eligibility: Eligibility,
    kinds: Kinds = None,
) -> Lease | NothingReason:
    """The next task for an annotator whose membership row is locked: one statement, or two where
    the stream that was drawn has nothing for them."""
    if nothing := eligibility.closed(project):
        return nothing
    values: dict[str, Any] = {
        "project": project,
        "annotator": annotator,
        "seconds": eligibility.lease_seconds,
        "kinds": _shown(kinds),
        **eligibility.limits,
    }
    row = None
    stream = eligibility.stream(random.random())
    if stream != "queue":
        row = _special(cursor, stream, values, eligibility)
    if row is None:
        by_priority = random.random() >= eligibility.random_share
        e = eligibility
        limited = (bool(e.topics), bool(e.languages), bool(e.closed_ids), e.careful, bool(kinds))
        cursor.execute(sql.DRAW[limited], values | {"by_priority": by_priority})
        row = row_named(cursor)
    if row is None:
        # Reviewers and admins count among those who label once they do: here they begin to.
        again = eligibility.role in AUDITORS and _joins(project, annotator)
        if again:
            return draw(cursor, project, annotator, eligibility, kinds)
        return _nothing(cursor, values, eligibility)
    return _lease(cursor, row, project, annotator, eligibility.n_today)


def _shown(kinds: Kinds) -> list[str] | None:
    """Whoever can show a pair can show a blind one."""
    if not kinds:
        return None
    return [*kinds, Task.Kind.BLIND] if Task.Kind.PAIR in kinds else list(kinds)


def _joins(project: str, annotator: int) -> bool:
    """Whether pairs are open again because this person is there."""
    found = Project.objects.get(pk=project)
    done = comparisons_settle(project=found, joining=annotator)
    return Comparison.objects.filter(pk__in=done.reopened, state=Comparison.State.OPEN).exists()


def _special(
    cursor: CursorWrapper, stream: str, values: dict[str, Any], eligibility: Eligibility
) -> dict[str, Any] | None:
    """A slot from one stream: looked for from a random place on, then from the beginning, so
    that a hand-out reads a few rows and not what was used up already."""
    below = min(_LOWEST_HASH + int(eligibility.audit_rate * _HASHES), -_LOWEST_HASH - 1)
    statement, name, places = {
        "gold": (sql.DRAW_GOLD, "gold_from", (random.random(), 0.0)),
        "repeat": (
            sql.DRAW_REPEAT,
            "repeat_after",
            (REPEAT_AFTER + random.randrange(REPEAT_WITHIN), REPEAT_AFTER),
        ),
        "audit": (
            sql.DRAW_AUDIT,
            "audit_from",
            (random.randint(_LOWEST_HASH, below), _LOWEST_HASH),
        ),
    }[stream]
    for place in places:
        cursor.execute(statement, values | {name: place, "audit_below": below})
        row = row_named(cursor)
        if row is not None:
            return row
    return None


def take_for(cursor: CursorWrapper, task: int, annotator: int) -> int:
    """A slot of this task, whose row the caller has locked; see `slot_lease_for`."""
    cursor.execute(sql.TAKE, {"task": task, "annotator": annotator, "slot": None})
    row = cursor.fetchone()
    if row is not None:
        return row[0]
    cursor.execute(sql.WHY_NOT, {"task": task, "annotator": annotator})
    why = row_named(cursor) or {}
    most = _DEFAULTS.max_overlap if why["most"] is None else why["most"]
    if why["met"]:
        raise Conflict("This person has already met this comparison.", code="already_met")
    raise Conflict(
        f"This comparison has {why['n_slots']} votes or leases, and the project takes at most "
        f"{most}.",
        code="comparison_full",
    )


def _lease(
    cursor: CursorWrapper, row: Mapping[str, Any], project: str, annotator: int, n_today: int
) -> Lease:
    questions = Questions.from_columns(row)
    until = row["leased_until"]
    if row["of_agents"]:
        cursor.execute(sql.PROLONG, {"slot": row["id"], "seconds": questions.run_lease_seconds})
        (until,) = cursor.fetchone()
    return Lease(
        slot=row["id"],
        task=row["task_id"],
        project=project,
        annotator=annotator,
        left_is=row["left_is"],
        leased_at=row["leased_at"],
        leased_until=until,
        prompt=json.loads(row["prompt"]),
        kind=row["kind"],
        of_agents=row["of_agents"],
        n_today=n_today,
        questions=questions,
        warning=row["warning"],
        **_answers_shown(cursor, row),
    )


def _answers_shown(cursor: CursorWrapper, row: Mapping[str, Any]) -> dict[str, Any]:
    """What a lease shows of the responses; where it is no pair, by one more statement."""
    if row["kind"] == Task.Kind.WRITE:
        return {}
    if row["kind"] in PAIRED:
        answers, left_is = {"a": json.loads(row["a"]), "b": json.loads(row["b"])}, row["left_is"]
        return {"left": answers[left_is], "right": answers["b" if left_is == "a" else "a"]}
    cursor.execute(sql.ITEMS, {"task": row["task_id"]})
    found = row_named(cursor) or {}
    responses = json.loads(found["responses"])
    labels = found["low_label"], found["high_label"]
    return {
        "responses": tuple(responses[place - 1] for place in row["shown"]),
        "scale": Scale(row["kind"], found["low"], found["high"], *labels),
    }


def _nothing(
    cursor: CursorWrapper, values: dict[str, Any], eligibility: Eligibility
) -> NothingReason:
    """Why the queue has nothing for someone who may label."""
    cursor.execute(sql.WHY_NOTHING, values)
    why = row_named(cursor) or {}
    n_leased = why["n_held"]
    if not why["any_at_all"]:
        return NothingReason(
            "empty",
            gettext("Nothing to label yet"),
            gettext(
                "No comparisons have been imported into this project. An admin or engineer does "
                "that."
            ),
        )
    if n_leased:
        return NothingReason(
            "held",
            gettext("Others are answering the rest"),
            ngettext(
                "%(n)s pair is with other annotators right now.",
                "%(n)s pairs are with other annotators right now.",
                n_leased,
            )
            % {"n": count(n_leased)}
            + " "
            + comes_back(why["back_at"], why["now"]),
            back_at=why["back_at"],
            n_today=eligibility.n_today,
        )
    if why["any_free"]:
        mine = [*(eligibility.topics or ()), *(eligibility.languages or ())]
        said = [
            gettext(
                "You have answered or skipped every pair that still needs votes; the rest is for "
                "others, since nobody judges a pair twice."
            )
        ]
        if mine:
            said.append(
                gettext("You get pairs of these only: %(mine)s.") % {"mine": ", ".join(mine)}
            )
        if eligibility.closed_ids:
            said.append(gettext("Some imports are for people whom an admin chose."))
        if eligibility.avoids_topics or eligibility.avoids_sensitive:
            said.append(gettext("Pairs that you chose not to get are not counted as yours."))
        if eligibility.capped:
            said.append(
                ngettext(
                    "You have had %(n)s pair with a warning today, as many as this project shows "
                    "one person a day; more come after midnight UTC.",
                    "You have had %(n)s pairs with a warning today, as many as this project shows "
                    "one person a day; more come after midnight UTC.",
                    eligibility.n_sensitive,
                )
                % {"n": count(eligibility.n_sensitive)}
            )
        return NothingReason(
            "yours_done",
            gettext("Nothing left for you right now"),
            " ".join(said),
            n_today=eligibility.n_today,
        )
    return NothingReason(
        "all_done",
        gettext("Everything is labeled"),
        gettext("Every comparison of this project has the votes it needs, or all that can come."),
        n_today=eligibility.n_today,
    )


def comes_back(until: datetime, now: datetime) -> str:
    """When something that others hold is free again at the latest."""
    minutes = max(1, -(-int((until - now).total_seconds()) // 60))
    return ngettext(
        "What they do not answer comes back, the first in at most %(n)s minute.",
        "What they do not answer comes back, the first in at most %(n)s minutes.",
        minutes,
    ) % {"n": minutes}

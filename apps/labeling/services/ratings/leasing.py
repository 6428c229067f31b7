"""Handing out rating tasks: exactly as pairs, with one statement and the same gates.

`FOR NO KEY UPDATE SKIP LOCKED` lets any number of people draw at once; that nobody meets a task
twice is a unique index, that a task has no more slots than its overlap a trigger.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.core.signing import BadSignature, Signer
from django.db import transaction
from django.db.backends.utils import CursorWrapper
from django.utils.translation import gettext, ngettext

from apps.accounts.models import Project, User
from apps.common.errors import DomainError, Missing
from apps.common.numbers import count
from apps.common.transactions import prepared_cursor, retried, row_named
from apps.labeling.models import LabelingSettings, Rating, RatingSkip, RatingSlot, RatingTask
from apps.labeling.services import statements as labeling_sql
from apps.labeling.services.eligibility import Eligibility, role_check
from apps.labeling.services.leasing import comes_back
from apps.labeling.services.results import NothingReason
from apps.labeling.texts import Messages

# What the services of rating tasks answer with.


@dataclass(frozen=True, slots=True)
class Scale:
    """What one response is given: grades from low to high, or ranks from 1, the best, to K."""

    kind: str
    low: int
    high: int
    low_label: str
    high_label: str

    @property
    def points(self) -> range:
        return range(self.low, self.high + 1)

    @property
    def is_ranking(self) -> bool:
        return self.kind == RatingTask.Kind.RANKING

    @classmethod
    def of(cls, task: RatingTask) -> "Scale":
        return cls(task.kind, task.low, task.high, task.low_label, task.high_label)


@dataclass(frozen=True, slots=True)
class RatingLease:
    """A task in one annotator's hands; nothing tells where an answer came from.

    responses: in the order they are shown; ratings are given in that order.
    """

    slot: int
    task: int
    project: str
    annotator: int
    leased_at: datetime
    leased_until: datetime
    prompt: Messages
    responses: tuple[Messages, ...]
    scale: Scale
    n_today: int = 0  # tasks this annotator has rated here since midnight UTC

    @property
    def key(self) -> str:
        """The idempotency key the page submits with; it proves that this lease was given out."""
        stamp = int(self.leased_at.timestamp() * 1_000_000)
        return _signer(self.slot, self.annotator).sign(f"rating{self.slot}.{stamp}")


def rating_lease_was_given(key: str, *, slot: int, annotator: int) -> bool:
    """Whether `key` is one we made for this slot and this person, however long ago."""
    try:
        return _signer(slot, annotator).unsign(key).startswith(f"rating{slot}.")
    except BadSignature:
        return False


def _signer(slot: int, annotator: int) -> Signer:
    return Signer(salt=f"labeling.rating:{slot}:{annotator}")


@dataclass(frozen=True, slots=True)
class RatingResult:
    """A stored rating and the next task; `replayed`: the same submit had been stored before."""

    rating: Rating
    next: RatingLease | NothingReason | None = None
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class RatingsReport:
    """What an import of rating tasks did, in numbers of rows unless said otherwise."""

    n_rows: int
    n_created: int
    n_unchanged: int
    n_prompts: int
    n_responses: int
    n_slots: int

    def as_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


# The statements behind handing out rating tasks: one round trip each, and which rows they lock.
#
# Who may rate, and what gates them, is read by `services.statements.ELIGIBILITY_LOCK`, as for
# pairs; it locks the membership. Locks are taken in the order membership, slot, task.

# ruff: noqa: S608

# The order responses are shown in: a shuffle that always falls the same for this person and task.
_SHOWN = """(
  select array_agg(i.position order by
           sha256(convert_to('order:' || %(annotator)s::text || ':' || s.task_id::text || ':'
                             || i.position::text, 'UTF8')), i.position)
  from labeling_ratingitem i where i.task_id = s.task_id)"""
_CAN_BE_TAKEN = """s.state in ('free', 'leased') and (s.state = 'free' or s.leased_until < now())"""
# Nobody gets a task they have rated or skipped or that was put aside, nor foreign topics.
_MINE_TO_DO = """
  not exists (select from labeling_ratingslot mine
              where mine.task_id = s.task_id and mine.annotator_id = %(annotator)s)
  and not exists (select from labeling_ratingskip k
                  where k.task_id = s.task_id and k.annotator_id = %(annotator)s)
  and exists (select from labeling_ratingtask t where t.id = s.task_id and t.state = 'open')
  and (cardinality(%(topics)s::text[]) = 0 or s.topic = any(%(topics)s::text[]))
  and (cardinality(%(languages)s::text[]) = 0 or s.language = any(%(languages)s::text[]))
"""
_HELD = """s.project_id = %(project)s and s.annotator_id = %(annotator)s and s.state = 'leased'"""

# The slot in hand, else the next: lapsed or free, by priority, then by the stored shuffle.
DRAW = f"""
with own as (
  select s.id from labeling_ratingslot s where {_HELD}
  order by s.leased_at limit 1 for no key update
), next as (
  select s.id from labeling_ratingslot s
  where not exists (select from own) and s.project_id = %(project)s
    and {_CAN_BE_TAKEN} and {_MINE_TO_DO}
  order by s.priority desc, s.shuffle, s.id limit 1 for no key update of s skip locked
)
update labeling_ratingslot s set
  state = 'leased',
  annotator_id = %(annotator)s,
  leased_until = now() + make_interval(secs => %(seconds)s),
  leased_at = case when s.annotator_id = %(annotator)s then s.leased_at else now() end,
  shown = case when s.annotator_id = %(annotator)s then s.shown else {_SHOWN} end
where s.id = (select id from own union all select id from next)
returning s.id, s.task_id, s.shown, s.leased_at, s.leased_until
"""

# Another slot of one task, for somebody whose lease went to others: the wanted one first.
TAKE = f"""
with open as (
  select s.id from labeling_ratingslot s
  where s.task_id = %(task)s and {_CAN_BE_TAKEN}
    and not exists (select from labeling_ratingslot mine
                    where mine.task_id = s.task_id and mine.annotator_id = %(annotator)s)
  order by (s.id = %(slot)s) desc, s.position limit 1 for no key update of s skip locked
)
update labeling_ratingslot s set
  state = 'leased', annotator_id = %(annotator)s, leased_at = now(), leased_until = now(),
  shown = {_SHOWN}
where s.id = (select id from open)
returning s.id
"""

# The slot and its task while we hold both rows.
LOCK = """
select s.id, s.project_id, s.task_id, s.state, s.annotator_id, s.shown, s.leased_at, now(),
       t.kind, t.low, t.high
from labeling_ratingslot s join labeling_ratingtask t on t.id = s.task_id
where s.id = %(slot)s
for no key update of s, t
"""

RELEASE = """
update labeling_ratingslot set state = 'free', annotator_id = null, leased_at = null,
       leased_until = null, shown = '{}'
where id = %(slot)s and annotator_id = %(annotator)s and state = 'leased'
returning task_id
"""

# A slot that is free and theirs, yet was not handed out, is being taken by somebody this moment.
WHY_NOTHING = f"""
select exists (select from labeling_ratingtask where project_id = %(project)s),
       exists (select from labeling_ratingslot where project_id = %(project)s and state = 'free'),
       held.n, held.back_at, now()
from (
  select count(*) as n,
         coalesce(min(s.leased_until), now() + make_interval(secs => %(seconds)s)) as back_at
  from labeling_ratingslot s
  where s.project_id = %(project)s and s.state in ('free', 'leased') and {_MINE_TO_DO}
) held
"""

# First ratings since midnight UTC; changes of one's mind are not new work.
RATED_TODAY = """
select count(*) from labeling_rating
where project_id = %(project)s and annotator_id = %(annotator)s and revision = 1
  and rated_at >= date_trunc('day', now(), 'UTC')
"""


# Who may rate just now: the eligibility to label, said in words that fit rating tasks.


def eligibility_lock(cursor: CursorWrapper, project: str, annotator: int) -> Eligibility:
    """Lock the membership and read the eligibility; `n_today` counts rating tasks, not pairs.

    Errors: `Missing` for people outside the project, `Refused` for roles that do not label.
    """
    values: dict[str, str | int] = {"project": project, "annotator": annotator}
    cursor.execute(labeling_sql.ELIGIBILITY_LOCK, values)
    row = row_named(cursor)
    if row is None:
        raise Missing(gettext("There is no such project, or you are not a member of it."))
    eligibility = Eligibility.of(row)
    role_check(eligibility.role)
    cursor.execute(RATED_TODAY, values)
    return replace(eligibility, n_today=cursor.fetchone()[0])


def closed(eligibility: Eligibility) -> NothingReason | None:
    """Why this person gets no task at all just now; None when the queue decides."""
    reason = eligibility.closed()
    if reason is None:
        return None
    if reason.code == "guideline":
        text = gettext("Read the current version and confirm it to continue rating.")
        return replace(reason, text=text)
    if reason.code == "daily_cap":
        return replace(
            reason,
            text=ngettext(
                "You have rated %(n)s task today, as many as this project takes from one person "
                "a day. More come after midnight UTC.",
                "You have rated %(n)s tasks today, as many as this project takes from one person "
                "a day. More come after midnight UTC.",
                eligibility.n_today,
            )
            % {"n": count(eligibility.n_today)},
        )
    return reason


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
        eligibility = eligibility_lock(cursor, project.pk, annotator.pk)
        return draw(cursor, project.pk, annotator.pk, eligibility)


@retried
@transaction.atomic
def rating_skip(*, slot: int, annotator: User, reason: str = "") -> RatingLease | NothingReason:
    """Pass on a task: it goes to others, never back to this annotator, and the next one comes.

    Skipping a task that is no longer held changes nothing but still answers with the next one.
    Enough skips by different people take the task out of the queue for an admin to look at.
    """
    if len(reason) > _LONGEST_REASON:
        raise DomainError(
            gettext("At most %(n)s characters.") % {"n": _LONGEST_REASON}, field="reason"
        )
    if "\x00" in reason:
        raise DomainError(gettext("A NUL character cannot be stored."), field="reason")
    project = project_of(slot)
    with prepared_cursor() as cursor:
        eligibility = member_lock(cursor, project, annotator.pk)
        cursor.execute(RELEASE, {"slot": slot, "annotator": annotator.pk})
        released = cursor.fetchone()
        if released is not None:
            _skip_record(project, released[0], annotator.pk, reason.strip())
        return draw(cursor, project, annotator.pk, eligibility)


def project_of(slot: int) -> str:
    project = RatingSlot.objects.filter(pk=slot).values_list("project_id", flat=True).first()
    if project is None:
        raise Missing(gettext("There is no such rating task."), field="slot")
    return project


def member_lock(cursor: CursorWrapper, project: str, annotator: int) -> Eligibility:
    """`eligibility_lock`, for a slot somebody named: to outsiders it is as unknown as any other."""
    try:
        return eligibility_lock(cursor, project, annotator)
    except Missing:
        raise Missing(gettext("There is no such rating task."), field="slot") from None


def draw(
    cursor: CursorWrapper, project: str, annotator: int, eligibility: Eligibility
) -> RatingLease | NothingReason:
    """The next task for an annotator whose membership row is locked."""
    if nothing := closed(eligibility):
        return nothing
    values: dict[str, Any] = {
        "project": project,
        "annotator": annotator,
        "seconds": eligibility.lease_seconds,
        **eligibility.limits,
    }
    cursor.execute(DRAW, values)
    row = cursor.fetchone()
    if row is None:
        return _nothing(cursor, values, eligibility)
    return _lease(row, project, annotator, eligibility.n_today)


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


def _nothing(
    cursor: CursorWrapper, values: dict[str, Any], eligibility: Eligibility
) -> NothingReason:
    """Why the queue has nothing for someone who may rate."""
    cursor.execute(WHY_NOTHING, values)
    any_at_all, any_free, n_leased, back_at, now = cursor.fetchone()
    if not any_at_all:
        return NothingReason(
            "empty",
            gettext("Nothing to rate yet"),
            gettext(
                "No rating tasks have been imported into this project. An admin or engineer does "
                "that."
            ),
        )
    if n_leased:
        return NothingReason(
            "held",
            gettext("Others are answering the rest"),
            ngettext(
                "%(n)s task is with other annotators right now.",
                "%(n)s tasks are with other annotators right now.",
                n_leased,
            )
            % {"n": count(n_leased)}
            + " "
            + comes_back(back_at, now),
            back_at=back_at,
            n_today=eligibility.n_today,
        )
    if any_free:
        mine = [*(eligibility.topics or ()), *(eligibility.languages or ())]
        limited = gettext("You get tasks of these only: %(mine)s.") % {"mine": ", ".join(mine)}
        return NothingReason(
            "yours_done",
            gettext("Nothing left for you right now"),
            gettext(
                "You have rated or skipped every task that still needs ratings; the rest is for "
                "others, since nobody rates a task twice."
            )
            + (f" {limited}" if mine else ""),
            n_today=eligibility.n_today,
        )
    return NothingReason(
        "all_done",
        gettext("Everything is rated"),
        gettext("Every rating task of this project has the ratings it needs."),
        n_today=eligibility.n_today,
    )

"""Bringing in votes that were cast elsewhere, thousands a second: each gets a slot of its own, is
counted and decided like any other."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Literal

from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from apps.accounts.models import Membership, Project, Role, User
from apps.common.errors import Conflict, DomainError
from apps.common.transactions import WORTH_IT, plans_renew, retried, rows_named
from apps.labeling.models import Answer as StoredAnswer
from apps.labeling.models import Choice, Comparison, Decision, LabelingSettings, Slot, Vote
from apps.labeling.services import bulk_statements as sql
from apps.labeling.services.answers import Answer
from apps.labeling.services.loading import ids_next, rows_copy
from apps.labeling.services.redeciding import votes_recount
from apps.labeling.services.results import RowProblem, RowsRefused, VotesReport

FIELDS = ("comparison", "annotator", "choice", "cast_at", "strength", "rationale")
BATCH = 2_000  # votes per transaction, about
MOST = 200  # votes on one comparison that a file may bring
_LONGEST_ANNOTATOR = 100
_UNUSABLE_PASSWORD = "!"  # noqa: S105 (opens nothing: Django refuses passwords that start with it)


def votes_import(
    *,
    project: Project,
    rows: Iterable[Mapping[str, Any]],
    on_error: Literal["refuse", "skip"] = "refuse",
    make_room: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> VotesReport:
    """Import past votes: each takes a slot, is stored, counted and decided like any other.

    Row fields: comparison (its external id), annotator (any id; it becomes an imported person of
    this project, who cannot sign in), choice (a, b, tie, both_bad), and optionally cast_at (ISO
    8601, UTC unless it says otherwise), strength (1, 2), rationale. The side shown is unknown and
    stays empty.

    A vote that is there already, with the same choice, is left alone, so the same file twice
    changes nothing. All rows are checked before the first is written; then they are written in
    transactions of about 2,000; before the first and after each `progress(rows done, rows to do)`
    is called.
    make_room: a comparison takes all the votes that come for it (MOST at most), also beyond the
    project's maximum; otherwise those beyond it are refused.

    Raises `RowsRefused` listing every bad row and field, with nothing imported; with
    on_error="skip" the good rows are imported. If other people vote in the same moments and take
    the room, `Conflict` (`import_interrupted`) names the row; a second run continues there.
    """
    started = time.perf_counter()
    check = _Check(project, make_room=make_room)
    todo, n_rows = check.read(list(rows))
    problems = sorted(check.problems, key=lambda problem: problem.row)
    if problems and on_error == "refuse":
        raise RowsRefused(problems, n_rows=n_rows)
    with transaction.atomic():
        n_people = imported_people_make(project, {vote.annotator for vote in todo})
    people = imported_people(project, {vote.annotator for vote in todo})
    done = 0
    if progress:
        progress(0, len(todo))
    for n_batches, batch in enumerate(_batches(todo), start=1):
        _write_batch(project, batch, people, make_room)
        done += len(batch)
        if n_batches & (n_batches - 1) == 0 and len(todo) >= WORTH_IT:  # after 1, 2, 4, 8, …
            plans_renew(Vote, Decision, Slot)
        if progress:
            progress(done, len(todo))
    n_refused = len({problem.row for problem in problems})
    return VotesReport(
        n_rows=n_rows,
        n_created=len(todo),
        n_unchanged=n_rows - len(todo) - n_refused,
        n_refused=n_refused,
        n_people=n_people,
        seconds=time.perf_counter() - started,
        problems=problems,
    )


@dataclass(frozen=True, slots=True)
class _PastVote:
    row: int
    comparison: int
    annotator: str  # the id in the file
    answer: Answer
    cast_at: datetime | None


class _BadField(Exception):
    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name, self.message = name, message


class _Check:
    """Everything that can be wrong with a row, found before anything is written."""

    def __init__(self, project: Project, *, make_room: bool) -> None:
        self.project, self.make_room = project, make_room
        self.problems: list[RowProblem] = []
        self.now = timezone.now()

    def read(self, rows: list[Mapping[str, Any]]) -> tuple[list[_PastVote], int]:
        """(votes to write, rows read); appends to `problems`."""
        self._look_up(rows)
        todo: list[_PastVote] = []
        for number, row in enumerate(rows, start=1):
            try:
                vote = self._vote(number, row)
            except _BadField as error:
                self.problems.append(RowProblem(number, error.name, error.message))
                continue
            if vote is not None:
                todo.append(vote)
        return todo, len(rows)

    def _look_up(self, rows: list[Mapping[str, Any]]) -> None:
        settings = LabelingSettings.objects.filter(project=self.project).first()
        most = MOST if self.make_room else (settings or LabelingSettings()).max_overlap
        names = {str(r.get("comparison")) for r in rows if isinstance(r, Mapping)}
        mine = Comparison.objects.filter(project=self.project)
        self.comparisons: dict[str, int] = {}
        self.room: dict[int, int] = {}
        ordered = sorted(name for name in names if "\x00" not in name)
        for start in range(0, len(ordered), 5000):
            part = ordered[start : start + 5000]
            for key, name, overlap in mine.filter(external_id__in=part).values_list(
                "id", "external_id", "overlap"
            ):
                self.comparisons[name] = key
                self.room[key] = max(most, overlap)
        taken = Slot.objects.filter(project=self.project).exclude(
            state__in=(Slot.State.FREE, Slot.State.WITHDRAWN)
        )
        for key, n in Counter(taken.values_list("task_id", flat=True)).items():
            if key in self.room:
                self.room[key] -= n
        prefix = len(_username(self.project, ""))
        self.known = {
            (comparison, username[prefix:]): choice
            for comparison, username, choice in Vote.objects.filter(
                project=self.project, source=Vote.Source.IMPORT, annotator__is_imported=True
            ).values_list("comparison_id", "annotator__username", "choice")
        }

    def _vote(self, number: int, row: Any) -> _PastVote | None:
        """The row as a vote to write, or None when it is there already."""
        if not isinstance(row, Mapping):
            raise _BadField("row", "is not an object with fields")
        if unknown := sorted(str(name) for name in row if name not in FIELDS):
            raise _BadField(unknown[0], f"is not a known field; known are {', '.join(FIELDS)}")
        comparison = self.comparisons.get(str(row.get("comparison")))
        if comparison is None:
            raise _BadField("comparison", f"there is none with the id {row.get('comparison')!r}")
        annotator = _annotator(row.get("annotator"))
        answer = _answer(row)
        cast_at = self._cast_at(row.get("cast_at"))
        known = self.known.get((comparison, annotator))
        if known is not None:
            if known != answer.choice:
                raise _BadField(
                    "choice",
                    f"is {answer.choice!r}, but this annotator has already voted {known!r}",
                )
            return None
        if self.room[comparison] <= 0:
            raise _BadField(
                "comparison",
                f"is full: it takes at most {MOST} votes"
                if self.make_room
                else "is full: the project's maximum of votes per comparison is reached",
            )
        self.room[comparison] -= 1
        self.known[(comparison, annotator)] = answer.choice
        return _PastVote(number, comparison, annotator, answer, cast_at)

    def _cast_at(self, value: Any) -> datetime | None:
        if value is None or value == "":
            return None
        try:
            at = value if isinstance(value, datetime) else parse_datetime(str(value))
        except ValueError:
            at = None
        if at is None:
            raise _BadField("cast_at", f"{value!r} is not a time such as 2026-11-21T09:30:00Z")
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        if at > self.now:
            raise _BadField("cast_at", "lies in the future")
        return at


def _annotator(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value.strip():
        raise _BadField("annotator", "is missing")
    value = value.strip()
    if len(value) > _LONGEST_ANNOTATOR or "\x00" in value:
        raise _BadField("annotator", f"must be a text of at most {_LONGEST_ANNOTATOR} characters")
    return value


def _answer(row: Mapping[str, Any]) -> Answer:
    choice = row.get("choice")
    folded = choice.strip().lower() if isinstance(choice, str) else ""
    if folded not in Choice.values:
        raise _BadField("choice", f"is {choice!r}; one of {', '.join(Choice.values)} is expected")
    rationale = row.get("rationale") or ""
    if not isinstance(rationale, str):
        raise _BadField("rationale", "must be a text")
    try:
        return Answer(choice=folded, strength=row.get("strength"), rationale=rationale.strip())
    except DomainError as error:
        raise _BadField(error.field or "row", error.message) from None


def _username(project: Project, annotator: str) -> str:
    return f"imported.{project.pk}.{annotator}"


def imported_people(project: Project, annotators: Collection[str]) -> dict[str, int]:
    """Ids of imported people by their id in the file."""
    prefix = len(_username(project, ""))
    names = [_username(project, annotator) for annotator in annotators]
    found = User.objects.filter(username__in=names).values_list("username", "id")
    return {username[prefix:]: key for username, key in found}


def imported_people_make(project: Project, annotators: Collection[str]) -> int:
    """Make the people who are new, by their ids in the file; they cannot sign in, and no password
    is hashed. Returns how many."""
    new = sorted(set(annotators) - set(imported_people(project, annotators)))
    User.objects.bulk_create(
        [
            User(
                username=_username(project, annotator),
                display_name=annotator,
                password=_UNUSABLE_PASSWORD,
                is_imported=True,
                is_active=False,
            )
            for annotator in new
        ],
        batch_size=1000,
        ignore_conflicts=True,  # another import of the same people may run beside this one
    )
    members = User.objects.filter(username__in=[_username(project, name) for name in new])
    Membership.objects.bulk_create(
        [Membership(project=project, user=user, role=Role.ANNOTATOR) for user in members],
        batch_size=1000,
        ignore_conflicts=True,
    )
    return len(new)


def _batches(todo: list[_PastVote]) -> Iterator[list[_PastVote]]:
    """The votes in parts; those on one comparison stay together, so that it is decided once."""
    batch: list[_PastVote] = []
    for _, votes in groupby(sorted(todo, key=lambda v: v.comparison), key=lambda v: v.comparison):
        batch += votes
        if len(batch) >= BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


@retried
def _write_batch(
    project: Project, batch: list[_PastVote], people: dict[str, int], room: bool
) -> None:
    """Slots, votes and decisions of a batch in one transaction, by few statements."""
    keys = sorted({vote.comparison for vote in batch})
    with transaction.atomic(), connection.cursor() as cursor:
        # Locked in one order, so two imports cannot deadlock.
        cursor.execute(sql.LOCK_COMPARISONS, {"ids": keys})
        cursor.execute("select now()")
        now = cursor.fetchone()[0]
        cursor.execute(sql.PLACES_OF, {"ids": keys})
        places = {row["id"]: row for row in rows_named(cursor)}
        taken, added = _places(cursor, batch, people, places, room)
        cursor.execute(
            "update labeling_slot s set state = 'done', annotator_id = t.annotator,"
            " leased_at = now(), leased_until = null, left_is = ''"
            " from unnest(%s::bigint[], %s::bigint[]) t(id, annotator) where s.id = t.id",
            [list(taken), [people[vote.annotator] for vote in taken.values()]],
        )
        more = Counter(vote.comparison for vote in added.values())
        cursor.execute(
            "update labeling_comparison c set overlap = overlap + t.more"
            " from unnest(%s::bigint[], %s::int[]) t(id, more) where c.id = t.id",
            [list(more), list(more.values())],
        )
        rows_copy(
            cursor,
            Slot,
            "id project_id task_id position kind state priority shuffle annotator_id topic"
            " language leased_at left_is",
            (
                (
                    slot,
                    project.pk,
                    vote.comparison,
                    _next_position(place := places[vote.comparison]),
                    "regular",
                    "done",
                    place["priority"],
                    place["shuffle"],
                    people[vote.annotator],
                    place["topic"],
                    place["language"],
                    now,
                    "",
                )
                for slot, vote in added.items()
            ),
            stamped=False,
        )
        rows_copy(
            cursor,
            StoredAnswer,
            "project_id task_id slot_id annotator_id choice chosen_id left_is strength"
            " criteria reasons rationale flags idempotency_key source revision is_current cast_at",
            (
                (
                    project.pk,
                    vote.comparison,
                    slot,
                    people[vote.annotator],
                    vote.answer.choice,
                    places[vote.comparison].get(f"response_{vote.answer.choice}_id"),
                    "",
                    vote.answer.strength,
                    "{}",
                    [],
                    vote.answer.rationale,
                    [],
                    f"import:{vote.comparison}",
                    Vote.Source.IMPORT.value,
                    1,
                    True,
                    vote.cast_at or now,
                )
                for slot, vote in sorted((taken | added).items(), key=lambda pair: pair[1].row)
            ),
            stamped=False,
        )
        votes_recount(project=project, comparisons=keys)


def _places(
    cursor: CursorWrapper,
    batch: list[_PastVote],
    people: dict[str, int],
    places: dict[int, dict[str, Any]],
    room: bool,
) -> tuple[dict[int, _PastVote], dict[int, _PastVote]]:
    """({slot that was open: vote}, {slot to add: vote}); free ones are taken first."""
    cursor.execute(sql.OPEN_SLOTS, {"ids": list(places)})
    open_slots: dict[int, list[int]] = {}
    for slot, comparison in cursor.fetchall():
        open_slots.setdefault(comparison, []).append(slot)
    taken: dict[int, _PastVote] = {}
    wanting: list[_PastVote] = []
    for vote in batch:
        if free := open_slots.get(vote.comparison):
            taken[free.pop(0)] = vote
            continue
        place = places[vote.comparison]
        place["n_slots"] += 1
        if place["n_slots"] > place["most"] and not room:
            raise Conflict(
                f"Row {vote.row}: other people have voted on its comparison meanwhile, and it "
                f"takes at most {place['most']} votes. Import the file again to continue.",
                code="import_interrupted",
                row=vote.row,
                field="comparison",
            )
        wanting.append(vote)
    return taken, dict(zip(ids_next(cursor, Slot, len(wanting)), wanting, strict=True))


def _next_position(place: dict[str, Any]) -> int:
    place["last"] += 1
    return place["last"]

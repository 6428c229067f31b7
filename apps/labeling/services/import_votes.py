"""Bringing in votes that were cast elsewhere, through the same steps as a vote on the screen."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from django.db import transaction
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from apps.accounts.models import Membership, Project, Role, User
from apps.common.errors import Conflict, DomainError
from apps.common.transactions import WORTH_IT, plans_renew, prepared_cursor
from apps.labeling.models import Choice, Comparison, Decision, LabelingSettings, Slot, Vote
from apps.labeling.services import leasing, votes
from apps.labeling.services.answers import Answer
from apps.labeling.services.results import RowProblem, RowsRefused, VotesReport

FIELDS = ("comparison", "annotator", "choice", "cast_at", "strength", "rationale")
BATCH = 500  # votes per transaction
_LONGEST_ANNOTATOR = 100
_UNUSABLE_PASSWORD = "!"  # noqa: S105 (opens nothing: Django refuses passwords that start with it)


def votes_import(
    *,
    project: Project,
    rows: Iterable[Mapping[str, Any]],
    on_error: Literal["refuse", "skip"] = "refuse",
    progress: Callable[[int, int], None] | None = None,
) -> VotesReport:
    """Import past votes: each takes a slot, is stored, counted and decided like any other.

    Row fields: comparison (its external id), annotator (any id; it becomes an imported person of
    this project, who cannot sign in), choice (a, b, tie, both_bad), and optionally cast_at (ISO
    8601, UTC unless it says otherwise), strength (1, 2), rationale. The side shown is unknown and
    stays empty.

    A vote that is there already, with the same choice, is left alone, so the same file twice
    changes nothing. All rows are checked before the first is written; then they are written in
    transactions of 500, after each of which `progress(rows done, rows to do)` is called.

    Raises `RowsRefused` listing every bad row and field, with nothing imported; with
    on_error="skip" the good rows are imported. If other people vote in the same moments and take
    the room, `Conflict` (`import_interrupted`) names the row; a second run continues there.
    """
    started = time.perf_counter()
    check = _Check(project)
    todo, n_rows = check.read(list(rows))
    problems = sorted(check.problems, key=lambda problem: problem.row)
    if problems and on_error == "refuse":
        raise RowsRefused(problems, n_rows=n_rows)
    with transaction.atomic():
        n_people = _people_create(project, todo)
    people = _people(project, {vote.annotator for vote in todo})
    for start in range(0, len(todo), BATCH):
        _write_batch(todo[start : start + BATCH], people)
        n_batches = start // BATCH + 1
        if n_batches & (n_batches - 1) == 0 and len(todo) >= WORTH_IT:  # after 1, 2, 4, 8, …
            plans_renew(Vote, Decision, Slot)
        if progress:
            progress(min(start + BATCH, len(todo)), len(todo))
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

    def __init__(self, project: Project) -> None:
        self.project = project
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
        most = (settings or LabelingSettings()).max_overlap
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
        for key, n in Counter(taken.values_list("comparison_id", flat=True)).items():
            if key in self.room:
                self.room[key] -= n
        prefix = len(_username(self.project, ""))
        self.known = {
            (comparison, username[prefix:]): choice
            for comparison, username, choice in Vote.objects.filter(
                project=self.project, is_current=True, annotator__is_imported=True
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
                "comparison", "is full: the project's maximum of votes per comparison is reached"
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


def _people(project: Project, annotators: set[str]) -> dict[str, int]:
    """Ids of imported people by their id in the file."""
    prefix = len(_username(project, ""))
    names = [_username(project, annotator) for annotator in annotators]
    found = User.objects.filter(username__in=names).values_list("username", "id")
    return {username[prefix:]: key for username, key in found}


def _people_create(project: Project, todo: list[_PastVote]) -> int:
    """Make the people who are new, without hashing passwords; returns how many."""
    wanted = {vote.annotator for vote in todo}
    new = sorted(wanted - set(_people(project, wanted)))
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


def _write_batch(batch: list[_PastVote], people: dict[str, int]) -> None:
    with transaction.atomic(), prepared_cursor() as cursor:
        keys = sorted({vote.comparison for vote in batch})
        # All rows this batch decides, locked in one order, so two imports cannot deadlock.
        list(
            Comparison.objects.select_for_update(no_key=True)
            .filter(pk__in=keys)
            .order_by("pk")
            .values_list("pk")
        )
        for vote in batch:
            annotator = people[vote.annotator]
            try:
                votes.cast(
                    cursor,
                    slot=leasing.take_for(cursor, vote.comparison, annotator),
                    annotator=annotator,
                    answer=vote.answer,
                    key=f"import:{vote.comparison}",
                    source=Vote.Source.IMPORT,
                    cast_at=vote.cast_at,
                    lease_next=False,
                )
            except Conflict as error:
                raise Conflict(
                    f"Row {vote.row}: {error.message} The rows before row {batch[0].row} are in; "
                    "import the file again to continue.",
                    code="import_interrupted",
                    row=vote.row,
                    field="comparison",
                ) from error

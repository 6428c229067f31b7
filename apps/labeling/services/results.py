"""What the services of labeling answer with."""

import hashlib
import hmac
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import lru_cache
from typing import Any, Literal

from django.conf import settings

from apps.common.errors import DomainError
from apps.labeling.models import Answer, LabelingSettings, Task, Vote
from measures.messages import Messages
from measures.voting import Decision


@dataclass(frozen=True, slots=True)
class Criterion:
    """A row of its own under the answers: A, tie or B by this criterion."""

    key: str
    label: str
    definition: str = ""  # what it means, with examples of either side


@dataclass(frozen=True, slots=True)
class Questions:
    """What the project asks besides A or B."""

    tie: bool = True
    both_bad: bool = True
    strength: bool = False
    rationale: bool = False  # reason chips and a free text
    require_rationale: bool = False  # a chip or a text with every vote
    flags: bool = True
    improve: bool = False  # an editor for an improved version of the better answer
    require_criteria: bool = False
    completion_votes: int = 0  # answers that earn a completion code
    due_on: date | None = None
    outcome: bool = True  # of each run of an agent
    first_error: bool = True
    steps: bool = False
    costs: bool = False  # are shown
    run_lease_seconds: int = 3_600
    reasons: tuple[str, ...] = ()  # the chips
    criteria: tuple[Criterion, ...] = ()  # a row A / tie / B each

    @property
    def one_key_submits(self) -> bool:
        """Whether a choice alone is a complete answer."""
        return not (self.require_rationale or (self.require_criteria and self.criteria))

    @classmethod
    def of(cls, settings: LabelingSettings) -> "Questions":
        return cls.from_columns({name: getattr(settings, name) for name in QUESTION_COLUMNS})

    @classmethod
    def from_columns(cls, row: Mapping[str, Any]) -> "Questions":
        """From `QUESTION_COLUMNS`; a project without settings (nulls) asks the default."""
        if row[QUESTION_COLUMNS[0]] is None:
            return cls.of(LabelingSettings())
        *switches, reasons, criteria = (row[name] for name in QUESTION_COLUMNS)
        rows = json.loads(criteria) if isinstance(criteria, str) else criteria
        shown = tuple(Criterion(**row) for row in rows)
        return cls(*[*switches, tuple(reasons), shown])


# Columns of LabelingSettings in the order of the fields of `Questions`.
QUESTION_COLUMNS = (
    "show_tie",
    "show_both_bad",
    "show_strength",
    "show_rationale",
    "require_rationale",
    "show_flags",
    "show_improve",
    "require_criteria",
    "completion_votes",
    "due_on",
    "ask_outcome",
    "ask_first_error",
    "ask_steps",
    "show_costs",
    "run_lease_seconds",
    "reasons",
    "criteria",
)


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
        return self.kind == Task.Kind.RANK

    @classmethod
    def of(cls, task: Task) -> "Scale":
        return cls(task.kind, task.low or 0, task.high or 0, task.low_label, task.high_label)


@dataclass(frozen=True, slots=True)
class Lease:
    """A task in one annotator's hands: what the screen shows, and until when it is theirs.

    A pair has `left` and `right`; the other kinds have `responses`, in the order they are shown,
    and a `scale`. Nothing in it tells where an answer came from or how others voted.
    """

    slot: int
    task: int
    project: str
    annotator: int
    left_is: str  # "a" or "b": which canonical response stands left
    leased_at: datetime
    leased_until: datetime
    prompt: Messages
    left: Messages = field(default_factory=list)
    right: Messages = field(default_factory=list)
    kind: str = Task.Kind.PAIR
    of_agents: bool = False  # the answers are runs of agents, with steps
    responses: tuple[Messages, ...] = ()
    scale: Scale | None = None
    n_today: int = 0  # answers this annotator has given here since midnight UTC
    questions: Questions = Questions()
    warning: str = ""  # what may upset whoever reads it

    @property
    def comparison(self) -> int:
        return self.task

    @property
    def key(self) -> str:
        """The idempotency key the page submits with: it proves that this lease was given out."""
        return lease_key(self.slot, self.annotator, self.leased_at)


def lease_key(slot: int, annotator: int, leased_at: datetime) -> str:
    stamp = int(leased_at.timestamp() * 1_000_000)
    return f"{slot}.{stamp}.{_mac(f'{slot}.{annotator}.{stamp}')}"


def lease_was_given(key: str, *, slot: int, annotator: int) -> bool:
    """Whether `key` is one we made for this slot and this person, however long ago."""
    parts = key.split(".")
    if len(parts) != 3 or parts[0] != str(slot):
        return False
    return hmac.compare_digest(parts[2], _mac(f"{slot}.{annotator}.{parts[1]}"))


def _mac(text: str) -> str:
    return hmac.new(_lease_secret(), text.encode(), hashlib.sha256).hexdigest()[:20]


@lru_cache(maxsize=1)
def _lease_secret() -> bytes:
    return hashlib.sha256(b"labeling.lease:" + settings.SECRET_KEY.encode()).digest()


NothingCode = Literal[
    "empty",  # nothing was imported
    "paused",  # an admin paused this person
    "quota",  # the project has taken as many answers as it may
    "consent",  # what answers are used for waits to be agreed to
    "guideline",  # a major version of the guidelines waits to be acknowledged
    "qualification",  # not qualified yet
    "daily_cap",  # this person's votes of today are all in
    "held",  # others hold what is left
    "audits_done",  # somebody asked for audits, and none is left for them
    "yours_done",  # this person has answered all they may
    "all_done",
]


@dataclass(frozen=True, slots=True)
class NothingReason:
    """Why there is no pair to hand out, in words the annotator reads.

    `back_at` is set for "held": the latest moment by which the first of the held pairs is either
    answered or free again.
    """

    code: NothingCode
    title: str
    text: str
    back_at: datetime | None = None
    n_today: int = 0


@dataclass(frozen=True, slots=True)
class VoteResult:
    """A stored answer, what a pair now amounts to (None of other kinds), and the next task.

    `replayed` is true when the same submit had been stored before. `next` is None when the caller
    asked for none.
    """

    vote: Vote | Answer
    decision: Decision | None
    next: Lease | NothingReason | None = None
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class RowProblem:
    """What is wrong with one row of a bulk input; `row` counts from 1.

    `kind` says what sort of warning it is, for counting: "" for an error, else a key of
    `services.import_checks.WARNINGS`.
    """

    row: int
    field: str
    message: str
    kind: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {"row": self.row, "field": self.field, "message": self.message}


class RowsRefused(DomainError):
    """A bulk input was refused as a whole; `details` names each bad row and field."""

    code = "rows_invalid"
    MOST_LISTED = 200

    def __init__(self, problems: list[RowProblem], *, n_rows: int) -> None:
        first = problems[0]
        n_bad = len({problem.row for problem in problems})
        super().__init__(
            f"{n_bad:,} of {n_rows:,} rows cannot be imported, so nothing was. "
            f"The first: row {first.row}, {first.field}: {first.message}.",
            row=first.row,
            field=first.field,
            details=[problem.as_dict() for problem in problems[: self.MOST_LISTED]],
        )
        self.problems, self.n_rows = problems, n_rows


@dataclass(slots=True)
class ImportReport:
    """What an import of comparisons did, in numbers of rows unless said otherwise.

    n_rows = n_created + n_unchanged + n_refused. n_review: of those created, how many wait for a
    person because an answer holds a constraint phrase. `groups`: rows created by the key that
    splits go by.
    """

    n_rows: int = 0
    n_created: int = 0
    n_unchanged: int = 0
    n_refused: int = 0
    n_prompts: int = 0  # new prompts
    n_responses: int = 0  # new responses
    n_slots: int = 0  # new slots
    n_review: int = 0
    n_recurring: int = 0  # answers that stand in more than one group
    groups: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    problems: list[RowProblem] = field(default_factory=list)
    warnings: list[RowProblem] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        numbers = {
            name: getattr(self, name)
            for name in (
                "n_rows",
                "n_created",
                "n_unchanged",
                "n_refused",
                "n_prompts",
                "n_responses",
                "n_slots",
                "n_review",
            )
        }
        return numbers | {
            "seconds": round(self.seconds, 3),
            "problems": [p.as_dict() for p in self.problems[: RowsRefused.MOST_LISTED]],
            "warnings": [p.as_dict() for p in self.warnings[: RowsRefused.MOST_LISTED]],
        }


@dataclass(slots=True)
class VotesReport:
    """What an import of votes did, in numbers of rows; n_people counts new imported people."""

    n_rows: int = 0
    n_created: int = 0
    n_unchanged: int = 0
    n_refused: int = 0
    n_people: int = 0
    seconds: float = 0.0
    problems: list[RowProblem] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return {
            "n_rows": self.n_rows,
            "n_created": self.n_created,
            "n_unchanged": self.n_unchanged,
            "n_refused": self.n_refused,
            "n_people": self.n_people,
            "seconds": round(self.seconds, 3),
            "problems": [p.as_dict() for p in self.problems[: RowsRefused.MOST_LISTED]],
        }


# What is odd about a row that can be imported all the same: found, named, and never in the way.
#
# Only a constraint phrase has a consequence: its pair goes to human review instead of the queue.

"""An annotator's answer: what it may hold, how it is checked, how it is written."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, TypedDict, Unpack

from django.db import transaction
from django.db.backends.utils import CursorWrapper
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from apps.common.errors import Conflict, DomainError, Missing, Refused
from apps.common.numbers import count
from apps.common.transactions import row_named
from apps.labeling.models import (
    PAIRED,
    Choice,
    Comparison,
    Response,
    RunAnswer,
    Slot,
    Task,
    ToolResult,
    Vote,
)
from apps.labeling.models import Answer as StoredAnswer
from apps.labeling.services import kinds
from apps.labeling.services import statements as sql
from apps.labeling.services.deciding import Policy, decision_store
from apps.labeling.services.eligibility import Eligibility, role_check
from apps.labeling.services.results import Questions, VoteResult
from apps.labeling.texts import (
    MOST_CHARACTERS,
    MOST_MESSAGES,
    BadMessages,
    fingerprint,
    messages_from,
)
from measures import voting
from measures.messages import briefly
from measures.runs import steps_of

# What an annotator says about a pair, checked before anything is stored.

SIDES = ("left", "right", "tie", "both_bad")
FLAGS = {
    "unsafe": _("Unsafe content"),
    "personal_data": _("Personal data"),
    "wrong_language": _("Wrong language"),
    "prompt_unclear": _("Prompt unclear"),
    "model_revealed": _("Names its model"),
    "rendering_broken": _("Shown broken"),
}
UNSAFE = "unsafe"
LONGEST_RATIONALE = 4000
CRITERION_CHOICES = ("left", "tie", "right")
SLIGHTLY, MUCH = 1, 2
LONGEST_TIME = timedelta(days=7) // timedelta(milliseconds=1)


class AnswerFields(TypedDict, total=False):
    """What the vote services take as keyword arguments.

    Of a pair either `choice` (canonical: a, b, tie, both_bad) or `side` (as seen: left, right, tie,
    both_bad) is given, and `criteria` in the same terms: {criterion: a | tie | b} beside a choice,
    {criterion: left | tie | right} beside a side; of the other kinds `values`, one whole number for
    each response in the order shown. Strength is 1 (slightly) or 2 (much).
    `improvement` is the better answer as the annotator would have it. Times are milliseconds:
    `wall_ms` since the pair appeared, `active_ms` without pauses of a minute or more; both are
    bounded by what the server knows.
    """

    choice: str
    side: str
    values: Sequence[int]
    strength: int | None
    rationale: str
    reasons: list[str]
    flags: list[str]
    criteria: dict[str, str]
    improvement: str
    runs: "Runs"
    active_ms: int | None
    wall_ms: int | None


class Runs(TypedDict, total=False):
    """What is said about the runs of agents of a pair, in the terms of the answer (left and right
    beside a side, a and b beside a choice); steps count from 1 in the whole run.

    outcome: {side: {question: yes | no | unsure}} of `OUTCOME`; first_error: {side: step, 0 for
    none}; steps: {"3-4": side | tie}, step 3 of the left run (or of A) beside step 4 of the other;
    unopened: {side: steps with folded parts that were never opened}.
    """

    outcome: dict[str, dict[str, str]]
    first_error: dict[str, int]
    steps: dict[str, str]
    unopened: dict[str, list[int]]


def answer_from(**fields: Unpack[AnswerFields]) -> "Answer":
    """The fields as a checked answer; errors name the field."""
    tidy = fields.copy()
    tidy["values"] = tuple(fields.get("values", ()))
    tidy["rationale"] = fields.get("rationale", "").strip()
    tidy["flags"] = list(dict.fromkeys(fields.get("flags", ())))
    tidy["reasons"] = list(dict.fromkeys(fields.get("reasons", ())))
    tidy["improvement"] = fields.get("improvement", "").strip()
    return Answer(**tidy)


@dataclass(frozen=True, slots=True)
class Answer:
    """`AnswerFields` that have passed the checks."""

    choice: str = ""
    side: str = ""
    values: Sequence[int] = ()
    strength: int | None = None
    rationale: str = ""
    reasons: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    criteria: dict[str, str] = field(default_factory=dict)
    improvement: str = ""
    runs: Runs = field(default_factory=Runs)
    active_ms: int | None = None
    wall_ms: int | None = None

    def __post_init__(self) -> None:
        if self.values:
            if self.choice or self.side:
                raise DomainError("Give either a choice or values.", field="values")
            if any(isinstance(one, bool) or not isinstance(one, int) for one in self.values):
                raise DomainError("Whole numbers, one for each response.", field="values")
        elif bool(self.choice) == bool(self.side):
            raise DomainError("Give either a choice or a side.", field="choice")
        if self.choice and self.choice not in Choice.values:
            raise DomainError(
                f"The choice {self.choice!r} is unknown; one of {', '.join(Choice.values)}.",
                field="choice",
            )
        if self.side and self.side not in SIDES:
            raise DomainError(
                f"The side {self.side!r} is unknown; one of {', '.join(SIDES)}.", field="side"
            )
        if self.strength not in (None, SLIGHTLY, MUCH):
            raise DomainError("The strength is 1 (slightly) or 2 (much).", field="strength")
        if self.strength is not None and (self.choice or self.side) in ("tie", "both_bad"):
            raise DomainError("Only A or B can be better by a strength.", field="strength")
        if len(self.rationale) > LONGEST_RATIONALE:
            raise DomainError(_at_most(LONGEST_RATIONALE), field="rationale")
        if len(self.improvement) > MOST_CHARACTERS:
            raise DomainError(_at_most(MOST_CHARACTERS), field="improvement")
        for name in ("rationale", "improvement"):
            if "\x00" in getattr(self, name):
                raise DomainError(gettext("A NUL character cannot be stored."), field=name)
        if self.improvement and (self.choice or self.side) in ("tie", "both_bad"):
            raise DomainError(
                gettext("Say which answer is better to improve it, or leave the improvement out."),
                field="improvement",
            )
        allowed = CRITERION_CHOICES if self.side else ("a", "tie", "b")
        for name, value in self.criteria.items():
            if value not in allowed:
                raise DomainError(
                    f"The criterion {name!r} is {value!r}; one of {', '.join(allowed)}.",
                    field="criteria",
                )
        runs_check(self.runs, ("left", "right") if self.side else ("a", "b"))
        if unknown := sorted(set(self.flags) - set(FLAGS)):
            raise DomainError(
                f"Unknown flag {unknown[0]!r}; one of {', '.join(FLAGS)}.", field="flags"
            )
        for name in ("active_ms", "wall_ms"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= LONGEST_TIME:
                raise DomainError("Milliseconds, at most seven days of them.", field=name)

    def same_as(self, stored: StoredAnswer, leased: "LeasedSlot") -> bool:
        """Whether this is what was stored, sent again."""
        same = (stored.rationale, stored.flags) == (self.rationale, self.flags)
        if stored.kind not in PAIRED:
            shown = replace(leased, shown=stored.shown)
            return same and stored.values == kinds.canonical(self.values, shown)
        left_is = stored.left_is or leased.left_is
        return (
            same
            and stored.choice == self.canonical(left_is)
            and stored.strength == self.strength
            and stored.reasons == self.reasons
            and stored.criteria == self.canonical_criteria(left_is)
            and self._same_of_runs(stored.pk, left_is)
        )

    def _same_of_runs(self, answer: int, left_is: str) -> bool:
        """What was opened between the two submits makes no other answer of it."""
        if not self.runs:
            return True
        said: dict[str, Any] = dict(self.canonical_runs(left_is))
        kept = RunAnswer.objects.filter(answer=answer).first()
        names = ("outcome", "first_error", "steps")
        return kept is not None and all(getattr(kept, one) == said.get(one, {}) for one in names)

    def canonical(self, left_is: str) -> str:
        """The choice in terms of the stored responses, given which of them stood left."""
        if self.choice:
            return self.choice
        if self.side == "left":
            return left_is
        if self.side == "right":
            return "b" if left_is == "a" else "a"
        return self.side

    def canonical_runs(self, left_is: str) -> Runs:
        """The same in terms of the stored responses."""
        if self.choice or not self.runs:
            return self.runs
        right_is = "b" if left_is == "a" else "a"
        names = {"left": left_is, "right": right_is, "tie": "tie"}
        given: dict[str, Any] = dict(self.runs)
        made: Any = {
            part: {names[side]: value for side, value in given[part].items()}
            for part in ("outcome", "first_error", "unopened")
            if part in given
        }
        if "steps" in self.runs:
            turned = left_is == "b"
            made["steps"] = {
                "-".join(reversed(places.split("-"))) if turned else places: names[value]
                for places, value in self.runs["steps"].items()
            }
        return Runs(**made)

    def canonical_criteria(self, left_is: str) -> dict[str, str]:
        """The criteria in terms of the stored responses."""
        if self.choice:
            return self.criteria
        names = {"left": left_is, "right": "b" if left_is == "a" else "a", "tie": "tie"}
        return {key: names[value] for key, value in self.criteria.items()}


# Of each run of an agent: AgentRewardBench's three questions (Lù and others 2025, 2504.08942).
OUTCOME = {
    "success": _("Did it do what was asked?"),
    "side_effects": _("Did it change anything it should not have?"),
    "repetition": _("Did it repeat itself without need?"),
}
OUTCOMES = ("yes", "no", "unsure")
MOST_STEPS = MOST_MESSAGES
_PAIR = re.compile(r"([1-9]\d{0,3})-([1-9]\d{0,3})")


def runs_check(runs: Runs, sides: tuple[str, str]) -> None:
    """Errors name the field."""
    given: dict[str, Any] = dict(runs)
    for name in ("outcome", "first_error", "unopened"):
        for side in given.get(name, {}):
            if side not in sides:
                raise DomainError(f"{name}: {side!r} is none of {', '.join(sides)}.", field=name)
    for answers in runs.get("outcome", {}).values():
        for question, value in answers.items():
            if question not in OUTCOME or value not in OUTCOMES:
                raise DomainError(
                    f"outcome: one of {', '.join(OUTCOME)} is {', '.join(OUTCOMES)}.",
                    field="outcome",
                )
    if not all(_is_step(step, low=0) for step in runs.get("first_error", {}).values()):
        raise DomainError("first_error: a step's number, 0 for none.", field="first_error")
    for places, value in runs.get("steps", {}).items():
        if not _PAIR.fullmatch(places) or value not in (*sides, "tie"):
            raise DomainError(f"steps: {{'3-4': one of {', '.join(sides)}, tie}}.", field="steps")
    if len(runs.get("steps", {})) > MOST_STEPS:
        raise DomainError(f"steps: at most {count(MOST_STEPS)}.", field="steps")
    for steps in runs.get("unopened", {}).values():
        if len(steps) > MOST_STEPS or not all(_is_step(step) for step in steps):
            raise DomainError("unopened: numbers of steps.", field="unopened")


def _is_step(value: Any, low: int = 1) -> bool:
    return type(value) is int and low <= value <= MOST_STEPS


def _at_most(n: int) -> str:
    return gettext("At most %(n)s characters.") % {"n": count(n)}


def offered_check(answer: Answer, choice: str, questions: Questions) -> None:
    """What an annotator of this project may and must say; errors name the field.

    Not asked of imported votes: they were cast under other rules.
    """
    if choice == "tie" and not questions.tie:
        raise Refused(gettext("This project does not offer ties."), field="choice")
    if choice == "both_bad" and not questions.both_bad:
        raise Refused(gettext("This project does not offer “both are bad”."), field="choice")
    if answer.improvement and not questions.improve:
        raise Refused(gettext("This project does not take improved answers."), field="improvement")
    known = {criterion.key: criterion.label for criterion in questions.criteria}
    if unknown := sorted(set(answer.criteria) - set(known)):
        raise DomainError(
            gettext("There is no criterion “%(name)s”.") % {"name": unknown[0]}, field="criteria"
        )
    if unknown := [reason for reason in answer.reasons if reason not in questions.reasons]:
        raise DomainError(
            gettext("There is no reason “%(name)s” to choose.") % {"name": unknown[0]},
            field="reasons",
        )
    if questions.require_rationale and not (answer.reasons or answer.rationale):
        raise DomainError(gettext("Say why: choose a reason or write one."), field="rationale")
    missing = [label for key, label in known.items() if key not in answer.criteria]
    if questions.require_criteria and missing:
        raise DomainError(gettext("Judge “%(name)s” too.") % {"name": missing[0]}, field="criteria")


def times_bounded(
    active_ms: int | None, wall_ms: int | None, *, leased_ms: int
) -> tuple[int | None, int | None]:
    """(active, wall) that fit: nobody looked at a pair for longer than they held it."""
    wall = None if wall_ms is None else min(wall_ms, leased_ms)
    active = None if active_ms is None else min(active_ms, leased_ms if wall is None else wall)
    return active, wall


# The steps every stored vote goes through: lock and read, add the row, close the slot, decide.

# Where the columns of `LOCK_FOR_VOTE` change from one thing to the next.
_OWN_COLUMNS = (
    "slot",
    "project",
    "task",
    "task_kind",
    "kind",
    "state",
    "annotator",
    "left_is",
    "shown",
    "leased_at",
    "now",
    "response_a",
    "response_b",
    "low",
    "high",
    "guideline",
)
# Votes of these slots decide; hidden repeats and audit re-votes measure the annotator instead.
_COUNTED = (Slot.Kind.REGULAR, Slot.Kind.GOLD)


@dataclass(frozen=True, slots=True)
class LeasedSlot:
    """A slot and its task while we hold both rows, and what is needed to answer it."""

    slot: int
    project: str
    task: int
    task_kind: str
    kind: str
    state: str
    annotator: int | None
    left_is: str
    shown: list[int]
    leased_at: datetime | None
    now: datetime
    response_a: int | None
    response_b: int | None
    low: int | None
    high: int | None
    overlap: int
    guideline: int | None
    eligibility: Eligibility
    questions: Questions
    policy: Policy

    @property
    def is_pair(self) -> bool:
        """Whether it shows two answers side by side."""
        return self.task_kind in PAIRED

    @property
    def decides(self) -> bool:
        """Whether its votes are counted into a decision."""
        return self.task_kind == Task.Kind.PAIR


def slot_lock(cursor: CursorWrapper, slot: int, annotator: int, source: str) -> LeasedSlot:
    """Lock membership, slot and task, in that order, and read what a vote needs."""
    cursor.execute(sql.LOCK_FOR_VOTE, {"slot": slot, "annotator": annotator})
    row = row_named(cursor)
    if row is None:
        raise Missing(gettext("There is no such pair."), field="slot")
    eligibility = Eligibility.of(row)
    if source != Vote.Source.IMPORT:  # imported people are not members: they cannot sign in
        if eligibility.role is None:
            raise Missing(gettext("There is no such pair."), field="slot")
        role_check(eligibility.role)
    return LeasedSlot(
        **{name: row[name] for name in _OWN_COLUMNS},
        overlap=row["slots"],
        eligibility=eligibility,
        questions=Questions.from_columns(row),
        policy=Policy.of(row),
    )


def vote_write(
    cursor: CursorWrapper,
    leased: LeasedSlot,
    annotator: int,
    answer: Answer,
    key: str,
    source: str,
    cast_at: datetime | None,
    replaces: StoredAnswer | None = None,
) -> VoteResult:
    """Add the answer, close the slot, count, decide."""
    leased_ms = _milliseconds_since(leased.leased_at, leased.now)
    active, wall = times_bounded(answer.active_ms, answer.wall_ms, leased_ms=leased_ms)
    columns = _said(leased, annotator, answer, source) | {
        "project_id": leased.project,
        "slot_id": leased.slot,
        "annotator_id": annotator,
        "rationale": answer.rationale,
        "flags": answer.flags,
        "guideline_id": None if source == Vote.Source.IMPORT else leased.guideline,
        "active_ms": active,
        "wall_ms": wall,
        "idempotency_key": key,
        "source": source,
        "revision": replaces.revision + 1 if replaces else 1,
        "supersedes_id": replaces.pk if replaces else None,
        "cast_at": cast_at or leased.now,
    }
    values = {"kind": leased.task_kind, "values": [], "shown": [], "task_id": leased.task} | columns
    others = _insert(cursor, values)
    if runs := answer.canonical_runs(leased.left_is):
        runs_store(cursor, others["answer"], leased, runs)
    if UNSAFE in answer.flags or (replaces and UNSAFE in replaces.flags):
        warning_follow(leased.task)
    if not leased.decides:
        n = others["n"] + (leased.kind in _COUNTED)
        cursor.execute(sql.COUNT_ANSWERS, {"task": leased.task, "n": n})
        return VoteResult(vote=StoredAnswer(id=others["answer"], **values), decision=None)
    counts = {choice: others[choice.value] for choice in voting.Choice}
    if leased.kind in _COUNTED:
        counts[voting.Choice(columns["choice"])] += 1
    decision = decision_store(
        cursor,
        project=leased.project,
        comparison=leased.task,
        counts=counts,
        overlap=leased.overlap,
        policy=leased.policy,
    )
    vote = Vote(id=others["answer"], comparison_id=leased.task, **columns)
    return VoteResult(vote=vote, decision=decision)


def _said(leased: LeasedSlot, annotator: int, answer: Answer, source: str) -> dict[str, Any]:
    """The columns that differ by kind. Errors where the answer is none to a task of this kind."""
    if not leased.is_pair:
        blank: dict[str, Any] = {"choice": "", "chosen_id": None, "left_is": "", "strength": None}
        blank |= {"criteria": {}, "reasons": [], "improvement_id": None}
        return blank | {"values": kinds.canonical(answer.values, leased), "shown": leased.shown}
    if answer.values:
        raise DomainError("This is a pair: give a choice or a side.", field="values")
    choice = answer.canonical(leased.left_is)
    if source != Vote.Source.IMPORT:
        offered_check(answer, choice, leased.questions)
    chosen = {"a": leased.response_a, "b": leased.response_b}.get(choice)
    return {
        "choice": choice,
        "chosen_id": chosen,
        "left_is": "" if source == Vote.Source.IMPORT else leased.left_is,
        "strength": answer.strength,
        "criteria": answer.canonical_criteria(leased.left_is),
        "reasons": answer.reasons,
        "improvement_id": improvement_store(
            text=answer.improvement, chosen=chosen, annotator=annotator
        ),
    }


def runs_store(cursor: CursorWrapper, answer: int, leased: LeasedSlot, runs: Runs) -> None:
    """What was said about the runs, beside the answer. Steps that neither run has are refused."""
    prompt, a, b = (
        Comparison.objects.filter(pk=leased.task)
        .values_list("prompt__brief", "response_a__brief", "response_b__brief")
        .get()
    )
    begun = len(steps_of(prompt))
    ends = {side: begun + len(steps_of(run)) for side, run in (("a", a), ("b", b))}
    beyond = [(side, step) for side, step in runs.get("first_error", {}).items()]
    for places in runs.get("steps", {}):
        beyond += list(zip("ab", map(int, places.split("-")), strict=True))
    for side, step in beyond:
        if step > ends[side]:
            raise DomainError(
                gettext("There is no step %(n)s in that run.") % {"n": step}, field="steps"
            )
    RunAnswer.objects.create(
        answer_id=answer,
        outcome=runs.get("outcome", {}),
        first_error=runs.get("first_error", {}),
        steps=runs.get("steps", {}),
        unopened=runs.get("unopened"),
    )


def warning_follow(task: int) -> None:
    """A task that somebody flags as unsafe carries a warning while such an answer stands."""
    flagged = StoredAnswer.objects.filter(task=task, is_current=True, flags__contains=[UNSAFE])
    was, becomes = ("", FLAGS[UNSAFE]) if flagged.exists() else (FLAGS[UNSAFE], "")
    Task.objects.filter(pk=task, warning=was).update(warning=becomes)


def counts_read(cursor: CursorWrapper, comparison: int) -> dict[voting.Choice, int]:
    cursor.execute(sql.CHOICES, {"comparison": comparison})
    return voting.count_votes(choice for (choice,) in cursor.fetchall())


def _insert(cursor: CursorWrapper, values: dict[str, Any]) -> dict[str, Any]:
    """Add the row and close its slot; returns its id, and the answers that count besides it."""
    cursor.execute(sql.INSERT_ANSWER, values | {"criteria": json.dumps(values["criteria"])})
    row = row_named(cursor)
    if row is None or row["answer"] is None:
        raise Conflict(
            gettext("This key was already used for a vote on another pair."),
            code="key_reused",
            field="idempotency_key",
        )
    return row


def _milliseconds_since(start: datetime | None, now: datetime) -> int:
    return max(0, int((now - (start or now)).total_seconds() * 1000))


def improvement_store(*, text: str, chosen: int | None, annotator: int) -> int | None:
    """The id of the response this improvement is, made where it is new; None without one.

    chosen: the response it improves on, whose last turn it replaces. A text that is the same as
    that one is no improvement, and none is stored. Errors name the field `improvement`.
    """
    if not text:
        return None
    if chosen is None:
        raise DomainError(
            gettext("Say which answer is better to improve it, or leave the improvement out."),
            field="improvement",
        )
    better = Response.objects.only("prompt_id", "brief", "text_hash").get(pk=chosen)
    last = better.brief[-1]
    if last["role"] != "assistant" or "tool_calls" in last:
        raise DomainError(
            gettext("A run that ends with a call of a tool has no text to improve."),
            field="improvement",
        )
    try:
        turn = messages_from(text, role=last["role"])
    except BadMessages as error:
        raise DomainError(
            gettext("The improved answer %(why)s.") % {"why": error}, field="improvement"
        ) from None
    messages = [*better.messages[:-1], {**last, "content": turn[0]["content"]}]
    text_hash = fingerprint(messages)
    if text_hash == better.text_hash:
        return None
    with transaction.atomic():
        brief, whole = briefly(messages)
        found, is_new = Response.objects.get_or_create(
            prompt_id=better.prompt_id,
            text_hash=text_hash,
            origin=Response.Origin.EDIT,
            origin_ref=f"person {annotator}",
            defaults={"brief": brief, "metadata": {"improves": chosen}},
        )
        if is_new and whole:
            ToolResult.objects.bulk_create(
                ToolResult(response=found, place=n, sha256=brief[n]["cut"]["hash"], content=text)
                for n, text in whole.items()
            )
    return found.pk

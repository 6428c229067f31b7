"""Rows of rating tasks as they are given, checked one by one; each error names row and field."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    StringConstraints,
    ValidationError,
    model_validator,
)

from apps.labeling.models import MOST_POINTS, MOST_RESPONSES, Prompt, RatingTask, Response
from apps.labeling.services.results import RowProblem
from apps.labeling.texts import Messages, fingerprint, loose_key, messages_from

MOST_OVERLAP = 50
DEFAULT_SCALE = (1, 7)


def _no_nul(text: str) -> str:
    if "\x00" in text:
        raise ValueError("contains a NUL character, which no database text can hold")
    return text


def _text(longest: int) -> Any:
    return Annotated[
        str,
        StringConstraints(strip_whitespace=True, max_length=longest),
        AfterValidator(_no_nul),
    ]


def _of(model: Any, name: str) -> Any:
    """A text as long as that column takes."""
    return _text(model._meta.get_field(name).max_length)


class _Strict(BaseModel):
    """Unknown fields are errors; fields that are null count as left out, as in CSV files."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: Any) -> Any:
        if isinstance(given, Mapping):
            return {name: value for name, value in given.items() if value is not None}
        return given


def _as_text(given: Any) -> Any:
    """Ids may be whole numbers."""
    return str(given) if isinstance(given, int) and not isinstance(given, bool) else given


class ScaleRow(_Strict):
    """Whole numbers from min to max, and what their ends are called."""

    min: int = DEFAULT_SCALE[0]
    max: int = DEFAULT_SCALE[1]
    min_label: _of(RatingTask, "low_label") = ""
    max_label: _of(RatingTask, "high_label") = ""

    @model_validator(mode="after")
    def _in_order(self) -> "ScaleRow":
        if not self.min < self.max < self.min + MOST_POINTS:
            raise ValueError(f"must have 2 to {MOST_POINTS} points, from min to a larger max")
        if not -100 <= self.min <= 100:
            raise ValueError("must lie between −100 and 100")
        return self


def _answer(given: Any) -> Any:
    """A text or a list of messages alone is an answer from nowhere in particular."""
    return {"text": given} if isinstance(given, str | list) else given


class AnswerRow(_Strict):
    text: Annotated[Any, BeforeValidator(lambda given: messages_from(given, role="assistant"))]
    model: _of(Response, "origin_ref") = ""

    @property
    def messages(self) -> Messages:
        return self.text

    @cached_property
    def text_hash(self) -> str:
        return fingerprint(self.text)

    @property
    def origin(self) -> str:
        return (Response.Origin.MODEL if self.model else Response.Origin.IMPORT).value


class TaskFields(_Strict):
    """The fields of a row; `docs/ratings.md` says what each means."""

    prompt: Annotated[Any, BeforeValidator(lambda given: messages_from(given, role="user"))]
    responses: list[Annotated[AnswerRow, BeforeValidator(_answer)]] = Field(
        min_length=1, max_length=MOST_RESPONSES
    )
    kind: Literal["graded", "ranking"] = "graded"
    scale: ScaleRow = ScaleRow()
    id: Annotated[_of(RatingTask, "external_id"), BeforeValidator(_as_text)] = ""
    group: _of(Prompt, "group_key") = ""
    topic: _of(Prompt, "topic") = ""
    language: _of(Prompt, "language") = ""
    source: _of(Prompt, "source") = ""
    licence: _of(Prompt, "licence") = ""
    overlap: int | None = Field(None, ge=1, le=MOST_OVERLAP)
    priority: FiniteFloat = 0.0

    @model_validator(mode="after")
    def _can_be_asked(self) -> "TaskFields":
        if self.kind == RatingTask.Kind.RANKING:
            if len(self.responses) < 2:
                raise ValueError("responses: a ranking needs at least two")
            if "scale" in self.model_fields_set:
                raise ValueError("scale: a ranking has none; its ranks run from 1 to the last")
        texts: dict[str, int] = {}
        for number, answer in enumerate(self.responses, start=1):
            first = texts.setdefault(answer.text_hash, number)
            if first != number:
                raise ValueError(f"responses: number {number} is the same text as number {first}")
        return self


@dataclass(frozen=True)
class TaskRow:
    """One row that can be imported; `row` counts from 1."""

    row: int
    given: TaskFields

    @cached_property
    def prompt_hash(self) -> str:
        return fingerprint(self.given.prompt)

    @property
    def group(self) -> str:
        """What splits go by: the group or topic given, else the prompt without case and blanks."""
        return self.given.group or self.given.topic or loose_key(self.given.prompt)

    @property
    def scale(self) -> tuple[int, int, str, str]:
        """(low, high, their labels); a ranking runs from 1, the best, to the last."""
        if self.given.kind == RatingTask.Kind.RANKING:
            return (1, len(self.given.responses), "best", "worst")
        scale = self.given.scale
        return (scale.min, scale.max, scale.min_label, scale.max_label)

    @cached_property
    def question(self) -> tuple[Any, ...]:
        """What makes two rows the same task: prompt, kind, scale and the set of responses."""
        answers = sorted(answer.text_hash for answer in self.given.responses)
        return (self.prompt_hash, self.given.kind, *self.scale[:2], *answers)

    def shuffle(self, project: str) -> float:
        """A draw in [0, 1) that depends on the row only, not on the file's order."""
        name = self.given.id or ":".join(map(str, self.question))
        digest = hashlib.sha256(f"{project}:{name}".encode()).digest()
        return int.from_bytes(digest[:6], "big") / 2**48


def rows_read(rows: Iterable[Any]) -> tuple[list[TaskRow], list[RowProblem], int]:
    """(good rows, everything that is wrong with the others, number of rows read)."""
    good: list[TaskRow] = []
    problems: list[RowProblem] = []
    ids: dict[str, int] = {}
    number = 0
    for number, given in enumerate(rows, start=1):
        try:
            row = TaskRow(number, TaskFields.model_validate(given))
        except ValidationError as error:
            problems += _problems(number, error)
            continue
        first = ids.setdefault(row.given.id, number) if row.given.id else number
        if first != number:
            message = f"{row.given.id!r} is the id of row {first} too"
            problems.append(RowProblem(number, "id", message))
            continue
        good.append(row)
    return good, problems, number


def _problems(number: int, error: ValidationError) -> list[RowProblem]:
    """One for each field: `responses.2.text`, counted from 1 as people do."""
    found = []
    for one in error.errors(include_url=False, include_input=False):
        place = ".".join(str(part + 1 if isinstance(part, int) else part) for part in one["loc"])
        message = one["msg"].removeprefix("Value error, ")
        if not place and ": " in message:
            place, message = message.split(": ", 1)
        found.append(RowProblem(number, place or "row", message))
    return found

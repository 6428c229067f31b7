"""Bringing in tasks with several responses (grading, ranking): all rows or none, each once."""

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper
from django.db.models import Model
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

from apps.accounts.models import Project
from apps.common.models import longest
from apps.common.transactions import WORTH_IT, plans_renew
from apps.labeling.blindness import self_naming
from apps.labeling.models import (
    MOST_POINTS,
    MOST_RESPONSES,
    RATED,
    LabelingSettings,
    Prompt,
    Response,
    Slot,
    Task,
    TaskItem,
)
from apps.labeling.personal_data import personal_data
from apps.labeling.selectors import settings_get
from apps.labeling.services.images import BadImage, RowImages
from apps.labeling.services.import_checks import Scans
from apps.labeling.services.kinds import KINDS, OLD_NAMES
from apps.labeling.services.loading import (
    ids_next,
    image_group,
    rows_copy,
    slots_make,
    spoken_copy,
)
from apps.labeling.services.notices import work_tell
from apps.labeling.services.projects import labeling_set_up
from apps.labeling.services.results import ImportReport, RowProblem, RowsRefused
from apps.labeling.texts import fingerprint, loose_key, messages_from, tools_from
from measures.messages import Messages, plain
from measures.phrases import Phrases
from measures.runs import calls_tools

# Rows of tasks as they are given, checked one by one; each error names row and field.

MOST_OVERLAP = 50
DEFAULT_SCALE = (1, 7)


def _no_nul(text: str) -> str:
    if "\x00" in text:
        raise ValueError("contains a NUL character, which no database text can hold")
    return text


_NO_NUL = AfterValidator(_no_nul)


def _of(model: type[Model], name: str) -> StringConstraints:
    """A text as long as that column takes."""
    return StringConstraints(strip_whitespace=True, max_length=longest(model, name))


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
    min_label: Annotated[str, _of(Task, "low_label"), _NO_NUL] = ""
    max_label: Annotated[str, _of(Task, "high_label"), _NO_NUL] = ""

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


class ResponseGiven(_Strict):
    text: Annotated[Any, BeforeValidator(lambda given: messages_from(given, role="assistant"))]
    model: Annotated[str, _of(Response, "origin_ref"), _NO_NUL] = ""

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
    """The fields of a row; `docs/labeling.md` says what each means."""

    prompt: Annotated[Any, BeforeValidator(lambda given: messages_from(given, role="user"))]
    responses: list[Annotated[ResponseGiven, BeforeValidator(_answer)]] = Field(
        min_length=1, max_length=MOST_RESPONSES
    )
    kind: Literal["grade", "rank", "graded", "ranking"] = "grade"
    scale: ScaleRow = ScaleRow()
    id: Annotated[str, _of(Task, "external_id"), _NO_NUL, BeforeValidator(_as_text)] = ""
    group: Annotated[str, _of(Prompt, "group_key"), _NO_NUL] = ""
    topic: Annotated[str, _of(Prompt, "topic"), _NO_NUL] = ""
    language: Annotated[str, _of(Prompt, "language"), _NO_NUL] = ""
    source: Annotated[str, _of(Prompt, "source"), _NO_NUL] = ""
    licence: Annotated[str, _of(Prompt, "licence"), _NO_NUL] = ""
    overlap: int | None = Field(None, ge=1, le=MOST_OVERLAP)
    priority: FiniteFloat = 0.0
    gold: list[int] = Field(default=[], max_length=MOST_RESPONSES)
    explanation: Annotated[str, StringConstraints(max_length=4000), _NO_NUL] = ""
    warning: Annotated[str, _of(Task, "warning"), _NO_NUL] = ""
    stratum: Literal["random", "priority", "gold", "practice", ""] = ""
    metadata: dict[str, Any] | None = None
    tools: Annotated[Any, BeforeValidator(tools_from)] = None

    @property
    def is_ranking(self) -> bool:
        return self.kind in ("rank", "ranking")

    @property
    def bounds(self) -> tuple[int, int]:
        return (1, len(self.responses)) if self.is_ranking else (self.scale.min, self.scale.max)

    @model_validator(mode="after")
    def _can_be_asked(self) -> "TaskFields":
        if self.is_ranking:
            if len(self.responses) < 2:
                raise ValueError("responses: a ranking needs at least two")
            if "scale" in self.model_fields_set:
                raise ValueError("scale: a ranking has none; its ranks run from 1 to the last")
        texts: dict[str, int] = {}
        for number, answer in enumerate(self.responses, start=1):
            first = texts.setdefault(answer.text_hash, number)
            if first != number:
                raise ValueError(f"responses: number {number} is the same text as number {first}")
        low, high = self.bounds
        if self.gold and len(self.gold) != len(self.responses):
            raise ValueError("gold: one value for each response is expected")
        if bad := [value for value in self.gold if not low <= value <= high]:
            raise ValueError(f"gold: {bad[0]} is not between {low} and {high}")
        if self.stratum in ("gold", "practice") and not self.gold:
            raise ValueError(f"gold: is missing; a row of stratum {self.stratum} needs it")
        return self


@dataclass(frozen=True)
class TaskRow:
    """One row that can be imported; `row` counts from 1."""

    row: int
    given: TaskFields

    @cached_property
    def prompt_hash(self) -> str:
        return fingerprint(self.given.prompt, self.given.tools)

    @property
    def group(self) -> str:
        """What splits go by: the group or topic given, else the prompt without case and blanks."""
        named = self.given.group or self.given.topic or image_group(self.given.prompt)
        return named or loose_key(self.given.prompt)

    @property
    def scale(self) -> tuple[int, int, str, str]:
        """(low, high, their labels); a ranking runs from 1, the best, to the last."""
        if self.given.is_ranking:
            return (*self.given.bounds, "best", "worst")
        scale = self.given.scale
        return (*self.given.bounds, scale.min_label, scale.max_label)

    @property
    def kind(self) -> str:
        return OLD_NAMES.get(self.given.kind, self.given.kind)

    @property
    def stratum(self) -> str:
        priority = "priority" if self.given.priority > 0 else "random"
        return self.given.stratum or ("gold" if self.given.gold else priority)

    @property
    def gold(self) -> list[int]:
        return KINDS[self.kind].canonical(self.given.gold) if self.given.gold else []

    @cached_property
    def question(self) -> tuple[Any, ...]:
        """What makes two rows the same task: prompt, kind, scale and the set of responses."""
        answers = sorted(answer.text_hash for answer in self.given.responses)
        return (self.prompt_hash, self.kind, *self.scale[:2], *answers)

    def shuffle(self, project: str) -> float:
        """A draw in [0, 1) that depends on the row only, not on the file's order."""
        name = self.given.id or ":".join(map(str, self.question))
        digest = hashlib.sha256(f"{project}:{name}".encode()).digest()
        return int.from_bytes(digest[:6], "big") / 2**48


def rows_read(
    rows: Iterable[Any],
    *,
    numbers: Sequence[int] | None = None,
    progress: Callable[[int], None] | None = None,
    images: RowImages | None = None,
) -> tuple[list[TaskRow], list[RowProblem], int]:
    """(good rows, everything that is wrong with the others, number of rows read)."""
    good: list[TaskRow] = []
    problems: list[RowProblem] = []
    ids: dict[str, int] = {}
    n = 0
    for n, given in enumerate(rows, start=1):
        number = numbers[n - 1] if numbers else n
        if progress and n % _TELL_EVERY == 0:
            progress(n)
        try:
            if images is not None:
                given = _with_images(given, images)
            row = TaskRow(number, TaskFields.model_validate(given))
        except ValidationError as error:
            problems += _problems(number, error)
            continue
        except BadImage as error:
            problems.append(RowProblem(number, "image", f"an image {error.message}"))
            continue
        texts = [row.given.prompt, *(answer.messages for answer in row.given.responses)]
        if images is not None and (unknown := next(images.unknown(*texts), None)):
            told = f"names an image that this project does not have: {unknown[:12]}…"
            problems.append(RowProblem(number, "image", told))
            continue
        first = ids.setdefault(row.given.id, number) if row.given.id else number
        if first != number:
            message = f"{row.given.id!r} is the id of row {first} too"
            problems.append(RowProblem(number, "id", message))
            continue
        good.append(row)
    return good, problems, n


def _with_images(given: Any, images: RowImages) -> Any:
    """The row with the images that its texts bring along taken. Raises BadImage."""
    if not isinstance(given, Mapping):
        return given
    changed = {**given, "prompt": images.content(given.get("prompt"))}
    if isinstance(answers := given.get("responses"), list):
        changed["responses"] = [
            {**one, "text": images.content(one.get("text"))}
            if isinstance(one, Mapping)
            else images.content(one)
            for one in answers
        ]
    return changed


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


_PART = 2000  # rows of one statement
_TELL_EVERY = 500  # rows between two calls of `progress`

_ResponseKey = tuple[int, str, str, str]  # prompt id, text hash, origin, origin_ref


@transaction.atomic
def tasks_import(
    *,
    project: Project,
    rows: Iterable[Mapping[str, Any]],
    batch: str = "",
    on_error: Literal["refuse", "skip"] = "refuse",
    scans: Scans | None = None,
    dry_run: bool = False,
    numbers: Sequence[int] | None = None,
    progress: Callable[[int], None] | None = None,
) -> ImportReport:
    """Import tasks with their prompts, responses and slots, in one transaction.

    Row fields: prompt and responses (texts, lists of messages, or objects with text and model; up
    to nine; required); kind (grade, rank); scale (min, max, min_label, max_label; grade only); gold
    (the right values, in the order of the responses), explanation; id (unique in the project),
    group, topic, language, source, licence, overlap, priority, warning, metadata. An unknown field
    is an error. A task with a constraint phrase of the project goes to review.

    Importing a row again changes nothing: by its id, else by its prompt, kind and responses. A
    known id with another prompt, scale or other responses is an error. The options are those of
    `comparisons_import`. Raises `RowsRefused`, which lists every bad row and field, and then
    nothing is imported; with on_error="skip" the good rows are.
    """
    started = time.perf_counter()
    if dry_run:
        settings = settings_get(project=project)
    else:
        labeling_set_up(project=project)
        # This row serialises imports into one project, of pairs too.
        settings = LabelingSettings.objects.select_for_update(no_key=True).get(project=project)
    images = RowImages(project, writes=not dry_run)
    good, problems, n_rows = rows_read(rows, numbers=numbers, progress=progress, images=images)
    fresh, known_otherwise = _unknown_only(project, good)
    problems = sorted(problems + known_otherwise, key=lambda p: p.row)
    if problems and on_error == "refuse" and not dry_run:
        raise RowsRefused(problems, n_rows=n_rows)
    reasons = [_review_reason(row, Phrases(settings.constraint_phrases)) for row in fresh]
    n_prompts = n_responses = n_slots = 0
    if not dry_run:
        with connection.cursor() as cursor:
            prompts, n_prompts = _prompts_store(cursor, project, fresh)
            responses, n_responses = _responses_store(cursor, prompts, fresh)
            write = _Write(cursor, project, settings, batch, prompts, responses)
            n_slots = write.tasks(fresh, reasons)
        if work := sum(row.stratum != Task.Stratum.PRACTICE for row in fresh):
            work_tell(project, work)
        if len(fresh) >= WORTH_IT:
            plans_renew(Task, Slot, by_key=(Prompt, Response, TaskItem))
    n_refused = n_rows - len(good) + len(known_otherwise)
    return ImportReport(
        n_rows=n_rows,
        n_created=len(fresh),
        n_unchanged=n_rows - len(fresh) - n_refused,
        n_refused=n_refused,
        n_prompts=n_prompts,
        n_responses=n_responses,
        n_slots=n_slots,
        n_review=sum(map(bool, reasons)),
        groups=Counter(row.group for row in fresh),
        seconds=time.perf_counter() - started,
        problems=problems,
        warnings=[found for row in fresh for found in _warnings(row, scans or Scans())],
    )


def _warnings(row: TaskRow, scans: Scans) -> Iterator[RowProblem]:
    """What looks like personal data, and answers that name their model."""
    texts = [("prompt", row.given.prompt, "")]
    for number, answer in enumerate(row.given.responses, start=1):
        texts.append((f"responses.{number}", answer.messages, answer.model))
    for name, messages, model in texts:
        text = plain(messages)
        if name != "prompt" and scans.model_names and (words := self_naming(text, model)):
            yield RowProblem(row.row, name, f"names its model: “{words[:80]}”", "model_name")
        if scans.personal:
            for found in personal_data(text):
                yield RowProblem(row.row, name, found.words, "personal")


def _unknown_only(project: Project, rows: list[TaskRow]) -> tuple[list[TaskRow], list[RowProblem]]:
    """(rows that are not in the project yet, ids that stand for something else there)."""
    by_id, questions = _known(project, rows)
    fresh: list[TaskRow] = []
    problems: list[RowProblem] = []
    for row in rows:
        name, question = row.given.id, row.question
        if name in by_id:
            if by_id[name] != question:
                message = f"{name!r} was imported before with other texts or another scale"
                problems.append(RowProblem(row.row, "id", message))
        elif name or question not in questions:
            fresh.append(row)
            questions.add(question)
    return fresh, problems


def _known(
    project: Project, rows: list[TaskRow]
) -> tuple[dict[str, tuple[Any, ...]], set[tuple[Any, ...]]]:
    """(question by id, all questions) of the stored tasks that these rows could repeat."""
    by_id: dict[str, tuple[Any, ...]] = {}
    questions: set[tuple[Any, ...]] = set()
    mine = Task.objects.filter(project=project, kind__in=RATED).select_related("prompt")
    for part in _parts(rows):
        same_prompt = mine.filter(prompt__text_hash__in={row.prompt_hash for row in part})
        same_id = mine.filter(external_id__in={row.given.id for row in part} - {""})
        for found in (same_prompt, same_id):
            for task in found.prefetch_related("items__response"):
                answers = sorted(item.response.text_hash for item in task.items.all())
                question = (task.prompt.text_hash, task.kind, task.low, task.high, *answers)
                questions.add(question)
                if task.external_id:
                    by_id[task.external_id] = question
    return by_id, questions


def _prompts_store(
    cursor: CursorWrapper, project: Project, rows: list[TaskRow]
) -> tuple[dict[str, int], int]:
    """({text hash: id}, how many are new)."""
    wanted = {row.prompt_hash: row for row in rows}
    stored: dict[str, int] = {}
    for part in _parts(sorted(wanted)):
        found = Prompt.objects.filter(project=project, text_hash__in=part)
        stored.update(found.values_list("text_hash", "pk"))
    new = {text_hash: row for text_hash, row in wanted.items() if text_hash not in stored}
    ids = ids_next(cursor, Prompt, len(new))
    spoken_copy(
        cursor,
        Prompt,
        "id project_id text_hash group_key topic language source licence metadata tools",
        (
            (
                row.given.prompt,
                (
                    key,
                    project.pk,
                    text_hash,
                    row.group,
                    row.given.topic,
                    row.given.language,
                    row.given.source,
                    row.given.licence,
                    "{}",
                    json.dumps(row.given.tools) if row.given.tools else None,
                ),
            )
            for key, (text_hash, row) in zip(ids, new.items(), strict=True)
        ),
    )
    return stored | dict(zip(new, ids, strict=True)), len(new)


def _responses_store(
    cursor: CursorWrapper, prompts: dict[str, int], rows: list[TaskRow]
) -> tuple[dict[_ResponseKey, int], int]:
    """({prompt id, text hash, origin, origin_ref: id}, how many are new)."""
    wanted = {
        _key(prompts[row.prompt_hash], answer): answer
        for row in rows
        for answer in row.given.responses
    }
    stored: dict[_ResponseKey, int] = {}
    columns = ("pk", "prompt_id", "text_hash", "origin", "origin_ref")
    for part in _parts(sorted({key[0] for key in wanted})):
        for pk, *key in Response.objects.filter(prompt_id__in=part).values_list(*columns):
            stored[tuple(key)] = pk
    new = {key: answer for key, answer in wanted.items() if key not in stored}
    ids = ids_next(cursor, Response, len(new))
    spoken_copy(
        cursor,
        Response,
        "id prompt_id text_hash origin origin_ref metadata",
        (
            (answer.messages, (pk, *key, "{}"))
            for pk, (key, answer) in zip(ids, new.items(), strict=True)
        ),
    )
    return stored | dict(zip(new, ids, strict=True)), len(new)


@dataclass(frozen=True, slots=True)
class _Write:
    """The rows of one import on their way into the tables."""

    cursor: CursorWrapper
    project: Project
    settings: LabelingSettings
    batch: str
    prompts: dict[str, int]
    responses: dict[_ResponseKey, int]

    def tasks(self, rows: list[TaskRow], reasons: list[str]) -> int:
        """Write the tasks with their items and slots; returns the number of free slots."""
        ids = ids_next(self.cursor, Task, len(rows))
        rows_copy(
            self.cursor,
            Task,
            "id project_id prompt_id kind external_id batch state stratum priority shuffle overlap"
            " gold gold_values gold_explanation review_reason warning n_votes metadata low high"
            " low_label high_label of_agents",
            (self._columns(*one) for one in zip(ids, rows, reasons, strict=True)),
        )
        rows_copy(
            self.cursor,
            TaskItem,
            "task_id position response_id",
            (
                (key, position, self.responses[_key(self.prompts[row.prompt_hash], answer)])
                for key, row in zip(ids, rows, strict=True)
                for position, answer in enumerate(row.given.responses, start=1)
            ),
            stamped=False,
        )
        # Gold is dealt out to everybody in a share of its own, where the project has one.
        dealt = bool(self.settings.gold_share)
        queued = [
            key
            for key, row in zip(ids, rows, strict=True)
            if row.stratum != Task.Stratum.PRACTICE
            and not (dealt and row.stratum == Task.Stratum.GOLD)
        ]
        return slots_make(self.cursor, queued)

    def _columns(self, key: int, row: TaskRow, reason: str) -> tuple[Any, ...]:
        given = row.given
        return (
            *(key, self.project.pk, self.prompts[row.prompt_hash], row.kind, given.id),
            self.batch[:80],
            (Task.State.REVIEW if reason else Task.State.OPEN).value,
            *(row.stratum, given.priority, row.shuffle(self.project.pk)),
            given.overlap or self.settings.overlap,
            *("", row.gold, given.explanation, reason[:300], given.warning, 0),
            None if given.metadata is None else json.dumps(given.metadata),
            *row.scale,
            any(calls_tools(answer.messages) for answer in given.responses),
        )


def _review_reason(row: TaskRow, phrases: Phrases) -> str:
    for number, answer in enumerate(row.given.responses, start=1):
        if found := phrases.first_in(plain(answer.messages)):
            return f"Response {number} contains the blocked phrase “{found.phrase}”"
    return ""


def _key(prompt: int, answer: ResponseGiven) -> _ResponseKey:
    return (prompt, answer.text_hash, answer.origin, answer.model)


def _parts(values: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(values), _PART):
        yield values[start : start + _PART]

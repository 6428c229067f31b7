"""The writes of an import: what is there already is found, what is not goes in by COPY."""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import models
from django.db.backends.utils import CursorWrapper

from apps.accounts.models import Project
from apps.common.models import longest
from apps.labeling.models import (
    Choice,
    Comparison,
    LabelingSettings,
    Prompt,
    Response,
    Task,
    ToolResult,
)
from apps.labeling.services.results import RowProblem
from apps.labeling.texts import (
    BadMessages,
    fingerprint,
    loose_key,
    messages_from,
    messages_json,
    tools_from,
)
from measures.messages import Messages, briefly, images_in
from measures.runs import calls_tools

# Thousands of rows at once: ids in one go, rows by COPY.


def ids_next(cursor: CursorWrapper, model: type[models.Model], n: int) -> list[int]:
    """n fresh ids of a table; rows that other tables point at are written with them."""
    cursor.execute(
        "select coalesce(array_agg(nextval(s)), '{}') from"
        " pg_get_serial_sequence(%s, 'id') s, generate_series(1, %s)",
        [model._meta.db_table, n],
    )
    return cursor.fetchone()[0]


def rows_copy(
    cursor: CursorWrapper,
    model: type[models.Model],
    columns: str,
    rows: Iterable[tuple[Any, ...]],
    *,
    stamped: bool = True,
) -> None:
    """COPY rows into a table; `stamped` ones were created when the transaction began."""
    names = columns.split() + (["created_at", "updated_at"] if stamped else [])
    now: tuple[Any, ...] = ()
    if stamped:
        cursor.execute("select now()")
        now = (cursor.fetchone()[0].isoformat(),) * 2  # as text once, not for every row
    with cursor.copy(f"copy {model._meta.db_table} ({', '.join(names)}) from stdin") as copy:
        for row in rows:
            copy.write_row((*row, *now))


def spoken_copy(
    cursor: CursorWrapper,
    model: type[Prompt] | type[Response],
    columns: str,
    rows: Iterable[tuple[Messages, tuple[Any, ...]]],
) -> None:
    """COPY prompts or responses: their messages, and the other columns, of which the first is
    their id. Long results of tools go into their own table."""
    results: list[tuple[int, int, str, str]] = []

    def stored() -> Iterator[tuple[Any, ...]]:
        for messages, row in rows:
            brief, whole = briefly(messages)
            results.extend(
                (row[0], place, brief[place]["cut"]["hash"], text) for place, text in whole.items()
            )
            yield (messages_json(brief), *row)

    rows_copy(cursor, model, f"messages {columns}", stored())
    if results:
        owner = "prompt_id" if model is Prompt else "response_id"
        rows_copy(cursor, ToolResult, f"{owner} place sha256 content", results, stamped=False)


def slots_make(cursor: CursorWrapper, tasks: list[int]) -> int:
    """A slot for each answer wanted, made in the database from the tasks that were just written;
    returns how many are free."""
    cursor.execute(_SLOTS, [tasks])
    return cursor.fetchone()[0]


# Rows of comparisons as they are given, checked one by one; each error names row and field.

FIELDS = (
    "prompt",
    "response_a",
    "response_b",
    "id",
    "group",
    "topic",
    "language",
    "source",
    "licence",
    "gold",
    "explanation",
    "origin",
    "origin_a",
    "origin_b",
    "origin_ref_a",
    "origin_ref_b",
    "model_a",
    "model_b",
    "metadata_a",
    "metadata_b",
    "stratum",
    "priority",
    "overlap",
    "metadata",
    "warning",
    "tools",
)
_FIELDS = frozenset(FIELDS)
_LENGTHS = {
    name: longest(Prompt, column)
    for name, column in {
        "group": "group_key",
        "topic": "topic",
        "language": "language",
        "source": "source",
        "licence": "licence",
    }.items()
}
_LONGEST_ID = longest(Comparison, "external_id")
_LONGEST_WARNING = longest(Comparison, "warning")
_LONGEST_EXPLANATION = 4000
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")  # in JSON; not a backslash and four zeros
# Plain values: an enumeration's members are slow to read and to print.
_STRATA = tuple(Comparison.Stratum.values)
_ORIGINS = tuple(Response.Origin.values)
_CHOICES = tuple(Choice.values)
# Strata that measure annotators against a known answer.
_CONTROLS = (Comparison.Stratum.GOLD.value, Comparison.Stratum.PRACTICE.value)
_RANDOM = Comparison.Stratum.RANDOM.value
_MODEL, _IMPORT = Response.Origin.MODEL.value, Response.Origin.IMPORT.value
_LONGEST_REF = longest(Response, "origin_ref")


@dataclass(frozen=True, slots=True)
class ResponseRow:
    messages: Messages
    text_hash: str
    origin: str
    origin_ref: str
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One row that can be imported; `row` counts from 1."""

    row: int
    external_id: str
    prompt: Messages
    prompt_hash: str
    group: str
    has_own_group: bool  # none was given: the group is the prompt's loose key
    a: ResponseRow
    b: ResponseRow
    topic: str = ""
    language: str = ""
    source: str = ""
    licence: str = ""
    gold: str = ""
    explanation: str = ""
    stratum: str = _RANDOM
    priority: float = 0.0
    overlap: int | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    review_reason: str = ""
    warning: str = ""
    tools: list[dict[str, Any]] | None = None

    @property
    def pair(self) -> tuple[str, str, str]:
        """Prompt and unordered answers: what makes two rows the same question."""
        first, second = sorted((self.a.text_hash, self.b.text_hash))
        return self.prompt_hash, first, second


class BadField(Exception):
    """A value that cannot be imported: the field and what is wrong with it."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name, self.message = name, message


def row_from(number: int, given: Any, max_overlap: int) -> ComparisonRow:
    """One row, checked. Raises BadField for the first field that is wrong."""
    if not isinstance(given, Mapping):
        raise BadField("row", "is not an object with fields")
    if not _FIELDS.issuperset(given):
        unknown = sorted(str(name) for name in given if name not in FIELDS)
        raise BadField(unknown[0], f"is not a known field; known are {', '.join(FIELDS)}")
    prompt = _messages(given, "prompt", role="user")
    a, b = (_answer(given, side) for side in "ab")
    gold = _gold(given.get("gold"))
    stratum = _one_of(given, "stratum", _STRATA) or _RANDOM
    if stratum in _CONTROLS and not gold:
        raise BadField("gold", f"is missing; a row of stratum {stratum} needs the right answer")
    group = _group(given)
    tools = _tools(given.get("tools"))
    return ComparisonRow(
        row=number,
        external_id=_text(given, "id", _LONGEST_ID, allow_number=True),
        prompt=prompt,
        prompt_hash=fingerprint(prompt, tools),
        group=group or image_group(prompt) or loose_key(prompt),
        has_own_group=not group,
        a=a,
        b=b,
        topic=_text(given, "topic", _LENGTHS["topic"]),
        language=_text(given, "language", _LENGTHS["language"]),
        source=_text(given, "source", _LENGTHS["source"]),
        licence=_text(given, "licence", _LENGTHS["licence"]),
        gold=gold,
        explanation=_text(given, "explanation", _LONGEST_EXPLANATION),
        stratum=stratum,
        priority=_number(given, "priority"),
        overlap=_overlap(given.get("overlap"), max_overlap),
        metadata=_metadata(given, "metadata"),
        warning=_warning(given),
        tools=tools,
    )


@dataclass(frozen=True, slots=True)
class PromptRow:
    """A row that is to be answered, not compared."""

    external_id: str
    prompt: Messages
    prompt_hash: str
    group: str
    topic: str
    language: str
    licence: str


def prompt_row_from(given: Mapping[str, Any]) -> PromptRow:
    """A row of a prompt alone, checked. Raises BadField for the first field that is wrong."""
    prompt = _messages(given, "prompt", role="user")
    if prompt[-1]["role"] == "assistant":
        raise BadField("prompt", "ends with an answer")
    group = _text(given, "group", _LENGTHS["group"])
    return PromptRow(
        external_id=_text(given, "id", _LONGEST_ID, allow_number=True),
        prompt=prompt,
        prompt_hash=fingerprint(prompt),
        group=group or image_group(prompt) or loose_key(prompt),
        topic=_text(given, "topic", _LENGTHS["topic"]),
        language=_text(given, "language", _LENGTHS["language"]),
        licence=_text(given, "licence", _LENGTHS["licence"]),
    )


# Of the row's own columns, the names that say that a pair may upset whoever reads it.
_WARNING_NAMES = ("content_warning", "warning")
_WARNING_FLAGS = ("unsafe", "sensitive", "nsfw")


def _warning(given: Mapping[str, Any]) -> str:
    """The column `warning`, else what the row's own columns say."""
    if words := _text(given, "warning", _LONGEST_WARNING):
        return words
    own = given.get("metadata")
    own = {str(name).lower(): value for name, value in own.items()} if own else {}
    for name in _WARNING_NAMES:
        if isinstance(value := own.get(name), str) and value.strip():
            return value.strip()[:_LONGEST_WARNING]
    flag = next((name for name in _WARNING_FLAGS if _is_set(own.get(name))), "")
    return f"{flag} content" if flag else ""


def _is_set(value: Any) -> bool:
    return value is True or str(value).strip().lower() in ("1", "true", "yes")


def _messages(given: Mapping[str, Any], name: str, *, role: str) -> Messages:
    if given.get(name) is None:
        raise BadField(name, "is missing")
    try:
        return messages_from(given[name], role=role)
    except BadMessages as error:
        raise BadField(name, str(error)) from None


def image_group(prompt: Messages) -> str:
    """Questions about one image belong together, or splits would share it."""
    first = next(images_in(prompt), "")
    return f"image {first}" if first else ""


def _tools(given: Any) -> list[dict[str, Any]] | None:
    if not given:
        return None
    try:
        return tools_from(given)
    except BadMessages as error:
        raise BadField("tools", str(error)) from None


def _answer(given: Mapping[str, Any], side: str) -> ResponseRow:
    messages = _messages(given, f"response_{side}", role="assistant")
    origin = _one_of(given, f"origin_{side}", _ORIGINS) or _one_of(given, "origin", _ORIGINS)
    model = _text(given, f"model_{side}", _LONGEST_REF)
    reference = _text(given, f"origin_ref_{side}", _LONGEST_REF)
    if model and reference and model != reference:
        raise BadField(f"model_{side}", f"differs from origin_ref_{side}")
    default = _MODEL if model else _IMPORT
    return ResponseRow(
        messages,
        fingerprint(messages),
        origin or default,
        model or reference,
        _metadata(given, f"metadata_{side}"),
    )


def _group(given: Mapping[str, Any]) -> str:
    """What splits go by, if it is given; else it is the prompt without case and blanks."""
    return _text(given, "group", _LENGTHS["group"]) or _text(given, "topic", _LENGTHS["topic"])


def _text(
    given: Mapping[str, Any], name: str, longest: int | None, *, allow_number: bool = False
) -> str:
    value = given.get(name)
    if value is None:
        return ""
    if allow_number and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise BadField(name, "must be a text")
    value = value.strip()
    if "\x00" in value:
        raise BadField(name, "contains a NUL character, which no database text can hold")
    if longest is not None and len(value) > longest:
        raise BadField(name, f"has {len(value)} characters; at most {longest}")
    return value


def _one_of(given: Mapping[str, Any], name: str, allowed: tuple[str, ...]) -> str:
    value = _text(given, name, None)
    if value and value not in allowed:
        raise BadField(name, f"is {value!r}; one of {', '.join(allowed)} is expected")
    return value


def _gold(value: Any) -> str:
    if value is None or value == "":
        return ""
    folded = str(value).strip().lower()
    if folded not in _CHOICES:
        raise BadField("gold", f"is {value!r}; one of {', '.join(_CHOICES)} is expected")
    return folded


def _number(given: Mapping[str, Any], name: str) -> float:
    value = given.get(name)
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadField(name, "must be a finite number")
    return float(value)


def _overlap(value: Any, max_overlap: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= max_overlap:
        raise BadField("overlap", f"must be a whole number from 1 to {max_overlap}")
    return value


def _metadata(given: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = given.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadField(name, "must be an object")
    try:
        if _NUL.search(json.dumps(value, allow_nan=False)):
            raise BadField(name, "contains a NUL character, which no database text can hold")
    except (TypeError, ValueError) as error:
        raise BadField(name, f"is not plain JSON: {error}") from None
    return value


_REVIEW, _OPEN = Comparison.State.REVIEW.value, Comparison.State.OPEN.value
_PRACTICE, _GOLD = Comparison.Stratum.PRACTICE.value, Comparison.Stratum.GOLD.value
ResponseKey = tuple[int, str, str, str]  # prompt id, text hash, origin, origin_ref


class Load:
    """One import: what is there already, and the bulk writes of what is not."""

    def __init__(
        self,
        cursor: CursorWrapper,
        project: Project,
        batch: str,
        seed: int,
        settings: LabelingSettings,
        *,
        blind: bool = False,
    ) -> None:
        self.kind = (Task.Kind.BLIND if blind else Task.Kind.PAIR).value
        self.cursor, self.project, self.batch, self.seed = cursor, project, batch, seed
        self.settings = settings
        self.prompts: dict[str, int] = {}  # text hash → id
        self.responses: dict[ResponseKey, int] = {}
        self._new_prompts: set[int] = set()
        self.n_prompts = self.n_responses = self.n_slots = self.n_refused = 0

    def unknown_only(
        self,
        rows: list[ComparisonRow],
        problems: list[RowProblem],
        warnings: list[RowProblem],
    ) -> list[ComparisonRow]:
        """The rows that are not in the project yet; appends to problems and warnings."""
        self._read_prompts({row.prompt_hash for row in rows})
        by_id, by_pair = self._read_comparisons({row.external_id for row in rows} - {""})
        fresh: list[ComparisonRow] = []
        seen: dict[tuple[str, str, str], str] = {}
        for row in rows:
            known = by_id.get(row.external_id) if row.external_id else None
            if known is not None:
                if known != row.pair:
                    message = f"{row.external_id!r} was imported before with other texts"
                    problems.append(RowProblem(row.row, "id", message))
                    self.n_refused += 1
                continue
            twin = by_pair.get(row.pair) or seen.get(row.pair)
            if twin is not None and self.kind == Task.Kind.PAIR:
                if not row.external_id:
                    continue
                warnings.append(
                    RowProblem(row.row, "id", f"is the same pair as {twin}", "duplicate")
                )
            seen.setdefault(row.pair, f"row {row.row}")
            fresh.append(row)
        return fresh

    def _read_prompts(self, hashes: set[str]) -> None:
        self.cursor.execute(
            "select text_hash, id from labeling_prompt"
            " where project_id = %s and text_hash = any(%s)",
            [self.project.pk, sorted(hashes)],
        )
        self.prompts.update(self.cursor.fetchall())

    def _read_comparisons(
        self, ids: set[str]
    ) -> tuple[dict[str, tuple[str, str, str]], dict[tuple[str, str, str], str]]:
        """(pair by external id, name by pair) of what these rows could repeat."""
        by_id: dict[str, tuple[str, str, str]] = {}
        by_pair: dict[tuple[str, str, str], str] = {}
        known: list[Any] = [self.project.pk, self.kind, sorted(ids)]
        known.append(sorted(self.prompts.values()))
        self.cursor.execute(_KNOWN, known)
        for key, name, prompt, a, b in self.cursor.fetchall():
            pair = (prompt, *sorted((a, b)))
            if name in ids:
                by_id[name] = pair
            if prompt in self.prompts:
                by_pair[pair] = f"comparison {name or key}"
        return by_id, by_pair

    def write(self, rows: list[ComparisonRow]) -> None:
        if not rows:
            return
        self._write_prompts(rows)
        self._read_responses()
        self._write_responses(rows)
        self._write_comparisons(rows)

    def _write_prompts(self, rows: list[ComparisonRow]) -> None:
        new = {r.prompt_hash: r for r in rows if r.prompt_hash not in self.prompts}
        self.n_prompts = len(new)
        ids = ids_next(self.cursor, Prompt, len(new))
        spoken_copy(
            self.cursor,
            Prompt,
            "id project_id text_hash group_key topic language source licence metadata tools",
            (
                (
                    row.prompt,
                    (
                        key,
                        self.project.pk,
                        row.prompt_hash,
                        row.group,
                        row.topic,
                        row.language,
                        row.source,
                        row.licence,
                        _object_json(row.metadata),
                        json.dumps(row.tools) if row.tools else None,
                    ),
                )
                for key, row in zip(ids, new.values(), strict=True)
            ),
        )
        self.prompts.update(zip(new, ids, strict=True))
        self._new_prompts = set(ids)

    def _read_responses(self) -> None:
        """Of prompts that were there before; new ones have none."""
        known = sorted(set(self.prompts.values()) - self._new_prompts)
        if not known:
            return
        self.cursor.execute(
            "select id, prompt_id, text_hash, origin, origin_ref from labeling_response"
            " where prompt_id = any(%s)",
            [known],
        )
        for key, *identity in self.cursor.fetchall():
            self.responses[tuple(identity)] = key

    def _write_responses(self, rows: list[ComparisonRow]) -> None:
        new: dict[ResponseKey, ResponseRow] = {}
        for row in rows:
            for answer in (row.a, row.b):
                key = self._response_key(row, answer)
                if key not in self.responses:
                    new.setdefault(key, answer)
        self.n_responses = len(new)
        ids = ids_next(self.cursor, Response, len(new))
        spoken_copy(
            self.cursor,
            Response,
            "id prompt_id text_hash origin origin_ref metadata",
            (
                (
                    answer.messages,
                    (key, prompt, text_hash, origin, reference, _object_json(answer.metadata)),
                )
                for key, ((prompt, text_hash, origin, reference), answer) in zip(
                    ids, new.items(), strict=True
                )
            ),
        )
        self.responses.update(zip(new, ids, strict=True))

    def _write_comparisons(self, rows: list[ComparisonRow]) -> None:
        ids = ids_next(self.cursor, Comparison, len(rows))
        shuffles = [self._shuffle(row) for row in rows]
        overlaps = [row.overlap or self.settings.overlap for row in rows]
        rows_copy(
            self.cursor,
            Comparison,
            "id kind project_id prompt_id response_a_id response_b_id external_id batch state"
            " stratum priority shuffle overlap gold gold_explanation review_reason n_votes metadata"
            " warning of_agents",
            (
                (
                    key,
                    self.kind,
                    self.project.pk,
                    self.prompts[row.prompt_hash],
                    self.responses[self._response_key(row, row.a)],
                    self.responses[self._response_key(row, row.b)],
                    row.external_id,
                    self.batch[:80],
                    _state(row),
                    row.stratum,
                    row.priority,
                    shuffle,
                    overlap,
                    row.gold,
                    row.explanation,
                    row.review_reason[:300],
                    0,
                    _object_json(row.metadata),
                    row.warning,
                    calls_tools(row.a.messages) or calls_tools(row.b.messages),
                )
                for key, row, shuffle, overlap in zip(ids, rows, shuffles, overlaps, strict=True)
            ),
        )
        queued = [key for key, row in zip(ids, rows, strict=True) if self._is_queued(row)]
        self.n_slots = slots_make(self.cursor, queued)
        if waiting := [key for key, row in zip(ids, rows, strict=True) if row.review_reason]:
            self.cursor.execute(_WAITING, [waiting])

    def _response_key(self, row: ComparisonRow, answer: ResponseRow) -> ResponseKey:
        return (
            self.prompts[row.prompt_hash],
            answer.text_hash,
            answer.origin,
            answer.origin_ref,
        )

    def _is_queued(self, row: ComparisonRow) -> bool:
        """Whether the row gets slots: practice has none, and gold only where it is not dealt out
        to every annotator in a share of its own."""
        if row.stratum == _PRACTICE:
            return False
        return row.stratum != _GOLD or not self.settings.gold_share

    def _shuffle(self, row: ComparisonRow) -> float:
        """A draw in [0, 1) that depends on the seed and the row only, not on the file's order."""
        name = row.external_id or ":".join(row.pair)
        digest = hashlib.sha256(f"{self.project.pk}:{self.seed}:{name}".encode()).digest()
        return int.from_bytes(digest[:6], "big") / 2**48


def _object_json(value: dict[str, Any]) -> str:
    return json.dumps(value) if value else "{}"


def _state(row: ComparisonRow) -> str:
    return _REVIEW if row.review_reason else _OPEN


# What waits for a person has a decision that says so, before it has votes.
_WAITING = """
insert into labeling_decision (comparison_id, project_id, outcome, winner, n_a, n_b, n_tie,
  n_both_bad, n_agreeing, share, rule, reason, created_at, updated_at)
select id, project_id, 'needs_review', '', 0, 0, 0, 0, 0, 0, '{}',
  left('needs review: ' || review_reason, 300), now(), now()
from labeling_comparison where id = any(%s) and state = 'review' and stratum <> 'practice'
"""

# An array is one value to parse; `IN` with as many values took half a second.
_KNOWN = """
select c.id, c.external_id, p.text_hash, a.text_hash, b.text_hash
from labeling_task c
join labeling_prompt p on p.id = c.prompt_id
join labeling_response a on a.id = c.response_a_id
join labeling_response b on b.id = c.response_b_id
where c.project_id = %s and c.kind = %s
  and (c.external_id <> '' and c.external_id = any(%s) or c.prompt_id = any(%s))
"""
# Slots of a pair that waits for review are there and withdrawn: putting it back frees them.
_SLOTS = """
with made as (
  insert into labeling_slot
    (project_id, task_id, position, kind, state, priority, shuffle, left_is, topic, language)
  select c.project_id, c.id, place, case c.stratum when 'gold' then 'gold' else 'regular' end,
    case c.state when 'review' then 'withdrawn' else 'free' end,
    c.priority, c.shuffle, '', p.topic, p.language
  from unnest(%s::bigint[]) t(id)
  join labeling_task c on c.id = t.id
  join labeling_prompt p on p.id = c.prompt_id
  cross join generate_series(1, c.overlap) place
  returning state
)
select count(*) filter (where state = 'free') from made
"""

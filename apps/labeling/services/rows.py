"""Rows of comparisons as they are given, checked one by one; each error names row and field."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from apps.labeling.blindness import self_naming
from apps.labeling.models import Choice, Comparison, Prompt, Response
from apps.labeling.services.results import RowProblem
from apps.labeling.texts import (
    BadMessages,
    Messages,
    fingerprint,
    loose_key,
    messages_from,
    plain,
)

FIELDS = (
    "prompt", "response_a", "response_b", "id", "group", "topic", "language", "source", "licence",
    "gold", "explanation", "origin", "origin_a", "origin_b", "origin_ref_a", "origin_ref_b",
    "model_a", "model_b", "stratum", "priority", "overlap", "metadata",
)  # fmt: skip
_LENGTHS = {
    name: Prompt._meta.get_field(column).max_length
    for name, column in {
        "group": "group_key",
        "topic": "topic",
        "language": "language",
        "source": "source",
        "licence": "licence",
    }.items()
}
_LONGEST_ID = Comparison._meta.get_field("external_id").max_length
_LONGEST_EXPLANATION = 4000
# Strata that measure annotators against a known answer.
_CONTROLS = (Comparison.Stratum.GOLD, Comparison.Stratum.PRACTICE)
_LONGEST_REF = Response._meta.get_field("origin_ref").max_length


@dataclass(frozen=True, slots=True)
class AnswerRow:
    messages: Messages
    text_hash: str
    origin: str
    origin_ref: str


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One row that can be imported; `row` counts from 1."""

    row: int
    external_id: str
    prompt: Messages
    prompt_hash: str
    group: str
    a: AnswerRow
    b: AnswerRow
    topic: str = ""
    language: str = ""
    source: str = ""
    licence: str = ""
    gold: str = ""
    explanation: str = ""
    stratum: str = Comparison.Stratum.RANDOM
    priority: float = 0.0
    overlap: int | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def pair(self) -> tuple[str, str, str]:
        """Prompt and unordered answers: what makes two rows the same question."""
        return (self.prompt_hash, *sorted((self.a.text_hash, self.b.text_hash)))


class _BadField(Exception):
    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name, self.message = name, message


def rows_read(
    rows: Iterable[Any], *, max_overlap: int, identical_answers: str = "refuse"
) -> tuple[list[ComparisonRow], list[RowProblem], list[RowProblem], int]:
    """(good rows, problems, warnings, number of rows read)."""
    good: list[ComparisonRow] = []
    problems: list[RowProblem] = []
    warnings: list[RowProblem] = []
    ids: dict[str, int] = {}
    number = 0
    for number, given in enumerate(rows, start=1):
        try:
            row = _row(number, given, max_overlap)
            if row.external_id:
                first = ids.setdefault(row.external_id, number)
                if first != number:
                    raise _BadField("id", f"{row.external_id!r} is the id of row {first} too")
            found = _warnings(row, identical_answers)
        except _BadField as error:
            problems.append(RowProblem(number, error.name, error.message))
            continue
        warnings += [RowProblem(number, name, message) for name, message in found]
        good.append(row)
    return good, problems, warnings, number


def _row(number: int, given: Any, max_overlap: int) -> ComparisonRow:
    if not isinstance(given, Mapping):
        raise _BadField("row", "is not an object with fields")
    if unknown := sorted(str(name) for name in given if name not in FIELDS):
        raise _BadField(unknown[0], f"is not a known field; known are {', '.join(FIELDS)}")
    prompt = _messages(given, "prompt", role="user")
    a, b = (_answer(given, side) for side in "ab")
    gold = _gold(given.get("gold"))
    stratum = _one_of(given, "stratum", Comparison.Stratum.values) or Comparison.Stratum.RANDOM
    if stratum in _CONTROLS and not gold:
        raise _BadField("gold", f"is missing; a row of stratum {stratum} needs the right answer")
    return ComparisonRow(
        row=number,
        external_id=_text(given, "id", _LONGEST_ID, allow_number=True),
        prompt=prompt,
        prompt_hash=fingerprint(prompt),
        group=_group(given, prompt),
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
        metadata=_metadata(given.get("metadata")),
    )


def _messages(given: Mapping[str, Any], name: str, *, role: str) -> Messages:
    if given.get(name) is None:
        raise _BadField(name, "is missing")
    try:
        return messages_from(given[name], role=role)
    except BadMessages as error:
        raise _BadField(name, str(error)) from None


def _answer(given: Mapping[str, Any], side: str) -> AnswerRow:
    messages = _messages(given, f"response_{side}", role="assistant")
    origin = _one_of(given, f"origin_{side}", Response.Origin.values) or _one_of(
        given, "origin", Response.Origin.values
    )
    model = _text(given, f"model_{side}", _LONGEST_REF)
    reference = _text(given, f"origin_ref_{side}", _LONGEST_REF)
    if model and reference and model != reference:
        raise _BadField(f"model_{side}", f"differs from origin_ref_{side}")
    default = Response.Origin.MODEL if model else Response.Origin.IMPORT
    return AnswerRow(messages, fingerprint(messages), origin or default, model or reference)


def _group(given: Mapping[str, Any], prompt: Messages) -> str:
    """What splits go by: the group or topic given, else the prompt without case and blanks."""
    return (
        _text(given, "group", _LENGTHS["group"])
        or _text(given, "topic", _LENGTHS["topic"])
        or loose_key(prompt)
    )


def _text(
    given: Mapping[str, Any], name: str, longest: int | None, *, allow_number: bool = False
) -> str:
    value = given.get(name)
    if value is None:
        return ""
    if allow_number and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise _BadField(name, "must be a text")
    value = value.strip()
    if "\x00" in value:
        raise _BadField(name, "contains a NUL character, which no database text can hold")
    if longest is not None and len(value) > longest:
        raise _BadField(name, f"has {len(value)} characters; at most {longest}")
    return value


def _one_of(given: Mapping[str, Any], name: str, allowed: list[str]) -> str:
    value = _text(given, name, None)
    if value and value not in allowed:
        raise _BadField(name, f"is {value!r}; one of {', '.join(allowed)} is expected")
    return value


def _gold(value: Any) -> str:
    if value is None or value == "":
        return ""
    folded = str(value).strip().lower()
    if folded not in Choice.values:
        raise _BadField("gold", f"is {value!r}; one of {', '.join(Choice.values)} is expected")
    return folded


def _number(given: Mapping[str, Any], name: str) -> float:
    value = given.get(name)
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _BadField(name, "must be a finite number")
    return float(value)


def _overlap(value: Any, max_overlap: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= max_overlap:
        raise _BadField("overlap", f"must be a whole number from 1 to {max_overlap}")
    return value


def _metadata(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _BadField("metadata", "must be an object")
    return value


def _warnings(row: ComparisonRow, identical_answers: str) -> list[tuple[str, str]]:
    """(field, message) of what is odd but can be imported; raises where it cannot."""
    found = []
    if same := _identical(row, identical_answers):
        found.append(("response_b", same))
    for name, answer in (("response_a", row.a), ("response_b", row.b)):
        model = answer.origin_ref if answer.origin == Response.Origin.MODEL else ""
        if words := self_naming(plain(answer.messages), model):
            found.append((name, f"names its model: “{words[:80]}”"))
    return found


def _identical(row: ComparisonRow, identical_answers: str) -> str:
    """A warning about two answers that read the same; raises where they may not be compared."""
    if row.a.text_hash == row.b.text_hash:
        same_source = (row.a.origin, row.a.origin_ref) == (row.b.origin, row.b.origin_ref)
        if identical_answers == "refuse" or same_source:
            raise _BadField("response_b", "is the same text as response_a")
        return "is the same text as response_a, from another origin"
    if loose_key(row.a.messages) == loose_key(row.b.messages):
        return "differs from response_a only in case or blanks"
    return ""

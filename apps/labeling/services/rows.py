"""Rows of comparisons as they are given, checked one by one; each error names row and field."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from apps.labeling.models import Choice, Comparison, Prompt, Response
from apps.labeling.texts import (
    BadMessages,
    Messages,
    fingerprint,
    loose_key,
    messages_from,
)

FIELDS = (
    "prompt", "response_a", "response_b", "id", "group", "topic", "language", "source", "licence",
    "gold", "explanation", "origin", "origin_a", "origin_b", "origin_ref_a", "origin_ref_b",
    "model_a", "model_b", "metadata_a", "metadata_b", "stratum", "priority", "overlap", "metadata",
)  # fmt: skip
_KNOWN = frozenset(FIELDS)
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
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")  # in JSON; not a backslash and four zeros
# Plain values: an enumeration's members are slow to read and to print.
_STRATA = tuple(Comparison.Stratum.values)
_ORIGINS = tuple(Response.Origin.values)
_CHOICES = tuple(Choice.values)
# Strata that measure annotators against a known answer.
_CONTROLS = (Comparison.Stratum.GOLD.value, Comparison.Stratum.PRACTICE.value)
_RANDOM = Comparison.Stratum.RANDOM.value
_MODEL, _IMPORT = Response.Origin.MODEL.value, Response.Origin.IMPORT.value
_LONGEST_REF = Response._meta.get_field("origin_ref").max_length


@dataclass(frozen=True, slots=True)
class AnswerRow:
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
    a: AnswerRow
    b: AnswerRow
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

    @property
    def pair(self) -> tuple[str, str, str]:
        """Prompt and unordered answers: what makes two rows the same question."""
        return (self.prompt_hash, *sorted((self.a.text_hash, self.b.text_hash)))


class BadField(Exception):
    """A value that cannot be imported: the field and what is wrong with it."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name, self.message = name, message


def row_from(number: int, given: Any, max_overlap: int) -> ComparisonRow:
    """One row, checked. Raises BadField for the first field that is wrong."""
    if not isinstance(given, Mapping):
        raise BadField("row", "is not an object with fields")
    if not _KNOWN.issuperset(given):
        unknown = sorted(str(name) for name in given if name not in FIELDS)
        raise BadField(unknown[0], f"is not a known field; known are {', '.join(FIELDS)}")
    prompt = _messages(given, "prompt", role="user")
    a, b = (_answer(given, side) for side in "ab")
    gold = _gold(given.get("gold"))
    stratum = _one_of(given, "stratum", _STRATA) or _RANDOM
    if stratum in _CONTROLS and not gold:
        raise BadField("gold", f"is missing; a row of stratum {stratum} needs the right answer")
    group = _group(given)
    return ComparisonRow(
        row=number,
        external_id=_text(given, "id", _LONGEST_ID, allow_number=True),
        prompt=prompt,
        prompt_hash=fingerprint(prompt),
        group=group or loose_key(prompt),
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
    )


def _messages(given: Mapping[str, Any], name: str, *, role: str) -> Messages:
    if given.get(name) is None:
        raise BadField(name, "is missing")
    try:
        return messages_from(given[name], role=role)
    except BadMessages as error:
        raise BadField(name, str(error)) from None


def _answer(given: Mapping[str, Any], side: str) -> AnswerRow:
    messages = _messages(given, f"response_{side}", role="assistant")
    origin = _one_of(given, f"origin_{side}", _ORIGINS) or _one_of(given, "origin", _ORIGINS)
    model = _text(given, f"model_{side}", _LONGEST_REF)
    reference = _text(given, f"origin_ref_{side}", _LONGEST_REF)
    if model and reference and model != reference:
        raise BadField(f"model_{side}", f"differs from origin_ref_{side}")
    default = _MODEL if model else _IMPORT
    return AnswerRow(
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

"""Two answers in two columns: our own form, and every table that is like it.

Also Chatbot Arena's: two whole conversations (`conversation_a`, `conversation_b`) whose common
beginning is the prompt, `model_a`, `model_b`, and a `winner` that says "tie (bothbad)".
"""

from collections.abc import Iterable, Iterator
from typing import Any

from apps.labeling.formats.mapping import Mapper, mapping_of, prompt_apart
from apps.labeling.formats.records import COMMON, BadValue, Converted, Options, Record, RecordFault

KEY, LABEL = "pairs", "a prompt and two answers"
_OWN = (
    "origin",
    "origin_a",
    "origin_b",
    "origin_ref_a",
    "origin_ref_b",
    "metadata_a",
    "metadata_b",
)
FIELDS = ("prompt", "response_a", "response_b", "gold", "model_a", "model_b", *COMMON, *_OWN)
REQUIRED = ("response_a", "response_b")


def fits(columns: Iterable[str], sample: Iterable[Record]) -> bool:
    found = mapping_of(Options(), ("prompt", "response_a", "response_b"), columns)
    return "response_a" in found and "response_b" in found


def choices(sample: Iterable[Record], columns: Iterable[str]) -> tuple[str, ...]:
    """The columns that may fill fields."""
    return tuple(columns)


def mapper(options: Options, columns: Iterable[str]) -> Mapper:
    return Mapper(options, FIELDS, columns)


def convert(number: int, record: Record, read: Mapper) -> Iterator[Converted]:
    try:
        yield Converted(number, _row(record, read))
    except BadValue as error:
        yield Converted(number, fault=RecordFault(error.field, error.message))


def _row(record: Record, read: Mapper) -> dict[str, Any]:
    row = read.common(record)
    prompt, a, b = (read.value(record, name) for name in ("prompt", "response_a", "response_b"))
    if isinstance(a, list) and isinstance(b, list):
        prompt, a, b = prompt_apart(prompt, a, b, where="response_b")
    row |= {"prompt": prompt, "response_a": a, "response_b": b}
    if gold := read.gold(record):
        row["gold"] = gold
    for name in ("model_a", "model_b", *_OWN):
        if (value := read.value(record, name)) is not None:
            row[name] = value
    return row

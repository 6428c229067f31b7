"""Two answers in two columns: our own form, and every table that is like it.

Where a column says who judged, as in MT-Bench's human judgments (`judge`, `winner`), a row is a
vote: its label is that person's choice, and rows of the same pair become one comparison
(`services.importing.file_rows`).

Also Chatbot Arena's: two whole conversations (`conversation_a`, `conversation_b`) whose common
beginning is the prompt, `model_a`, `model_b`, and a `winner` that says "tie (bothbad)".
"""

from collections.abc import Iterable, Iterator, Mapping
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
_VOTE = ("annotator", "cast_at")
FIELDS = (
    *("prompt", "response_a", "response_b", "gold", "model_a", "model_b"),
    *(*COMMON, *_VOTE, *_OWN),
)
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
        votes = list(_votes(record, read))
        yield Converted(number, _row(record, read, labelled=not votes), votes)
    except BadValue as error:
        yield Converted(number, fault=RecordFault(error.field, error.message))


def is_vote(mapping: Mapping[str, str], options: Options) -> bool:
    """Whether each row of a file is a vote."""
    return options.votes and "annotator" in mapping and "gold" in mapping


def _votes(record: Record, read: Mapper) -> Iterator[dict[str, Any]]:
    """The vote that a row is, of a comparison that is found by its texts."""
    if not is_vote(read.mapping, read.options):
        return
    who, choice = read.value(record, "annotator"), read.choice(record)
    if who is None or not choice:
        return
    vote = {"comparison": None, "annotator": str(who), "choice": choice}
    if (at := read.value(record, "cast_at")) is not None:
        vote["cast_at"] = at
    yield vote


def _row(record: Record, read: Mapper, *, labelled: bool) -> dict[str, Any]:
    row = read.common(record)
    prompt, a, b = (read.value(record, name) for name in ("prompt", "response_a", "response_b"))
    if isinstance(a, list) and isinstance(b, list):
        prompt, a, b = prompt_apart(prompt, a, b, where="response_b")
    row |= {"prompt": prompt, "response_a": a, "response_b": b}
    if labelled and (gold := read.gold(record)):
        row["gold"] = gold
    for name in ("model_a", "model_b", *_OWN):
        if (value := read.value(record, name)) is not None:
            row[name] = value
    return row

"""Argilla exports, 1.x and 2.x, as records or as the columns that `datasets` gets.

Sources: argilla 1.x `FeedbackDataset.format_as("datasets")` (a question's column holds
`{"user_id", "value", "status"}`, a ranking's value `{"rank", "value"}`), 2.x `Record.to_dict`
(`fields`, `responses` by question) and `to_list(flatten=True)` / `to_datasets`
(`QUESTION.responses` with `.users` and `.status` beside it). Only submitted responses are votes;
suggestions are a model's and are left out. Argilla does not export when a response was given.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from apps.labeling.formats.mapping import Mapper
from apps.labeling.formats.records import (
    COMMON,
    BadValue,
    Converted,
    Options,
    Record,
    RecordFault,
    choice_from,
    folded,
)

KEY, LABEL = "argilla", "Argilla export"
FIELDS = ("prompt", "response_a", "response_b", "model_a", "model_b", *COMMON)
REQUIRED = ("response_a", "response_b")
_FLAT = (
    ".responses",
    ".responses.users",
    ".responses.status",
    ".suggestion",
    ".suggestion.score",
    ".suggestion.agent",
)
_OLD = ("-suggestion", "-suggestion-metadata")


def fits(columns: Iterable[str], sample: Iterable[Record]) -> bool:
    columns = dict.fromkeys(columns)
    if any(name.endswith(".responses") for name in columns):
        return True
    if "fields" in columns and {"responses", "suggestions"} & columns.keys():
        return all(isinstance(record.get("fields"), Mapping) for record in sample)
    return any(f"{name}-suggestion" in columns for name in columns)


def choices(sample: Iterable[Record], columns: Iterable[str]) -> tuple[str, ...]:
    """Columns are the fields, wherever the export keeps them."""
    nested = dict.fromkeys(
        name
        for record in sample
        if isinstance(record.get("fields"), Mapping)
        for name in record["fields"]
    )
    if nested:
        return (*nested, "id", "metadata")
    columns = dict.fromkeys(columns)
    questions = {name for name in columns if f"{name}-suggestion" in columns}
    return tuple(
        name for name in columns if not name.endswith((*_FLAT, *_OLD)) and name not in questions
    )


def mapper(options: Options, columns: Iterable[str]) -> Mapper:
    return Mapper(options, FIELDS, columns)


def convert(number: int, record: Record, read: Mapper) -> Iterator[Converted]:
    data = _fields(record)
    row = read.common(data, without=("_server_id", "status"))
    for name in ("prompt", "response_a", "response_b"):
        row[name] = read.value(data, name)
    for name in ("model_a", "model_b"):
        if isinstance(value := read.value(data, name), str):
            row[name] = value
    row["id"] = str(row.get("id") or f"argilla-{number}")
    votes: list[dict[str, Any]] = []
    faults: dict[str, RecordFault] = {}
    if read.options.votes:
        for question, answers in _answers(record).items():
            if votes:
                break  # the first question that names a side is the comparison's
            for who, value, status in answers:
                if status not in (None, "submitted") or value is None:
                    continue
                try:
                    choice = _choice(value, read)
                except BadValue as error:
                    faults[question] = RecordFault(question, error.message)
                    break
                votes.append({"comparison": row["id"], "annotator": who, "choice": choice})
    yield Converted(number, row, votes)
    if not votes:
        for fault in faults.values():
            yield Converted(number, fault=fault)


def _fields(record: Record) -> Mapping[str, Any]:
    nested = record.get("fields")
    if not isinstance(nested, Mapping):
        return record
    return {**nested, "id": record.get("id"), "metadata": record.get("metadata")}


Answers = dict[str, list[tuple[str, Any, str | None]]]  # question → (who, value, status)


def _answers(record: Record) -> Answers:
    nested = record.get("responses")
    if isinstance(nested, Mapping):
        return {q: [_one(entry) for entry in given] for q, given in nested.items() if given}
    if isinstance(nested, Sequence) and not isinstance(nested, str):
        return _by_person(nested)
    found: Answers = {}
    for name, values in record.items():
        if name.endswith(".responses") and isinstance(values, list):
            who = record.get(f"{name}.users") or [""] * len(values)
            status = record.get(f"{name}.status") or [None] * len(values)
            found[name.removesuffix(".responses")] = list(zip(who, values, status, strict=False))
        elif f"{name}-suggestion" in record:
            found[name] = [_one(entry) for entry in _rows(values)]
    return found


def _by_person(responses: Sequence[Any]) -> Answers:
    """1.x records: each response has a person's `values` by question."""
    found: Answers = {}
    for response in responses:
        if not isinstance(response, Mapping) or not isinstance(response.get("values"), Mapping):
            continue
        for question, given in response["values"].items():
            value = given.get("value") if isinstance(given, Mapping) else given
            found.setdefault(question, []).append(
                (str(response.get("user_id") or ""), value, response.get("status"))
            )
    return found


def _one(entry: Any) -> tuple[str, Any, str | None]:
    entry = entry if isinstance(entry, Mapping) else {}
    return str(entry.get("user_id") or ""), entry.get("value"), entry.get("status")


def _rows(value: Any) -> list[Any]:
    """A list of objects, also where Arrow has turned it into an object of lists."""
    if isinstance(value, Mapping):
        names = list(value)
        return [dict(zip(names, row, strict=True)) for row in zip(*value.values(), strict=True)]
    return value if isinstance(value, list) else []


def _choice(value: Any, read: Mapper) -> str:
    """a, b, tie or both_bad from a label or a ranking. Raises BadValue."""
    names = [read.mapping.get(name, "") for name in ("response_a", "response_b")]
    if isinstance(value, str):
        return choice_from(value, a=names[:1], b=names[1:])
    ranks: dict[str, int] = {}
    for place, entry in enumerate(_rows(value), start=1):
        if isinstance(entry, Mapping):
            ranks[folded(entry.get("value"))] = entry.get("rank") or place
        else:
            ranks[folded(entry)] = place
    if len(ranks) < 2:
        raise BadValue("choice", "is neither a label nor a ranking of two answers")
    sides: dict[str, int] = {}
    for name, rank in ranks.items():
        side = choice_from(name, a=names[:1], b=names[1:])
        sides.setdefault(side, rank)
    if set(sides) != {"a", "b"}:
        raise BadValue("choice", "ranks other things than the two answers")
    return "tie" if sides["a"] == sides["b"] else min(sides, key=lambda side: sides[side])

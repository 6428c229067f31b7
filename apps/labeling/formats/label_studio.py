"""Label Studio's JSON export: tasks with their data and the annotations on them.

Sources: the Pairwise tag (its result is `{"type": "pairwise", "value": {"selected": "left"}}`, left
being the first name of `toName`) and the documentation of the JSON export (`data`, `annotations`,
`completed_by`, `was_cancelled`, `created_at`). A `Choices` result is read too, where its choice
names a side. JSON-MIN and CSV exports have lost who answered and are read as plain tables.
"""

from collections.abc import Iterable, Iterator, Mapping
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
)

KEY, LABEL = "label_studio", "Label Studio export (JSON)"
FIELDS = ("prompt", "response_a", "response_b", "model_a", "model_b", *COMMON)
REQUIRED = ("response_a", "response_b")


def fits(columns: Iterable[str], sample: Iterable[Record]) -> bool:
    return bool(sample) and all(
        isinstance(record.get("data"), Mapping)
        and isinstance(record.get("annotations", record.get("completions", [])), list)
        and ("annotations" in record or "completions" in record or "predictions" in record)
        for record in sample
    )


def choices(sample: Iterable[Record], columns: Iterable[str]) -> tuple[str, ...]:
    """Columns are the names in a task's data."""
    names = dict.fromkeys(
        name for record in sample for name in record.get("data", {}) if isinstance(name, str)
    )
    return tuple(names)


def mapper(options: Options, columns: Iterable[str]) -> Mapper:
    return Mapper(options, FIELDS, columns)


def convert(number: int, record: Record, read: Mapper) -> Iterator[Converted]:
    data = record.get("data")
    if not isinstance(data, Mapping):
        yield Converted(number, fault=RecordFault("data", "is missing: this is no task"))
        return
    row = read.common(data)
    for name in ("prompt", "response_a", "response_b"):
        row[name] = read.value(data, name)
    for name in ("model_a", "model_b"):
        if isinstance(value := read.value(data, name), str):
            row[name] = value
    row.setdefault("id", f"label-studio-{record.get('id', number)}")
    votes: list[dict[str, Any]] = []
    faults: list[RecordFault] = []
    if read.options.votes:
        for annotation in record.get("annotations") or record.get("completions") or []:
            try:
                if (vote := _vote(annotation, read)) is not None:
                    votes.append(vote | {"comparison": str(row["id"])})
            except BadValue as error:
                faults.append(RecordFault(error.field, error.message))
    yield Converted(number, row, votes)
    for fault in faults:
        yield Converted(number, fault=fault)


def _vote(annotation: Any, read: Mapper) -> dict[str, Any] | None:
    """The annotation as a vote; None when it was cancelled or says nothing of the two."""
    if not isinstance(annotation, Mapping) or annotation.get("was_cancelled"):
        return None
    choice, notes = "", []
    for result in annotation.get("result") or []:
        value = result.get("value") if isinstance(result, Mapping) else None
        if not isinstance(value, Mapping):
            continue
        if result.get("type") == "pairwise" and value.get("selected") in ("left", "right"):
            choice = "a" if value["selected"] == "left" else "b"
        elif not choice and isinstance(value.get("choices"), list):
            choice = _side(value["choices"], read)
        elif isinstance(value.get("text"), str | list):
            notes += [value["text"]] if isinstance(value["text"], str) else value["text"]
    if not choice:
        return None
    return {"annotator": _who(annotation), "choice": choice} | _extra(annotation, notes)


def _side(value: list[Any], read: Mapper) -> str:
    """The side a choice names; "" for a question about something else."""
    columns = read.mapping.get("response_a", ""), read.mapping.get("response_b", "")
    try:
        return choice_from(value, a=columns[:1], b=columns[1:])
    except BadValue:
        return ""


def _who(annotation: Mapping[str, Any]) -> str:
    """The annotator's number: an e-mail address would be personal data."""
    who = annotation.get("completed_by")
    if isinstance(who, Mapping):
        who = who.get("id")
    if who in (None, ""):
        raise BadValue("completed_by", "an annotation does not say who made it")
    return str(who)


def _extra(annotation: Mapping[str, Any], notes: list[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if annotation.get("created_at"):
        found["cast_at"] = annotation["created_at"]
    if text := "\n".join(str(note) for note in notes if note).strip():
        found["rationale"] = text[:2000]
    return found

"""The layouts, in the order in which they are tried on a file's first records."""

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from apps.common.errors import DomainError
from apps.labeling.formats import (
    argilla,
    completions,
    dataset_rows,
    label_studio,
    pairs,
    preference,
    trajectories,
    transcripts,
)
from apps.labeling.formats.images import images_placed, without_data
from apps.labeling.formats.mapping import Mapper
from apps.labeling.formats.records import (
    BadValue,
    Converted,
    FileLimits,
    FormatError,
    Options,
    Record,
    RecordFault,
    Records,
    bad_mapping,
    columns_check,
)
from apps.labeling.formats.tables import Table, table_open
from apps.labeling.texts import MOST_CHARACTERS, BadMessages, excerpt, messages_from


@dataclass(frozen=True, slots=True)
class Layout:
    """How a record means a comparison.

    fields: what a column may fill; required: those without which no row can be made.
    """

    key: str
    label: str
    fields: tuple[str, ...]
    required: tuple[str, ...]
    fits: Callable[[Iterable[str], Iterable[Record]], bool]
    choices: Callable[[Iterable[Record], Iterable[str]], tuple[str, ...]]
    mapper: Callable[[Options, Iterable[str]], Mapper]
    convert: Callable[[int, Record, Mapper], Iterator[Converted]]
    # Of rows that mean something only beside each other: all of them at once.
    together: Callable[[Iterable[tuple[int, Record]], Mapper], Iterator[Converted]] | None = None

    def columns(self, table: Table) -> tuple[str, ...]:
        """What of this file may fill fields."""
        return self.choices(table.sample, table.columns)

    def mapping(self, table: Table, options: Options) -> dict[str, str]:
        """Field to column, as chosen and guessed."""
        return self.mapper(options, self.columns(table)).mapping

    def missing(self, table: Table, options: Options) -> list[str]:
        """Fields that a column has to be chosen for before any row can be made: those it requires,
        and the prompt where no row says it otherwise (as conversations do, or one for all)."""
        mapping = self.mapping(table, options)
        if "messages" in mapping:  # a conversation is all that a demonstration is made of
            return []
        missing = [name for name in self.required if name not in mapping]
        if "prompt" in mapping or "prompt" not in self.fields or "prompt" in missing:
            return missing
        made = _converted(table, self, options)
        says = [row.comparison is not None and bool(row.comparison.get("prompt")) for row in made]
        said_why = [row.fault is not None and row.fault.field != "prompt" for row in made]
        return missing if any(says) or any(said_why) else ["prompt", *missing]

    def rows(self, table: Table, options: Options) -> Iterator[Converted]:
        """Every record of the file, converted. Raises FormatError where the file breaks off."""
        read = self.mapper(options, self.columns(table))
        if self.together is not None:
            faults: list[Converted] = []
            yield from self.together(_good(table.records(), faults), read)
            yield from faults
            return
        for number, record in table.records():
            if isinstance(record, RecordFault):
                yield Converted(number, fault=record)
            else:
                yield from self.converted(number, record, read)

    def converted(self, number: int, record: Record, read: Mapper) -> Iterator[Converted]:
        """One record, with the images of its column where they belong."""
        try:
            placed = images_placed(record, read.mapping)
        except BadValue as error:
            yield Converted(number, fault=RecordFault(error.field, error.message))
        else:
            yield from self.convert(number, placed, read)


def _good(records: Records, faults: list[Converted]) -> Iterator[tuple[int, Record]]:
    for number, record in records:
        if isinstance(record, RecordFault):
            faults.append(Converted(number, fault=record))
        else:
            yield number, record


def _mapper(fields: tuple[str, ...], options: Options, columns: Iterable[str]) -> Mapper:
    return Mapper(options, fields, columns)


LAYOUTS: dict[str, Layout] = {
    module.KEY: Layout(
        key=module.KEY,
        label=module.LABEL,
        fields=module.FIELDS,
        required=module.REQUIRED,
        fits=module.fits,
        choices=module.choices,
        mapper=module.mapper,
        convert=module.convert,
        together=getattr(module, "together", None),
    )
    for module in (label_studio, argilla, trajectories, transcripts, preference, completions, pairs)
}


# By what an import makes of a file; preferences for a dataset are read as comparisons are.
COMPARISONS, PREFERENCES = "comparisons", "preferences"
LAYOUTS_FOR: dict[str, dict[str, Layout]] = {
    COMPARISONS: LAYOUTS,
    PREFERENCES: {
        module.KEY: replace(
            LAYOUTS[module.KEY],
            fields=dataset_rows.of_pairs(module.FIELDS),
            mapper=partial(_mapper, dataset_rows.of_pairs(module.FIELDS)),
            convert=dataset_rows.with_own(module.convert),
        )
        for module in (transcripts, preference, completions, pairs)
    },
} | {
    sort: {
        sort: Layout(
            key=sort,
            label=label,
            fields=dataset_rows.fields_of(sort),
            required=required,
            fits=lambda columns, sample: True,
            choices=pairs.choices,
            mapper=partial(_mapper, dataset_rows.fields_of(sort)),
            convert=dataset_rows.converter(sort),
        )
    }
    for sort, (label, _, required) in dataset_rows.SORTS.items()
}


def layout_of(table: Table, key: str = "", makes: str = COMPARISONS) -> Layout:
    """The layout named, else the first that fits; the last when none does.

    The last (plain pairs) always can be used: its columns are then chosen by hand. Raises
    FormatError for an unknown name.
    """
    known = LAYOUTS_FOR[makes]
    if key:
        if key not in known:
            raise FormatError(f"There is no layout {key!r}; there are {', '.join(known)}.")
        return known[key]
    fitting = (one for one in known.values() if one.fits(table.columns, table.sample))
    return next(fitting, list(known.values())[-1])


# The first rows of a file, as they are and as what they will be: small enough to keep with the
# job, so that its page opens no file.

SAMPLE_ROWS = 5
_LONGEST_CELL = 160
_MOST_COLUMNS = 60


def preview_of(
    table: Table, layout: Layout, options: Options, makes: str = COMPARISONS
) -> dict[str, Any]:
    """Columns, guesses and samples, in JSON's types."""
    if any("\x00" in name for name in table.columns):
        raise FormatError("A column's name holds a NUL character, as no text does.")
    columns = layout.columns(table)
    columns_check(columns, table.limits)
    mapping = layout.mapping(table, options)
    return {
        "container": table.container,
        "layout": layout.key,
        "encoding": table.encoding,
        "delimiter": table.delimiter,
        "split": table.split,
        "splits": list(table.splits),
        "notes": list(table.notes),
        "columns": list(columns),
        "fields": list(layout.fields),
        "missing": layout.missing(table, options),
        "has_votes": makes == COMPARISONS
        and (
            layout.key in (label_studio.KEY, argilla.KEY)
            or pairs.is_vote(mapping, replace(options, votes=True))
        ),
        "mapping": mapping,
        "header": list(table.columns[:_MOST_COLUMNS]),
        "sample": [
            [_cell(record.get(name)) for name in table.columns[:_MOST_COLUMNS]]
            for record in table.sample[:SAMPLE_ROWS]
        ],
        "rows": [_row(row, mapping) for row in _converted(table, layout, options)],
    }


def _converted(table: Table, layout: Layout, options: Options) -> list[Converted]:
    read = layout.mapper(options, layout.columns(table))
    sample = enumerate(table.sample, start=1)
    rows = (
        layout.together(sample, read)
        if layout.together is not None
        else (row for number, record in sample for row in layout.converted(number, record, read))
    )
    return list(itertools.islice(rows, SAMPLE_ROWS))


def _row(row: Converted, mapping: Mapping[str, str]) -> dict[str, Any]:
    if row.fault is not None:
        said = in_own_words(row.fault.field, row.fault.message, mapping)
        return {"row": row.row, "error": ": ".join(said)}
    made = row.comparison or {}
    shown = {"row": row.row, "gold": made.get("gold", ""), "votes": len(row.votes)}
    shown |= {name: _cell(made[name]) for name in ("label", "answer", "split") if name in made}
    for name, role, text in texts_of(made):
        try:
            said = messages_from(without_data(text), role=role)
            shown[name] = excerpt(said, _LONGEST_CELL)
        except BadMessages as error:
            why = "is missing" if text is None else str(error)
            return {"row": row.row, "error": ": ".join(in_own_words(name, why, mapping))}
    if "responses" in made:
        shown["answers"] = [shown.pop(name) for name, role, _ in texts_of(made) if role != "user"]
    return shown


def texts_of(row: Mapping[str, Any]) -> list[tuple[str, str, Any]]:
    """(field, role, text) of the prompt and the answers that a row of an import has."""
    if "responses" in row:
        answers = [(f"responses.{n}", one["text"]) for n, one in enumerate(row["responses"], 1)]
    elif "response_a" in row or "response_b" in row:
        answers = [(name, row.get(name)) for name in ("response_a", "response_b")]
    else:  # of a dataset
        answers = [(name, row[name]) for name in ("response", "completion") if name in row]
    said = [(name, "assistant", text) for name, text in answers]
    if "messages" in row:
        return [("messages", "user", row["messages"])]
    return [("prompt", "user", row.get("prompt")), *said]


def in_own_words(field: str, message: str, mapping: Mapping[str, str]) -> tuple[str, str]:
    """(field, message) of a problem, by the file's own columns where they fill our fields."""
    for name in ("response_a", "response_b"):
        if name in mapping and name != mapping[name]:
            message = message.replace(name, mapping[name])
    return mapping.get(field, field), message


def _json_beginning(value: Any, least: int) -> str:
    """At least so many characters of its JSON, or all of it: a log may have millions."""
    text = ""
    for piece in json.JSONEncoder(ensure_ascii=False, default=str).iterencode(value):
        text += piece
        if len(text) >= least:
            break
    return text


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else _json_beginning(value, 4 * _LONGEST_CELL)
    text = " ".join(
        ("" if value is None else text).replace("\x00", "\ufffd")[: 4 * _LONGEST_CELL].split()
    )
    return text if len(text) <= _LONGEST_CELL else text[: _LONGEST_CELL - 1] + "…"


# What a job's settings may hold beside the options, with what is meant when it is not there.
DEFAULTS: dict[str, Any] = {
    "container": "",
    "layout": "",
    "split": "",
    "encoding": "",
    "delimiter": "",
    "identical_answers": "refuse",
    "makes": COMPARISONS,
}


OPTIONS = {field.name for field in fields(Options)}


def preview(
    *, path: str, chosen: dict[str, Any], columns: int, decoded: int, scratch: str
) -> Iterator[dict[str, Any]]:
    """One value: the first rows as they are, and as what they will be."""
    limits = FileLimits(columns, decoded)
    with _opened(Path(path), chosen, limits, scratch) as (table, layout, options):
        yield preview_of(table, layout, options, chosen.get("makes", COMPARISONS))


def rows(
    *, path: str, chosen: dict[str, Any], columns: int, decoded: int, scratch: str
) -> Iterator[dict[str, Any]]:
    """First what was recognised, then every record, converted."""
    limits = FileLimits(columns, decoded)
    with _opened(Path(path), chosen, limits, scratch) as (table, layout, options):
        mapping = layout.mapping(table, options)
        missing_refuse(layout.missing(table, options))
        yield {
            "container": table.container,
            "layout": layout.label,
            "mapping": mapping,
            "notes": list(table.notes),
        }
        yield from map(_plain, layout.rows(table, options))


def missing_refuse(missing: list[str]) -> None:
    """Raises DomainError for fields without a column; `details` has each of them."""
    if missing:
        words = "Choose the column with the {}.".format
        raise DomainError(
            words(FIELD_WORDS[missing[0]]),
            code="column_missing",
            field=missing[0],
            details=[{"field": name, "message": words(FIELD_WORDS[name])} for name in missing],
        )


FIELD_WORDS = {
    "prompt": "prompt",
    "response_a": "first answer",
    "response_b": "second answer",
    "chosen": "chosen answer",
    "rejected": "rejected answer",
    "completions": "list of answers",
    "response": "answer",
    "completion": "answer",
    "label": "label",
    "trajectory": "run of the agent",
}


def _plain(row: Converted) -> dict[str, Any]:
    if row.fault is not None:
        return {"row": row.row, "fault": [row.fault.field, row.fault.message]}
    for name, _, text in texts_of(row.comparison or {}):
        if isinstance(text, str) and len(text := without_data(text)) > MOST_CHARACTERS:
            # Known here already, so that no worker has to hold it.
            message = f"the text has {len(text):,} characters; at most {MOST_CHARACTERS:,}"
            return {"row": row.row, "fault": [name, message]}
    return {"row": row.row, "comparison": row.comparison, "votes": row.votes}


@contextmanager
def _opened(
    path: Path, chosen: dict[str, Any], limits: FileLimits, scratch: str
) -> Iterator[tuple[Table, Layout, Options]]:
    known = DEFAULTS | chosen
    options = Options(**{name: value for name, value in chosen.items() if name in OPTIONS})
    if known["makes"] != COMPARISONS:  # nobody voted here
        options = replace(options, votes=False, preference=True)
    try:
        with table_open(
            path,
            container=known["container"],
            split=known["split"],
            encoding=known["encoding"],
            delimiter=known["delimiter"],
            limits=limits,
        ) as table:
            layout = layout_of(table, known["layout"], known["makes"])
            wrong = bad_mapping(options, fields=layout.fields, columns=layout.columns(table))
            if wrong is not None:
                raise DomainError(wrong[1], code="bad_mapping", field=wrong[0])
            yield table, layout, options
    except FormatError as error:
        words = str(error).replace(str(path), "the file").replace(scratch, "the file")
        raise DomainError(words, code="file_unreadable", field="file") from error

"""The first rows of a file, as they are and as what they will be: small enough to keep with the
job, so that its page opens no file."""

import itertools
import json
from typing import Any

from apps.labeling.formats.layouts import Layout
from apps.labeling.formats.options import Options
from apps.labeling.formats.records import Converted, FormatError, columns_check
from apps.labeling.formats.tables import Table
from apps.labeling.texts import BadMessages, excerpt, messages_from

SAMPLE_ROWS = 5
_LONGEST_CELL = 160
_MOST_COLUMNS = 60


def preview_of(table: Table, layout: Layout, options: Options) -> dict[str, Any]:
    """Columns, guesses and samples, in JSON's types."""
    if any("\x00" in name for name in table.columns):
        raise FormatError("A column's name holds a NUL character, as no text does.")
    columns = layout.columns(table)
    columns_check(columns, table.limits)
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
        "required": list(layout.required),
        "mapping": layout.mapping(table, options),
        "header": list(table.columns[:_MOST_COLUMNS]),
        "sample": [
            [_cell(record.get(name)) for name in table.columns[:_MOST_COLUMNS]]
            for record in table.sample[:SAMPLE_ROWS]
        ],
        "rows": [_row(row) for row in _converted(table, layout, options)],
    }


def _converted(table: Table, layout: Layout, options: Options) -> list[Converted]:
    read = layout.mapper(options, layout.columns(table))
    rows = (
        row
        for number, record in enumerate(table.sample, start=1)
        for row in layout.convert(number, record, read)
    )
    return list(itertools.islice(rows, SAMPLE_ROWS))


def _row(row: Converted) -> dict[str, Any]:
    if row.fault is not None:
        return {"row": row.row, "error": f"{row.fault.field}: {row.fault.message}"}
    made = row.comparison or {}
    shown = {"row": row.row, "gold": made.get("gold", ""), "votes": len(row.votes)}
    for name, role in (
        ("prompt", "user"),
        ("response_a", "assistant"),
        ("response_b", "assistant"),
    ):
        try:
            shown[name] = excerpt(messages_from(made.get(name), role=role), _LONGEST_CELL)
        except BadMessages as error:
            return {"row": row.row, "error": f"{name}: {error}"}
    return shown


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = " ".join(
        ("" if value is None else text).replace("\x00", "\ufffd")[: 4 * _LONGEST_CELL].split()
    )
    return text if len(text) <= _LONGEST_CELL else text[: _LONGEST_CELL - 1] + "…"

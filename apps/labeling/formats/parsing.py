"""What the child process of `apps.common.sandbox` does with a file of comparisons.

Both functions take and yield JSON's types. A refusal is a DomainError; it names neither the file's
path nor the scratch folder's.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from apps.common.errors import DomainError
from apps.labeling.formats.layouts import Layout, layout_of
from apps.labeling.formats.options import Options, bad_mapping
from apps.labeling.formats.preview import preview_of
from apps.labeling.formats.records import Converted, FileLimits, FormatError
from apps.labeling.formats.tables import Table, table_open
from apps.labeling.texts import MOST_CHARACTERS

# What a job's settings may hold beside the options, with what is meant when it is not there.
DEFAULTS: dict[str, Any] = {
    "container": "",
    "layout": "",
    "split": "",
    "encoding": "",
    "delimiter": "",
    "identical_answers": "refuse",
}
_OPTIONS = {field.name for field in fields(Options)}


def preview(
    *, path: str, chosen: dict[str, Any], columns: int, decoded: int, scratch: str
) -> Iterator[dict[str, Any]]:
    """One value: the first rows as they are, and as what they will be."""
    limits = FileLimits(columns, decoded)
    with _opened(Path(path), chosen, limits, scratch) as (table, layout, options):
        yield preview_of(table, layout, options)


def rows(
    *, path: str, chosen: dict[str, Any], columns: int, decoded: int, scratch: str
) -> Iterator[dict[str, Any]]:
    """First what was recognised, then every record, converted."""
    limits = FileLimits(columns, decoded)
    with _opened(Path(path), chosen, limits, scratch) as (table, layout, options):
        mapping = layout.mapping(table, options)
        missing = next((name for name in layout.required if name not in mapping), None)
        if missing is not None:
            raise DomainError(
                "Choose the column that holds this; none was recognised.",
                code="column_missing",
                field=missing,
            )
        yield {
            "container": table.container,
            "layout": layout.label,
            "mapping": mapping,
            "notes": list(table.notes),
        }
        yield from map(_plain, layout.rows(table, options))


def _plain(row: Converted) -> dict[str, Any]:
    if row.fault is not None:
        return {"row": row.row, "fault": [row.fault.field, row.fault.message]}
    for name in ("prompt", "response_a", "response_b"):
        text = (row.comparison or {}).get(name)
        if isinstance(text, str) and len(text) > MOST_CHARACTERS:
            # Known here already, so that no worker has to hold it.
            message = f"the text has {len(text):,} characters; at most {MOST_CHARACTERS:,}"
            return {"row": row.row, "fault": [name, message]}
    return {"row": row.row, "comparison": row.comparison, "votes": row.votes}


@contextmanager
def _opened(
    path: Path, chosen: dict[str, Any], limits: FileLimits, scratch: str
) -> Iterator[tuple[Table, Layout, Options]]:
    known = DEFAULTS | chosen
    options = Options(**{name: value for name, value in chosen.items() if name in _OPTIONS})
    try:
        with table_open(
            path,
            container=known["container"],
            split=known["split"],
            encoding=known["encoding"],
            delimiter=known["delimiter"],
            limits=limits,
        ) as table:
            layout = layout_of(table, known["layout"])
            wrong = bad_mapping(options, fields=layout.fields, columns=layout.columns(table))
            if wrong is not None:
                raise DomainError(wrong[1], code="bad_mapping", field=wrong[0])
            yield table, layout, options
    except FormatError as error:
        words = str(error).replace(str(path), "the file").replace(scratch, "the file")
        raise DomainError(words, code="file_unreadable", field="file") from error

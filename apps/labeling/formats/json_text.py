"""JSON Lines and JSON arrays."""

import json
from pathlib import Path
from typing import Any

from apps.labeling.formats.delimited import text_open
from apps.labeling.formats.records import FormatError, RecordFault, Records

# Keys under which some exports wrap their list.
_WRAPPERS = ("data", "rows", "records", "examples", "train", "instances")


def lines(path: Path, encoding: str) -> Records:
    """One object a line; blank lines are passed over, a bad line is named and the rest read."""
    with text_open(path, encoding) as file:
        number = 0
        for line in file:
            if not line.strip():
                continue
            number += 1
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                yield number, RecordFault("row", f"is not JSON: {error}")
                continue
            yield number, _object(value)


def array(path: Path, encoding: str) -> Records:
    """The objects of one list. Raises FormatError where it is not JSON, or no list of objects."""
    with text_open(path, encoding) as file:
        try:
            value = json.load(file)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"The file is not JSON: {error}.") from None
    entries = _entries(value)
    for number, entry in enumerate(entries, start=1):
        yield number, _object(entry)


def _entries(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    if isinstance(value, dict):
        for key in _WRAPPERS:
            if isinstance(value.get(key), list):
                return value[key]
        if value and all(isinstance(column, list) for column in value.values()):
            return _from_columns(value)
        return [value]
    raise FormatError("The file is JSON, but neither a list nor an object.")


def _from_columns(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """{"prompt": [...], "chosen": [...]} as rows."""
    lengths = {len(column) for column in columns.values()}
    if len(lengths) != 1:
        raise FormatError("The file is an object of lists that differ in length.")
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _object(value: Any) -> dict[str, Any] | RecordFault:
    if not isinstance(value, dict):
        return RecordFault("row", "is not an object with fields")
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return RecordFault("row", "holds half a character (a lone surrogate, such as \\ud800)")
    return value

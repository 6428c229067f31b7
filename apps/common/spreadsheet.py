"""CSV that a spreadsheet opens as text.

A cell that begins with one of `=`, `+`, `-`, `@` (also in full width), or with a tab or a line
break before it, is run as a formula by common spreadsheets; a model's or a stranger's answer may
begin so. Such cells get a leading apostrophe, and every cell is quoted (OWASP, "CSV Injection").
"""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

_STARTS = frozenset("=+-@＝＋－＠\t\r\n|%")


def safe_cell(value: Any) -> str:
    """Numbers as they are, text guarded."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    text = "" if value is None else str(value)
    visible = text.lstrip(" \u00a0\ufeff\u200b")
    return f"'{text}" if visible[:1] in _STARTS and visible else text


def csv_lines(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The header and each row, ended as RFC 4180 wants."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, quoting=csv.QUOTE_ALL)
    writer.writerow(columns)
    yield _taken(buffer)
    for row in rows:
        writer.writerow([safe_cell(row.get(name)) for name in columns])
        yield _taken(buffer)


def _taken(buffer: io.StringIO) -> str:
    text = buffer.getvalue()
    buffer.seek(0)
    buffer.truncate()
    return text

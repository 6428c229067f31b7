"""Excel workbooks (.xlsx) as records: a sheet is a table whose first filled row is its header.

A workbook is an archive of XML written by strangers. Before the library sees it: the archive's own
limits (`binary_files.members_check`), and no part may declare a document type, which a workbook
never has and with which entities swell or reach for files. Memory and time are the sandbox's.
"""

import datetime
import itertools
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.parsers import expat

from openpyxl import load_workbook

from apps.labeling.formats.binary_files import members_check, reading
from apps.labeling.formats.records import FileLimits, FormatError, Header, Records

_MOST_ROWS = 1_048_576  # of a sheet, by its format
_MIDNIGHT = datetime.time()
_DIGITS = re.compile(r"0{2,}")


def sheets(path: Path, limits: FileLimits) -> list[str]:
    """Names of the sheets that have rows, in order. Raises FormatError where none has."""
    with _opened(path, limits) as book:
        found = [
            sheet.title
            for sheet in book.worksheets
            if len(list(itertools.islice(_filled(sheet, limits), 2))) == 2
        ]
    if not found:
        raise FormatError("No sheet of the workbook has a header and a row.")
    return found


def header(path: Path, sheet: str, limits: FileLimits) -> Header:
    with _opened(path, limits) as book:
        return Header.of(next(_filled(book[sheet], limits)), limits)


def rows(path: Path, sheet: str, limits: FileLimits) -> Records:
    """Records by column, as text; numbers count filled rows after the header."""
    with _opened(path, limits) as book:
        found = _filled(book[sheet], limits)
        names = Header.of(next(found), limits)
        for number, cells in enumerate(found, start=1):
            cells += [""] * (len(names.names) - len(cells))
            yield number, names.record(cells)


@contextmanager
def _opened(path: Path, limits: FileLimits) -> Iterator[Any]:
    with reading("Excel"):
        with zipfile.ZipFile(path) as archive:
            members_check(archive.infolist(), limits.decoded)
            for member in archive.infolist():
                if member.filename.endswith((".xml", ".rels")):
                    with archive.open(member) as part:
                        _no_document_type(part)
        with path.open("rb") as file:  # a path would be judged by its name
            yield load_workbook(file, read_only=True, data_only=True, keep_links=False)


def _no_document_type(part: Any) -> None:
    """Raises FormatError for a DOCTYPE; reads as far as the first element."""
    begun: list[str] = []
    parser = expat.ParserCreate()

    def doctype(*_: Any) -> None:
        raise FormatError("The workbook declares a document type, as none that Excel writes does.")

    parser.StartDoctypeDeclHandler = doctype
    parser.StartElementHandler = lambda name, _: begun.append(name)
    while not begun and (block := part.read(1 << 12)):
        parser.Parse(block)


def _filled(sheet: Any, limits: FileLimits) -> Iterator[list[str]]:
    """The cells of each row that has any, without the empty ones at its end."""
    sheet.reset_dimensions()  # what a file says of its own size may be a lie
    for place, row in enumerate(sheet.iter_rows(), start=1):
        if place > _MOST_ROWS:
            raise FormatError(f"A sheet has more than {_MOST_ROWS:,} rows.")
        cells = [_text(cell) for cell in row]
        while cells and not cells[-1].strip():
            cells.pop()
        if len(cells) > limits.columns:
            raise FormatError(
                f"It has {len(cells):,} columns; at most {limits.columns:,} are read."
            )
        if cells:
            yield cells


def _text(cell: Any) -> str:
    """What the sheet shows: dates without an empty time, whole numbers without a fraction, percent
    and leading zeros as formatted."""
    value = cell.value
    match value:
        case None:
            return ""
        case str():
            return value
        case bool():
            return "TRUE" if value else "FALSE"
        case datetime.datetime():
            return str(value.date()) if value.time() == _MIDNIGHT else value.isoformat(" ")
        case int() | float():
            return _number(value, cell.number_format or "")
    return str(value)


def _number(value: float, shown_as: str) -> str:
    sign = ""
    if shown_as.endswith("%"):
        value, sign = round(value * 100, 10), "%"
    text = str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(value)
    if _DIGITS.fullmatch(shown_as):
        text = text.zfill(len(shown_as))
    return text + sign

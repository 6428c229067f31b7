"""JSON, JSON Lines, CSV and other delimited text as records."""

import codecs
import csv
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from apps.labeling.formats.mapping import is_prompt
from apps.labeling.formats.records import (
    HALF,
    FileLimits,
    FormatError,
    Header,
    RecordFault,
    Records,
    is_half,
)

# CSV and its relatives: delimiter and encoding found from the content, quoted newlines kept.

DELIMITERS = ",;\t|"
# Python calls them encodings: of mail, of host names, of its own literals.
_NOT_OF_FILES = {"utf-7", "idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape"}
_SAMPLE = 256 * 1024  # characters the delimiter is judged by
_BLOCK = 1 << 20
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
csv.field_size_limit(10_000_000)  # characters of one cell; the import has its own, lower limit


def encoding_of(path: Path) -> str:
    """By byte-order mark; else UTF-8 when every byte fits it, else Windows-1252.

    Between UTF-8 and a one-byte encoding there is no doubt in practice: text with accents in the
    latter is not valid UTF-8. Which one-byte encoding it is cannot be told; Windows-1252 is the
    most common, and callers say that it was assumed.
    """
    with path.open("rb") as file:
        head = file.read(4)
        for mark, name in _BOMS:
            if head.startswith(mark):
                return name
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            decoder.decode(head)
            while block := file.read(_BLOCK):
                decoder.decode(block)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return "cp1252"
    return "utf-8"


def encoding_check(name: str) -> None:
    """Raises FormatError for a name that is no encoding of files."""
    try:
        known = codecs.lookup(name).name.replace("_", "-") not in _NOT_OF_FILES
        "".encode(name)
    except (LookupError, ValueError):
        known = False
    if not known:
        raise FormatError(f"There is no text encoding called {name[:40]!r}.")


def text_open(path: Path, encoding: str) -> IO[str]:
    """Newlines are left to the reader; bytes that the encoding lacks become U+FFFD."""
    return path.open(encoding=encoding, errors="replace", newline="")


def delimiter_of(path: Path, encoding: str) -> str:
    """The delimiter under which the first records have the most columns, and all the same.

    A single column is read where its heading is a name of prompts. Raises FormatError when else no
    delimiter gives a header of two columns.
    """
    with text_open(path, encoding) as file:
        sample = file.read(_SAMPLE)
        whole = not file.read(1)
    scores = {mark: _consistency(sample, mark, whole) for mark in DELIMITERS}
    best = max(scores, key=lambda mark: scores[mark])
    if scores[best] == (0.0, 0):
        if is_prompt(sample.split("\n", 1)[0].strip().strip('\ufeff"')):
            return ","
        raise FormatError(
            "This reads neither as JSON nor as a table: no delimiter (comma, semicolon, tab, bar) "
            "splits its first line into columns."
        )
    return best


def _consistency(sample: str, delimiter: str, whole: bool) -> tuple[float, int]:
    """(share of records as wide as the header, width); (0, 0) for fewer than two columns."""
    try:
        records = list(_lenient(sample, delimiter))
    except csv.Error:
        return 0.0, 0
    if len(records) > 1 and not whole:
        records.pop()  # cut off by the end of the sample
    if not records or len(records[0]) < 2:
        return 0.0, 0
    width = len(records[0])
    return sum(len(r) == width for r in records) / len(records), width


def _lenient(sample: str, delimiter: str) -> Iterator[list[str]]:
    reader = csv.reader(sample.splitlines(keepends=True), delimiter=delimiter)
    for record in itertools.islice(reader, 200):
        if record:
            yield record


def header(path: Path, encoding: str, delimiter: str, limits: FileLimits) -> Header:
    with text_open(path, encoding) as file:
        try:
            return Header.of(next(csv.reader(file, delimiter=delimiter), []), limits)
        except csv.Error as error:
            raise FormatError(f"The header cannot be read: {error}.") from None


def delimiter_check(delimiter: str) -> None:
    """Raises FormatError for what cannot stand between two cells."""
    if len(delimiter) != 1 or delimiter in '\x00\r\n"':
        raise FormatError(f"A delimiter is one character, not {delimiter[:20]!r}.")


def rows(path: Path, encoding: str, delimiter: str, limits: FileLimits) -> Records:
    """Records by column; numbers count records after the header."""
    names = header(path, encoding, delimiter, limits)
    with text_open(path, encoding) as file:
        reader = csv.reader(file, delimiter=delimiter, strict=True)
        next(reader)
        number = 0
        while True:
            try:
                record = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                message = f"cannot be read at line {reader.line_num}: {error}"
                yield number + 1, RecordFault("row", message)
                return  # where a quote went wrong, everything after it is guesswork
            if not record:
                continue
            number += 1
            yield number, names.record(record)


# JSON Lines and JSON arrays.

# Keys under which some exports wrap their list.
_WRAPPERS = ("data", "rows", "records", "examples", "train", "instances")
_BLOCK_CHARACTERS = 1 << 16  # characters
_LONGEST = 160_000_000  # characters of one element of a list
_BLANKS = " \t\r\n"
_DEEP = "it is nested too deeply"


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
            except RecursionError:
                yield number, RecordFault("row", f"is not read: {_DEEP}")
                continue
            except ValueError as error:
                yield number, RecordFault("row", f"is not JSON: {error}")
                continue
            # Only an escape can spell half a character: the file's own text has none.
            found = _object(value, escapes="\\u" in line)
            del line, value  # a long one is not held while its record is converted
            yield number, found


def array(path: Path, encoding: str) -> Records:
    """The objects of one list, a long one piece by piece. Raises FormatError where it is not JSON,
    or no list of objects."""
    with text_open(path, encoding) as file:
        try:
            for number, entry in enumerate(_entries(file), start=1):
                yield number, _object(entry)
        except RecursionError:
            raise FormatError(f"The file cannot be read: {_DEEP}.") from None
        except json.JSONDecodeError as error:
            raise FormatError(f"The file is not JSON: {error.msg}.") from None
        except FormatError:
            raise
        except ValueError as error:
            raise FormatError(f"The file is not JSON: {error}.") from None


def _entries(file: IO[str]) -> Iterator[Any]:
    """A list's elements one by one; an object is read whole, since its list may come last."""
    head = file.read(_BLOCK_CHARACTERS).lstrip("\ufeff" + _BLANKS)
    while not head and (block := file.read(_BLOCK_CHARACTERS)):
        head = block.lstrip(_BLANKS)
    if head[:1] == "[":
        yield from _Elements(file, head[1:])
    else:
        yield from _listed(json.loads(head + file.read()))


class _Elements:
    """The elements of a list whose opening bracket is read, without holding all of its text."""

    def __init__(self, file: IO[str], text: str) -> None:
        self._file, self._text, self._at, self._ended = file, text, 0, False
        self._decode = json.JSONDecoder().raw_decode

    def __iter__(self) -> Iterator[Any]:
        if self._sign() == "]":
            return self._end()
        while True:
            yield self._element()
            sign = self._sign()
            self._at += 1
            if sign == "]":
                self._at -= 1
                return self._end()
            if sign != ",":
                raise json.JSONDecodeError("Expecting ',' delimiter", self._text, self._at - 1)
            self._sign()

    def _element(self) -> Any:
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except json.JSONDecodeError:
                if not self._more():
                    raise
                continue
            # A number may go on in the next block.
            if end == len(self._text) and self._more():
                continue
            self._at = end
            return value

    def _sign(self) -> str:
        """The next character that is no blank, which stays; "" at the end."""
        while True:
            while self._at < len(self._text):
                if self._text[self._at] not in _BLANKS:
                    return self._text[self._at]
                self._at += 1
            if not self._more():
                return ""

    def _more(self) -> bool:
        """Read on, at least as much as is held, so that a long element is tried a few times."""
        rest = self._text[self._at :]
        if self._ended or len(rest) > _LONGEST:
            return False
        block = self._file.read(max(_BLOCK_CHARACTERS, len(rest)))
        self._ended = not block
        self._text, self._at = rest + block, 0
        return bool(block)

    def _end(self) -> None:
        self._at += 1
        if self._sign():
            raise json.JSONDecodeError("Extra data", self._text, self._at)


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, dict):
        raise FormatError("The file is JSON, but neither a list nor an object.")
    for key in _WRAPPERS:
        if isinstance(value.get(key), list):
            return value[key]
    if value and all(isinstance(column, list) for column in value.values()):
        return _from_columns(value)
    return [value]


def _from_columns(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """{"prompt": [...], "chosen": [...]} as rows."""
    lengths = {len(column) for column in columns.values()}
    if len(lengths) != 1:
        raise FormatError("The file is an object of lists that differ in length.")
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _object(value: Any, *, escapes: bool = True) -> dict[str, Any] | RecordFault:
    if not isinstance(value, dict):
        return RecordFault("row", "is not an object with fields")
    if not escapes:
        return value
    try:
        half = any(map(is_half, _texts_in(value)))
    except RecursionError:
        return RecordFault("row", f"is not read: {_DEEP}")
    return RecordFault("row", HALF) if half else value


def _texts_in(value: Any) -> Iterator[str]:
    """Every text of a JSON value, keys too. A long row is not written out again for this."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from _texts_in(one)
    elif isinstance(value, dict):
        for key, one in value.items():
            yield key
            yield from _texts_in(one)

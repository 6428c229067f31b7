"""JSON Lines and JSON arrays."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from apps.labeling.formats.delimited import HALF, text_open
from apps.labeling.formats.records import FormatError, RecordFault, Records

# Keys under which some exports wrap their list.
_WRAPPERS = ("data", "rows", "records", "examples", "train", "instances")
_BLOCK = 1 << 16  # characters
_LONGEST = 16_000_000  # characters of one element of a list
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
            yield number, _object(value, escapes="\\u" in line)


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
    head = file.read(_BLOCK).lstrip("\ufeff" + _BLANKS)
    while not head and (block := file.read(_BLOCK)):
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
        held = self._text[self._at :]
        if self._ended or len(held) > _LONGEST:
            return False
        block = self._file.read(max(_BLOCK, len(held)))
        self._ended = not block
        self._text, self._at = held + block, 0
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
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return RecordFault("row", HALF)
    except RecursionError:
        return RecordFault("row", f"is not read: {_DEEP}")
    return value

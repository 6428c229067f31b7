"""What readers and layouts hand on, and how they say that something is wrong."""

import errno
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Record = Mapping[str, Any]
MOST_SWELLING = 200  # unpacked ÷ packed, for files and members over a megabyte
LONGEST_NAME = 300  # characters of a column's name


@dataclass(frozen=True, slots=True)
class FileLimits:
    """How wide a file may be, and how many bytes it may unpack to."""

    columns: int = 500
    decoded: int = 2_000_000_000


class FormatError(ValueError):
    """A file, or a choice about it, that cannot be read at all; the text says why."""


def columns_check(names: list[str] | tuple[str, ...], limits: FileLimits) -> None:
    """Raises FormatError for more columns than anybody maps, or a name that is a text."""
    if len(names) > limits.columns:
        raise FormatError(f"It has {len(names):,} columns; at most {limits.columns:,} are read.")
    if any(len(name) > LONGEST_NAME for name in names):
        raise FormatError(f"A column's name has more than {LONGEST_NAME} characters.")


def of_the_machine(error: Exception) -> bool:
    """Whether an error says that disk or memory ran out, rather than that the file is damaged."""
    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in full)


@dataclass(frozen=True, slots=True)
class RecordFault:
    """One record that cannot be read, where the others can."""

    field: str
    message: str


# A record's number in its file, from 1, and the record or what is wrong with it.
Numbered = tuple[int, Record | RecordFault]
Records = Iterator[Numbered]


class BadValue(ValueError):
    """A value that does not fit its field; becomes a `RecordFault`."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.field, self.message = name, message


@dataclass(frozen=True, slots=True)
class Converted:
    """What one record amounts to: a comparison with past votes on it, or what is wrong.

    row: the record's number in its file; several comparisons may come from one record.
    comparison: fields of `services.comparisons_import`. votes: rows of `services.votes_import`.
    """

    row: int
    comparison: dict[str, Any] | None = None
    votes: list[dict[str, Any]] = field(default_factory=list)
    fault: RecordFault | None = None

"""What readers and layouts hand on, and how they say that something is wrong."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Record = Mapping[str, Any]


class FormatError(ValueError):
    """A file, or a choice about it, that cannot be read at all; the text says why."""


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

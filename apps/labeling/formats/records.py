"""What readers and layouts hand on, and how they say that something is wrong."""

import errno
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

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


@dataclass(frozen=True, slots=True)
class Header:
    """The columns of a table. One without a name, in between, is called by its place (`made_up`);
    it counts only where a row has a value in it."""

    names: tuple[str, ...]
    made_up: frozenset[str]

    @classmethod
    def of(cls, cells: Sequence[str], limits: FileLimits) -> "Header":
        """Without the empty columns that spreadsheets leave at the end. Raises FormatError for too
        many names, or a doubled one."""
        given = [cell.strip().lstrip("\ufeff") for cell in cells]
        while given and not given[-1]:
            given.pop()
        if not given:
            raise FormatError("The file is empty.")
        names = [name or f"column {place}" for place, name in enumerate(given, start=1)]
        columns_check(names, limits)
        doubled = next((name for name, n in Counter(names).items() if n > 1), None)
        if doubled is not None:
            raise FormatError(f"The header names the column {doubled!r} twice.")
        return cls(tuple(names), frozenset(set(names) - set(given)))

    def record(self, cells: list[str]) -> "Record | RecordFault":
        """A row by column; an empty cell is an empty text."""
        if not any(cell.strip() for cell in cells[len(self.names) :]):
            del cells[len(self.names) :]
        if len(cells) != len(self.names):
            said = f"has {len(cells)} columns where the header has {len(self.names)}"
            return RecordFault("row", said)
        if any(is_half(cell) for cell in cells):
            return RecordFault("row", HALF)
        pairs = zip(self.names, cells, strict=True)
        return {name: cell for name, cell in pairs if cell or name not in self.made_up}


HALF = "holds half a character (a lone surrogate, such as \\ud800)"
_HALF = re.compile("[\ud800-\udfff]")


def is_half(text: str) -> bool:
    """Whether a text holds a lone surrogate, which no UTF-8 can say."""
    return not text.isascii() and _HALF.search(text) is not None


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
    comparison: fields of `services.comparisons_import`, or of `services.task_rows.tasks_import`
    where answers are to be ranked or graded together. votes: rows of `services.votes_import`.
    """

    row: int
    comparison: dict[str, Any] | None = None
    votes: list[dict[str, Any]] = field(default_factory=list)
    fault: RecordFault | None = None


# Values as other tools write them, turned into ours: choices, numbers; messages are in
# `conversations`.

_A = {"a", "left", "1", "first", "model_a", "response_a", "answer_a", "a_is_better", "option_a"}
_B = {"b", "right", "2", "second", "model_b", "response_b", "answer_b", "b_is_better", "option_b"}
_TIE = {"tie", "equal", "same", "draw", "tied", "both", "both_good", "no_preference", "similar"}
_BAD = {"both_bad", "bothbad", "tie_bothbad", "neither", "none", "both_are_bad", "tie_both_bad"}


def folded(value: Any) -> str:
    """A name without case, blanks and punctuation: `Response 1` and `response-1` are one."""
    text = "".join(c if c.isalnum() else "_" for c in str(value).strip().casefold())
    return "_".join(part for part in text.split("_") if part)


def choice_from(value: Any, *, a: Sequence[str] = (), b: Sequence[str] = ()) -> str:
    """a, b, tie or both_bad; `a` and `b` are further names of the two. Raises BadValue.

    A Label Studio choice may come as a list of one.
    """
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 1:
        value = value[0]
    word = folded(value)
    if word in {folded(name) for name in a if name}:
        return "a"
    if word in {folded(name) for name in b if name}:
        return "b"
    for choice, words in (("a", _A), ("b", _B), ("tie", _TIE), ("both_bad", _BAD)):
        if word in words:
            return choice
    raise BadValue("choice", f"{str(value)[:60]!r} says neither of the two, tie or both bad")


def number_from(value: Any) -> Any:
    """A number that a spreadsheet holds as text; what is no number is handed back."""
    if not isinstance(value, str):
        return value
    try:
        return int(value)
    except ValueError:
        try:
            return float(value.replace(",", ".") if "." not in value else value)
        except ValueError:
            return value


def object_from(value: Any) -> Any:
    """An object that a column holds as JSON text; anything else is returned unchanged."""
    return _json(value) if isinstance(value, str) else value


def _json(text: str) -> Any:
    """What a cell says in JSON; the text itself where that is none, or cannot be stored."""
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return text
    return value


def is_blank(value: Any) -> bool:
    """Nothing there: null, an empty text or list."""
    return value is None or (isinstance(value, str | list) and not value)


# The choices an importer makes about a file; all have defaults that fit a plain file.

# Fields of a comparison that a column may fill, beside what its layout is made of.
COMMON = (
    "id",
    "group",
    "topic",
    "language",
    "source",
    "licence",
    "stratum",
    "priority",
    "overlap",
    "explanation",
    "metadata",
    "tools",
)
# Fields that may have one value for every row.
_CONSTANT_OF_DATASETS = ("category", "split")
CONSTANT = ("prompt", "model_a", "model_b", "topic", "language", "source", "licence")

_LISTED = 40  # columns that a refusal names

MOST_POINTS = 11  # of a scale, such as 0 to 10
TOGETHER = {
    "rank": "one ranking of all answers",
    "grade": "one grading of all answers",
}
PAIRINGS = {
    "all": "every pair of a prompt's answers",
    "best_random": "the best-rated answer with one of the others, drawn by hash",
    "best_worst": "the best-rated answer with the worst-rated",
    "random": "one pair for each prompt, drawn by hash",
    **TOGETHER,
}


@dataclass(frozen=True, slots=True)
class Options:
    """mapping: field to column; what is not named is guessed, "" leaves a field out.

    constants: field to the value that every row gets where its column has none. pairing: how N
    answers become pairs, or one task to rank or grade, with the ends of its scale and what they
    are called. preference: keep what the file prefers as a published label. votes: bring
    past votes in. rest: what becomes of columns that fill no field. seed: of every draw by hash.
    """

    mapping: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, str] = field(default_factory=dict)
    pairing: Literal["all", "best_random", "best_worst", "random", "rank", "grade"] = "all"
    grade_low: int = 1
    grade_high: int = 7
    grade_low_label: str = ""
    grade_high_label: str = ""
    preference: bool = True
    votes: bool = True
    rest: Literal["metadata", "drop"] = "metadata"
    seed: int = 0


def bad_mapping(
    options: Options, *, fields: Iterable[str], columns: Iterable[str]
) -> tuple[str, str] | None:
    """(field, what is wrong) of the first entry that names no field or no column."""
    fields, columns = dict.fromkeys(fields), dict.fromkeys(columns)
    for name, column in options.mapping.items():
        if name not in fields:
            return name, f"is not a field of this layout; its fields are {', '.join(fields)}"
        if column and column not in columns:
            some = ", ".join(itertools.islice(columns, _LISTED))
            more = " …" if len(columns) > _LISTED else ""
            return name, f"there is no column {column[:300]!r}; there are {some}{more}"
    allowed = (*CONSTANT, *(name for name in _CONSTANT_OF_DATASETS if name in fields))
    for name in options.constants:
        if name not in allowed:
            return name, f"cannot have one value for all rows; {', '.join(allowed)} can"
    if options.pairing not in PAIRINGS:
        return "pairing", f"is {options.pairing!r}; one of {', '.join(PAIRINGS)} is expected"
    for name in ("grade_low", "grade_high"):
        if type(getattr(options, name)) is not int:
            return name, "is no whole number"
    if not options.grade_low < options.grade_high < options.grade_low + MOST_POINTS:
        return (
            "grade_high",
            f"must be larger than grade_low; a scale has at most {MOST_POINTS} points",
        )
    return None

"""The choices an importer makes about a file; all have defaults that fit a plain file."""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

# Fields of a comparison that a column may fill, beside what its layout is made of.
COMMON = (
    "id", "group", "topic", "language", "source", "licence", "stratum", "priority", "overlap",
    "explanation", "metadata",
)  # fmt: skip
# Fields that may have one value for every row.
CONSTANT = ("prompt", "topic", "language", "source", "licence")

_LISTED = 40  # columns that a refusal names

PAIRINGS = {
    "all": "every pair of a prompt's answers",
    "best_random": "the best-rated answer with one of the others, drawn by hash",
    "best_worst": "the best-rated answer with the worst-rated",
    "random": "one pair for each prompt, drawn by hash",
}


@dataclass(frozen=True, slots=True)
class Options:
    """mapping: field to column; what is not named is guessed, "" leaves a field out.

    constants: field to the value that every row gets where its column has none. pairing: how N
    answers become pairs. preference: keep what the file prefers as a published label. votes: bring
    past votes in. rest: what becomes of columns that fill no field. seed: of every draw by hash.
    """

    mapping: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, str] = field(default_factory=dict)
    pairing: Literal["all", "best_random", "best_worst", "random"] = "all"
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
    for name in options.constants:
        if name not in CONSTANT:
            return name, f"cannot have one value for all rows; {', '.join(CONSTANT)} can"
    if options.pairing not in PAIRINGS:
        return "pairing", f"is {options.pairing!r}; one of {', '.join(PAIRINGS)} is expected"
    return None

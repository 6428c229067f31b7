"""Rows from elsewhere: checked, brought into the form of the files, and split.

What stays together on one side of a split is a unit: rows of one group (without a group, of one
prompt), and rows whose prompts are near-duplicates. A unit's place is the hash of its first group,
by the seed and the edges that preferences are frozen with: a prompt that one dataset holds out,
another by the same shares does not train on.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from apps.common.errors import DomainError
from apps.labeling.texts import BadMessages, Messages, loose_key, messages_from
from apps.snapshots.assembling.rows import Row, demonstration_row, prompt_row, prompt_text
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import DEV, HELDOUT_GROUPS, PUBLIC_TEST, SMOKE, TRAIN, in_order
from measures.bootstrap import LEAST_UNITS
from measures.duplicates import near_duplicates
from measures.splits import split_of, unit_hash

SEED = "concord"  # as recipes of preferences have it
# Their edges too, with what preferences keep private in the public test.
SHARES = {TRAIN: 0.8, DEV: 0.1, PUBLIC_TEST: 0.1}
BY_HASH, NAMED = "hash", "rows"  # how the rows were split
_SPLIT_NAMES = {
    **{name: name for name in (TRAIN, SMOKE, DEV, PUBLIC_TEST, HELDOUT_GROUPS)},
    "validation": DEV,
    "valid": DEV,
    "test": PUBLIC_TEST,
}
_ABOUT = ("group", "source", "licence", "id", "metadata", "split")
COLUMNS: Mapping[str, tuple[str, ...]] = {
    Snapshot.Kind.PROMPTS: ("prompt", "answer", *_ABOUT),
    Snapshot.Kind.DEMONSTRATIONS: ("prompt", "response", "messages", *_ABOUT),
}


@dataclass(frozen=True, slots=True)
class Given:
    """A row in the form of the files, its number where it comes from, and the split it names."""

    number: int
    row: Row
    split: str

    @property
    def prompt(self) -> Messages:
        return self.row["prompt"] if "prompt" in self.row else self.row["messages"][:-1]


@dataclass(frozen=True, slots=True)
class Placed:
    """Rows by split, in order; units by split, and what is to be said about them."""

    files: Mapping[str, list[Row]]
    units: Mapping[str, int]
    by: str
    warnings: tuple[str, ...]


def parse_rows(kind: str, rows: Iterable[Mapping[str, Any]]) -> tuple[list[Given], int]:
    """(rows in file form, how many repeated an earlier one). `DomainError` names row and field."""
    parse = _demonstration if kind == Snapshot.Kind.DEMONSTRATIONS else _prompt
    seen: dict[str, Any] = {}
    parsed, repeated = [], 0
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            raise DomainError(f"Row {number} is no object.", code="bad_row", row=number)
        for name in row:
            if name not in COLUMNS[kind]:
                known = ", ".join(COLUMNS[kind])
                raise _bad(number, str(name)[:80], f"is no column of {kind}; there are {known}")
        clean, split = parse(row, number), _split(row, number)
        key = json.dumps(clean.get("messages") or clean["prompt"], sort_keys=True)
        said = (clean.get("answer"), split)
        if key in seen:
            if said != seen[key]:
                name = "split" if said[0] == seen[key][0] else "answer"
                raise _bad(number, name, "differs from that of an earlier row that asks the same")
            repeated += 1
            continue
        seen[key] = said
        parsed.append(Given(number, clean, split))
    if not parsed:
        raise DomainError("There are no rows to import.", code="empty_snapshot", field="rows")
    return parsed, repeated


def _demonstration(row: Mapping[str, Any], number: int) -> Row:
    if "messages" in row:
        messages = _messages(row, "messages", number, role="user")
        if len(messages) < 2 or messages[-1]["role"] != "assistant":
            raise _bad(number, "messages", "must ask something and end with the assistant's answer")
        return demonstration_row(messages[:-1], messages[-1]["content"], _about(row, number))
    answer = _messages(row, "response", number, role="assistant")
    if len(answer) != 1 or answer[0]["role"] != "assistant":
        raise _bad(number, "response", "must be one answer of the assistant")
    return demonstration_row(_asked(row, number), answer[0]["content"], _about(row, number))


def _prompt(row: Mapping[str, Any], number: int) -> Row:
    answer = row.get("answer")
    items = answer if isinstance(answer, list) else [answer]
    if not all(item is None or isinstance(item, str | int | float) for item in items):
        raise _bad(number, "answer", "must be a text, a number or a list of them")
    return prompt_row(_asked(row, number), _about(row, number))


def _asked(row: Mapping[str, Any], number: int) -> Messages:
    messages = _messages(row, "prompt", number, role="user")
    if messages[-1]["role"] != "user":
        raise _bad(number, "prompt", "must end with a message of the user")
    return messages


def _messages(row: Mapping[str, Any], name: str, number: int, *, role: str) -> Messages:
    try:
        messages = messages_from(row.get(name), role=role)
    except BadMessages as error:
        raise _bad(number, name, str(error)) from error
    if not messages[-1]["content"].strip():
        raise _bad(number, name, "is empty")
    return messages


def _about(row: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    for name in ("group", "source", "licence"):
        if not isinstance(row.get(name) or "", str):
            raise _bad(number, name, "must be text")
    return row


def _split(row: Mapping[str, Any], number: int) -> str:
    given = row.get("split") or ""
    name = _SPLIT_NAMES.get(given, "") if isinstance(given, str) else ""
    if given and not name:
        raise _bad(number, "split", f"must be one of {', '.join(_SPLIT_NAMES)}")
    return name


def _bad(number: int, name: str, what: str) -> DomainError:
    return DomainError(f"Row {number}: {name} {what}.", code="bad_row", row=number, field=name)


# Which rows are held out.


def place_rows(given: Sequence[Given]) -> Placed:
    """By the split that every row names, else by hash. Where the rows hold nothing out, a share of
    the units is held out by hash, at least one of two.

    `DomainError` (bad_row, field split) for a row without a split where others name one, and where
    a prompt is named on both sides, or nearly.
    """
    units = _units(given)
    named = {one.split for one in given} - {""}
    if named - {TRAIN}:
        splits, by, warnings = _as_named(given, units), NAMED, ()
    else:
        splits, warnings = _by_hash(given, units)
        by = BY_HASH
    files: dict[str, list[Row]] = {}
    of_split: dict[str, set[int]] = {}
    for one, unit, split in zip(given, units, splits, strict=True):
        files.setdefault(split, []).append(one.row)
        of_split.setdefault(split, set()).add(unit)
    counts = {name: len(of) for name, of in of_split.items()}
    return Placed(in_order(files), in_order(counts), by, (*warnings, *_about_size(counts)))


def _units(given: Sequence[Given]) -> list[int]:
    """The unit of each row."""
    texts: dict[str, int] = {}  # distinct prompts, which may recur in thousands of rows
    text_of = [texts.setdefault(prompt_text(one.prompt), len(texts)) for one in given]
    family = near_duplicates(list(texts)).family[text_of]
    groups: dict[str, int] = {}
    group_of = [groups.setdefault(_group(one), len(groups)) for one in given]
    n = len(texts)  # families are the first n nodes, groups the rest
    ties = (np.ones(len(given)), (family, np.asarray(group_of) + n))
    _, label = connected_components(
        sparse.coo_matrix(ties, shape=(n + len(groups),) * 2), directed=False
    )
    return [int(unit) for unit in label[family]]


def _group(one: Given) -> str:
    return one.row["group"] or loose_key(one.prompt)


def _as_named(given: Sequence[Given], units: Sequence[int]) -> list[str]:
    first: dict[tuple[int, bool], Given] = {}
    for one, unit in zip(given, units, strict=True):
        if not one.split:
            raise _bad(one.number, "split", "is empty, but other rows name theirs")
        other = first.get((unit, one.split != TRAIN))
        if other is not None:
            raise _bad(
                one.number,
                "split",
                f"is {one.split}, but row {other.number}, of the same group or with nearly the "
                f"same prompt, is in {other.split}",
            )
        first.setdefault((unit, one.split == TRAIN), one)
    return [one.split for one in given]


def _by_hash(given: Sequence[Given], units: Sequence[int]) -> tuple[list[str], tuple[str, ...]]:
    keys: dict[int, str] = {}
    for one, unit in zip(given, units, strict=True):
        key = _group(one)
        keys[unit] = min(key, keys.get(unit, key))
    if len(keys) == 1:
        return [TRAIN] * len(given), (
            "All rows are of one group, or their prompts are near-duplicates of each other, so "
            "none is held out. Evaluation, PPO and GRPO take no such dataset as prompts.",
        )
    split = {unit: split_of(key, SHARES, SEED) for unit, key in keys.items()}
    by_place = sorted(keys, key=lambda unit: unit_hash(keys[unit], SEED))
    if all(name == TRAIN for name in split.values()):
        split[by_place[-1]] = DEV
    if TRAIN not in split.values():
        split[by_place[0]] = TRAIN
    return [split[unit] for unit in units], ()


def _about_size(units: Mapping[str, int]) -> tuple[str, ...]:
    n = Counter(units)
    held_out = n.total() - n[TRAIN]
    if not 0 < held_out < LEAST_UNITS:
        return ()
    return (
        f"Only {held_out} group{'s are' if held_out > 1 else ' is'} held out: under {LEAST_UNITS} "
        "there is no interval over groups.",
    )

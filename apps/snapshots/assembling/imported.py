"""Rows from elsewhere: checked, brought into the form of the files, and split.

What stays together on one side of a split is a unit: rows of one group (without a group, of one
prompt), and rows whose prompts are near-duplicates. A unit's place is the hash of its first group,
by the seed and the edges that preferences are frozen with: a prompt that one dataset holds out,
another by the same shares does not train on.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from apps.common.errors import DomainError
from apps.labeling.texts import BadMessages, loose_key, messages_from, tools_from
from apps.snapshots.assembling.rows import (
    Row,
    argument_key,
    demonstration_row,
    own_columns,
    prompt_row,
    prompt_text,
    stepwise_row,
    tools_json,
)
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import DEV, HELDOUT_GROUPS, PUBLIC_TEST, SMOKE, TRAIN, half_of, in_order
from measures.bootstrap import LEAST_UNITS
from measures.duplicates import near_families
from measures.messages import Messages, said
from measures.splits import split_of, unit_hash
from workers.config.suites import read_check

_TELL_EVERY = 500
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
    Snapshot.Kind.PROMPTS: ("prompt", "answer", "check", *_ABOUT),
    Snapshot.Kind.DEMONSTRATIONS: ("prompt", "response", "messages", "tools", *_ABOUT),
    Snapshot.Kind.UNPAIRED: ("prompt", "completion", "label", "tools", *_ABOUT),
    Snapshot.Kind.STEPWISE: ("prompt", "completions", "labels", "roles", *_ABOUT),
}
LONGEST_CATEGORY = 80
STEP_ROLES = ("assistant", "tool", "user")  # who a step may be of
OTHER_HALF = "in the other half of the prompts"
NO_PREFERENCE = "neither answer is preferred"
REPEATS = "repeats an earlier row"
_YES = frozenset({"true", "yes", "1", "1.0", "good", "desirable", "up", "chosen"})
_NO = frozenset({"false", "no", "0", "0.0", "-1", "bad", "undesirable", "down", "rejected"})


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

    files: Mapping[str, list[Given]]
    units: Mapping[str, int]
    by: str
    warnings: tuple[str, ...]


@dataclass(slots=True)
class Parsed:
    """Rows in the form of the files, how many were left out by reason, and what is wrong with the
    others."""

    rows: list[Given] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    refused: list[DomainError] = field(default_factory=list)


def parse_rows(
    kind: str,
    rows: Iterable[Mapping[str, Any]],
    *,
    numbers: Sequence[int] | None = None,
    tell: Callable[[int], None] | None = None,
) -> Parsed:
    """numbers: what rows are called, where that is not their place. tell: told every few hundred
    rows how many are done."""
    found, seen = Parsed(), {}
    for place, row in enumerate(rows, start=1):
        if tell and place % _TELL_EVERY == 0:
            tell(place)
        try:
            _add(found, seen, kind, row, numbers[place - 1] if numbers else place)
        except DomainError as error:
            found.refused.append(error)
    return found


def _add(found: Parsed, seen: dict[str, Any], kind: str, row: Any, number: int) -> None:
    if not isinstance(row, Mapping):
        raise DomainError(
            f"Row {number} is no object.", code="bad_row", row=number, details="is no object"
        )
    for name in row:
        if kind in COLUMNS and name not in COLUMNS[kind]:
            known = ", ".join(COLUMNS[kind])
            raise bad_row(number, str(name)[:80], f"is no column of {kind}; there are {known}")
    clean, split = _PARSERS[kind](row, number), _split(row, number)
    if clean is None:
        found.dropped[NO_PREFERENCE] += 1
        return
    told = ("messages", "prompt", "completion", "completions", "chosen", "rejected")
    key = json.dumps([clean.get(name) for name in told])
    said = (clean.get("answer") or clean.get("label") or clean.get("labels"), split)
    if kind == Snapshot.Kind.STEPWISE:
        _check_scale(row["labels"], seen, number)
    if key in seen:
        if said != seen[key]:
            name = next((one for one in ("label", "labels") if one in clean), "answer")
            name = "split" if said[0] == seen[key][0] else name
            raise bad_row(number, name, "differs from that of an earlier row that asks the same")
        found.dropped[REPEATS] += 1
        return
    seen[key] = said
    found.rows.append(Given(number, clean, split))


def _demonstration(row: Mapping[str, Any], number: int) -> Row:
    if "messages" in row:
        messages = messages_at(row, "messages", number, role="user")
        if len(messages) < 2 or messages[-1]["role"] != "assistant":
            raise bad_row(
                number, "messages", "must ask something and end with the assistant's answer"
            )
        made = demonstration_row(messages[:-1], messages[-1]["content"], _about(row, number))
        return made | {"messages": messages} | offered_at(row, number)
    answer = messages_at(row, "response", number, role="assistant")
    if len(answer) != 1 or answer[0]["role"] != "assistant" or len(answer[0]) > 2:
        raise bad_row(number, "response", "must be one answer of the assistant")
    return demonstration_row(asked_at(row, number), answer[0]["content"], _about(row, number))


def _prompt(row: Mapping[str, Any], number: int) -> Row:
    answer = row.get("answer")
    items = answer if isinstance(answer, list) else [answer]
    if not all(item is None or isinstance(item, str | int | float) for item in items):
        raise bad_row(number, "answer", "must be a text, a number or a list of them")
    if row.get("check"):
        try:
            read_check(row["check"], answer=answer)
        except ValueError as error:
            raise bad_row(number, "check", str(error)) from None
    return prompt_row(asked_at(row, number), _about(row, number))


def _stepwise(row: Mapping[str, Any], number: int) -> Row:
    """Steps are texts, or messages that say who each is of; or `roles` does. Labels are true or
    false, 1 or 0 or −1, or null for a step that nobody marked; only the assistant's are learnt."""
    given = _listed(row, "completions", number)
    labels = [_right(one, number) for one in _listed(row, "labels", number)]
    if not given or len(labels) != len(given):
        raise bad_row(number, "labels", f"has {len(labels)} labels for {len(given)} steps")
    roles = _listed(row, "roles", number) if row.get("roles") else [None] * len(given)
    if len(roles) != len(given):
        raise bad_row(number, "roles", f"has {len(roles)} roles for {len(given)} steps")
    steps = [_step(*one, number) for one in zip(given, roles, strict=True)]
    own = [y if role == "assistant" else None for y, (_, role) in zip(labels, steps, strict=True)]
    if all(label is None for label in own):
        raise bad_row(number, "labels", "marks no step of the assistant")
    return stepwise_row(
        asked_at(row, number),
        [text for text, _ in steps],
        [role for _, role in steps],
        own,
        _about(row, number),
    )


def _check_scale(labels: Any, seen: dict[str, Any], number: int) -> None:
    """In files with −1 a 0 is a step that is neither right nor wrong, and in others a wrong one:
    one file cannot mean both."""
    words = {
        str(one).strip() for one in (json.loads(labels) if isinstance(labels, str) else labels)
    }
    rows = seen.setdefault("which row has", {})
    for word in words & {"0", "-1"}:
        rows.setdefault(word, number)
    if len(rows) == 2:
        places = f"rows {min(rows.values())} and {max(rows.values())}"
        told = f"holds 0 and −1 ({places}): write null for a step that is neither right nor wrong"
        raise bad_row(number, "labels", told)


def _listed(row: Mapping[str, Any], name: str, number: int) -> list[Any]:
    """A list, or the JSON of one, as a cell of a table has it."""
    given = row.get(name)
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            given = None
    if not isinstance(given, list):
        raise bad_row(number, name, "must be a list")
    return given


def _right(label: Any, number: int) -> bool | None:
    if label is None:
        return None
    word = str(label).strip().casefold()
    if word not in _YES | _NO:
        raise bad_row(number, "labels", "must hold true, false or null (or 1, 0, −1)")
    return word in _YES


def _step(given: Any, role: Any, number: int) -> tuple[str, str]:
    text = given
    if isinstance(given, Mapping):
        text, role = given.get("content"), given.get("role")
    if not isinstance(text, str) or not text.strip():
        raise bad_row(number, "completions", "must hold texts, or messages with a content")
    role = role or "assistant"
    if role not in STEP_ROLES:
        raise bad_row(number, "roles", f"must each be one of {', '.join(STEP_ROLES)}")
    return text, str(role)


def _unpaired(row: Mapping[str, Any], number: int) -> Row:
    answer = messages_at(row, "completion", number, role="assistant")
    ends_with_answer(answer, "completion", number)
    word = str(row.get("label")).strip().casefold()
    if word not in _YES | _NO:
        raise bad_row(number, "label", "must be true or false")
    side = {"completion": answer, "label": word in _YES}
    return unvoted_row(row, number, _begun_at(row, number), side)


def _preference(row: Mapping[str, Any], number: int) -> Row | None:
    """A comparison as files have them (`labeling.formats`): its label says which answer is chosen,
    else its scores do. None where neither is preferred."""
    sides = {name: messages_at(row, f"response_{name}", number, role="assistant") for name in "ab"}
    for name, answer in sides.items():
        ends_with_answer(answer, f"response_{name}", number)
    scores = [_score(row.get(f"metadata_{name}")) for name in "ab"]
    won = row.get("gold")
    if not won:
        a, b = scores
        if a is None or b is None:
            raise bad_row(number, "gold", "is missing, and so are scores: no answer is preferred")
        won = "tie" if a == b else "a" if a > b else "b"
    if won not in ("a", "b"):
        return None
    lost = "b" if won == "a" else "a"
    if sides[won] == sides[lost]:
        raise bad_row(number, f"response_{lost}", "is the same text as the other answer")
    by_side = dict(zip("ab", scores, strict=True))
    score = {
        f"{name}_score": by_side[side]
        for name, side in (("chosen", won), ("rejected", lost))
        if by_side[side] is not None
    }
    said = {"chosen": sides[won], "rejected": sides[lost]}
    made = unvoted_row(row, number, _begun_at(row, number), said, more=score)
    made |= {"chosen_side": won}
    made |= _category(row, number)
    models = [str(row.get(f"model_{side}") or "") for side in (won, lost)]
    return made | {"sources": models}


def _category(row: Mapping[str, Any], number: int) -> Row:
    """What the row is reported under; rows of one category need not stay together."""
    given = row.get("category")
    if given is None or given == "":
        return {}
    if not isinstance(given, str | int) or isinstance(given, bool):
        raise bad_row(number, "category", "must be a text")
    name = str(given).strip()
    if not 1 <= len(name) <= LONGEST_CATEGORY:
        raise bad_row(number, "category", f"must be a text of 1 to {LONGEST_CATEGORY} characters")
    return {"category": name}


def ends_with_answer(messages: Messages, name: str, number: int) -> None:
    """The run of an agent may also end with the result of a tool."""
    if messages[-1]["role"] not in ("assistant", "tool"):
        raise bad_row(number, name, "must end with a message of the assistant")


def offered_at(row: Mapping[str, Any], number: int) -> Row:
    """The column `tools` of a row that has any."""
    if not row.get("tools"):
        return {}
    try:
        return {"tools": tools_json(tools_from(row["tools"]))}
    except BadMessages as error:
        raise bad_row(number, "tools", str(error)) from error


def _score(about: Any) -> float | None:
    given = (about or {}).get("score", (about or {}).get("rating"))
    try:
        score = float(given)
    except (TypeError, ValueError):
        return None
    return score if math.isfinite(score) else None


def unvoted_row(
    row: Mapping[str, Any],
    number: int,
    prompt: Messages,
    answers: Mapping[str, Any],
    more: Mapping[str, Any] | None = None,
) -> Row:
    """Columns as rows of votes have them, with no vote behind."""
    about = _about(row, number).get("metadata") or {}
    if not isinstance(about, Mapping):
        raise bad_row(number, "metadata", "must be an object")
    group = row.get("group") or row.get("topic") or loose_key(prompt)
    return {
        "prompt": prompt,
        **answers,
        **offered_at(row, number),
        "weight": 1.0,
        "confidence": 1.0,
        "votes": 0,
        "group": group,
        "cluster": group,
        "source": str(row.get("source") or ""),
        "licence": str(row.get("licence") or ""),
        "comparison": "",
        **own_columns(row.get("id"), {**about, **(more or {})}),
        "annotator": "",
    }


_PARSERS: Mapping[str, Callable[[Mapping[str, Any], int], Row | None]] = {
    Snapshot.Kind.PROMPTS: _prompt,
    Snapshot.Kind.DEMONSTRATIONS: _demonstration,
    Snapshot.Kind.PREFERENCES: _preference,
    Snapshot.Kind.UNPAIRED: _unpaired,
    Snapshot.Kind.STEPWISE: _stepwise,
}


def asked_at(row: Mapping[str, Any], number: int) -> Messages:
    messages = messages_at(row, "prompt", number, role="user")
    if messages[-1]["role"] != "user":
        raise bad_row(number, "prompt", "must end with a message of the user")
    return messages


def _begun_at(row: Mapping[str, Any], number: int) -> Messages:
    """What both answers of a pair begin with; of runs of an agent that may end with a result."""
    messages = messages_at(row, "prompt", number, role="user")
    if messages[-1]["role"] not in ("user", "tool"):
        raise bad_row(number, "prompt", "must end with a message of the user")
    return messages


def messages_at(row: Mapping[str, Any], name: str, number: int, *, role: str) -> Messages:
    if row.get(name) is None:
        raise bad_row(number, name, "is missing")
    try:
        messages = messages_from(row[name], role=role)
    except BadMessages as error:
        raise bad_row(number, name, str(error)) from error
    if not said(messages[-1]).strip():
        raise bad_row(number, name, "is empty")
    return messages


def _about(row: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    for name in ("group", "topic", "source", "licence"):
        if not isinstance(row.get(name) or "", str):
            raise bad_row(number, name, "must be text")
    return row


def _split(row: Mapping[str, Any], number: int) -> str:
    given = row.get("split") or ""
    name = _SPLIT_NAMES.get(given, "") if isinstance(given, str) else ""
    if given and not name:
        raise bad_row(number, "split", f"must be one of {', '.join(_SPLIT_NAMES)}")
    return name


def bad_row(number: int, name: str, what: str) -> DomainError:
    return DomainError(
        f"Row {number}: {name} {what}.", code="bad_row", row=number, field=name, details=what
    )


# Which rows are held out.


def place_rows(parsed: Parsed, *, half: str = "") -> Placed:
    """By the split that every row names, else by hash. Where the rows hold nothing out, a share of
    the units is held out by hash, at least one of two.

    Rows without a split where others name one, and of units that are named on both sides, are added
    to what is refused. `half` (first, second) leaves the units of the other half out, by another
    hash: of one file a reward model then learns from other prompts than its judge.
    """
    units = _units(parsed.rows)
    if half:
        units = _half(parsed, units, half)
    given = parsed.rows
    if not given:
        return Placed({}, {}, BY_HASH, ())
    name_recurring([one.row for one in given])
    warnings: tuple[str, ...] = ()
    if {one.split for one in given} - {"", TRAIN}:
        splits, by = _as_named(parsed, units), NAMED
    else:
        splits, warnings = _by_hash(given, units)
        by = BY_HASH
    files: dict[str, list[Given]] = {}
    of_split: dict[str, set[int]] = {}
    for one, unit, split in zip(given, units, splits, strict=True):
        if split:
            files.setdefault(split, []).append(one)
            of_split.setdefault(split, set()).add(unit)
    counts = {name: len(of) for name, of in of_split.items()}
    if any("check" in one.row or "category" in one.row for one in given):
        files.setdefault(TRAIN, [])  # a suite only tests: a file without rows to train on
    return Placed(in_order(files), in_order(counts), by, (*warnings, *_about_size(counts)))


def name_recurring(rows: Sequence[Row]) -> None:
    """Where an answer stands in several pairs, names both answers of each pair in place of a
    cluster, as rows of votes do: intervals are then over answers."""
    pairs = [row for row in rows if "chosen" in row]
    keys = [[argument_key(r["prompt"], r[name]) for name in ("chosen", "rejected")] for r in pairs]
    counts = Counter(key for both in keys for key in both)
    if not counts or max(counts.values()) == 1:
        return
    for row, both in zip(pairs, keys, strict=True):
        row.pop("cluster", None)
        row["cluster_ids"] = both


def _units(given: Sequence[Given]) -> list[int]:
    """The unit of each row."""
    if not given:
        return []
    texts: dict[str, int] = {}  # distinct prompts, which may recur in thousands of rows
    text_of = [texts.setdefault(prompt_text(one.prompt), len(texts)) for one in given]
    family = near_families(list(texts))[text_of]
    groups: dict[str, int] = {}
    group_numbers = [groups.setdefault(group_of(one.row), len(groups)) for one in given]
    n = len(texts)  # families are the first n nodes, groups the rest
    ties = (np.ones(len(given)), (family, np.asarray(group_numbers) + n))
    _, label = connected_components(
        sparse.coo_matrix(ties, shape=(n + len(groups),) * 2), directed=False
    )
    return [int(unit) for unit in label[family]]


def group_of(row: Row) -> str:
    """What stays together: the row's group, without one its prompt."""
    return row["group"] or loose_key(row["prompt"] if "prompt" in row else row["messages"][:-1])


def _as_named(parsed: Parsed, units: Sequence[int]) -> list[str]:
    """The split of each row; "" for those that are refused."""
    first: dict[tuple[int, bool], Given] = {}
    splits = []
    for one, unit in zip(parsed.rows, units, strict=True):
        what = "" if one.split else "is empty, but other rows name theirs"
        if other := first.get((unit, one.split != TRAIN)):
            what = what or (
                f"is {one.split}, but row {other.number}, of the same group or with nearly the "
                f"same prompt, is in {other.split}"
            )
        if what:
            parsed.refused.append(bad_row(one.number, "split", what))
        else:
            first.setdefault((unit, one.split == TRAIN), one)
        splits.append("" if what else one.split)
    return splits


def _keys(given: Sequence[Given], units: Sequence[int]) -> dict[int, str]:
    """What each unit is hashed by."""
    keys: dict[int, str] = {}
    for one, unit in zip(given, units, strict=True):
        key = group_of(one.row)
        keys[unit] = min(key, keys.get(unit, key))
    return keys


def _half(parsed: Parsed, units: Sequence[int], half: str) -> list[int]:
    """Leaves the other half out; the units of the rows that stay."""
    half_by_unit = {unit: half_of(key) for unit, key in _keys(parsed.rows, units).items()}
    kept = [
        (one, unit)
        for one, unit in zip(parsed.rows, units, strict=True)
        if half_by_unit[unit] == half
    ]
    parsed.dropped[OTHER_HALF] += len(parsed.rows) - len(kept)
    parsed.rows = [one for one, _ in kept]
    return [unit for _, unit in kept]


def _by_hash(given: Sequence[Given], units: Sequence[int]) -> tuple[list[str], tuple[str, ...]]:
    keys = _keys(given, units)
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

"""Demonstrations out of labeling: the better answers as annotators would have them.

A row is the prompt and the improved answer, with the vote it came with and its annotator as a
number. Rows are split by group with the hash and seed of preference datasets, so that a prompt that
is tested on is not learned from here either; prompts of the smoke split and of the private ones are
left out and counted.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from apps.accounts.models import Project
from apps.common.errors import DomainError
from apps.labeling.models import Comparison, Slot, Vote
from apps.labeling.texts import BadMessages, Messages, messages_from
from apps.snapshots.assembling.rows import Row, demonstration_row, prompt_row
from apps.snapshots.models import Snapshot, SnapshotRow
from apps.snapshots.recipe import DEV, PUBLIC_TEST, TRAIN, SnapshotRecipe, in_order
from apps.snapshots.storage import dataset_key, names_under
from measures.splits import split_of

_BATCH = 5_000
_SPLITS = (TRAIN, DEV, PUBLIC_TEST)


@dataclass(frozen=True, slots=True)
class Improved:
    """A current vote that came with an improved answer."""

    vote: int
    comparison: int
    person: int
    prompt: Messages
    answer: Messages
    group: str
    source: str
    licence: str
    external_id: str = ""
    own: Mapping[str, Any] | None = None  # the comparison's metadata, then its prompt's
    shared: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Demonstrations:
    """Rows by split, the votes behind each row by (split, ordinal), what was left out, and the key
    of the names that stand for people."""

    files: Mapping[str, list[Row]]
    votes: Mapping[tuple[str, int], list[Improved]]
    dropped: Mapping[str, int]
    pseudonyms: str

    @property
    def counts(self) -> dict[str, Any]:
        people = {one.person for votes in self.votes.values() for one in votes}
        groups = {name: len({row["group"] for row in rows}) for name, rows in self.files.items()}
        return {
            "rows": {name: len(rows) for name, rows in self.files.items()},
            "groups": groups,
            "annotators": len(people),
            "dropped": dict(self.dropped),
            "warnings": [],
        }


def improved_answers(*, project: Project) -> Iterator[Improved]:
    """Of votes that stand, on comparisons that were not dropped, in order of the votes."""
    rows = (
        Vote.objects.filter(project=project, is_current=True, improvement__isnull=False)
        .exclude(comparison__state=Comparison.State.DROPPED)
        .exclude(slot__kind=Slot.Kind.DISCARD)
        .order_by("pk")
        .values_list(
            *("pk", "comparison_id", "annotator_id"),
            *("comparison__prompt__messages", "improvement__messages"),
            *("comparison__prompt__group_key", "comparison__prompt__source"),
            "comparison__prompt__licence",
            *("comparison__external_id", "comparison__metadata", "comparison__prompt__metadata"),
        )
    )
    for row in rows.iterator(_BATCH):
        yield Improved(*row)


def improved_count(*, project: Project) -> int:
    return (
        Vote.objects.filter(project=project, is_current=True, improvement__isnull=False)
        .exclude(comparison__state=Comparison.State.DROPPED)
        .exclude(slot__kind=Slot.Kind.DISCARD)
        .count()
    )


def demonstrations_from(*, project: Project, recipe: SnapshotRecipe) -> Demonstrations:
    """What a freeze would write now, by the seed and the shares of `recipe`."""
    files: dict[str, list[Row]] = {}
    votes: dict[tuple[str, int], list[Improved]] = {}
    places: dict[tuple[str, str], tuple[str, int]] = {}
    dropped: Counter[str] = Counter()
    improved = list(improved_answers(project=project))
    key = dataset_key(
        project=project.pk, recipe=recipe.to_json(), votes=[one.vote for one in improved]
    )
    name_of = names_under(key)
    for one in improved:
        *before, last = one.answer
        if last["role"] != "assistant":
            dropped["does not end with the assistant"] += 1
            continue
        asked = [*one.prompt, *before]
        split = split_of(one.group, recipe.shares, recipe.seed)
        if split not in _SPLITS:
            dropped[f"its prompt is kept for {split}"] += 1
            continue
        seen = (repr(asked), last["content"])
        if seen in places:
            dropped["repeats an earlier row"] += 1
            votes[places[seen]].append(one)
            continue
        rows = files.setdefault(split, [])
        place = places[seen] = (split, len(rows))
        votes[place] = [one]
        about = {
            "group": one.group,
            "source": one.source,
            "licence": one.licence,
            "id": one.external_id,
            "metadata": one.shared if one.own is None else one.own,
        }
        rows.append(
            demonstration_row(asked, last["content"], about)
            | {"vote": str(one.vote), "annotator": name_of(one.person)}
        )
    return Demonstrations(in_order(files), votes, dropped, key)


def demonstration_lineage(snapshot: Snapshot, made: Demonstrations) -> list[SnapshotRow]:
    """One row per (comparison, file), naming every vote that its lines came with."""
    rows: dict[tuple[int, str], SnapshotRow] = {}
    for (split, ordinal), votes in sorted(made.votes.items()):
        for one in votes:
            row = rows.setdefault(
                (one.comparison, split),
                SnapshotRow(
                    snapshot=snapshot, comparison_id=one.comparison, split=split, ordinal=ordinal
                ),
            )
            row.vote_ids = [*row.vote_ids, one.vote]
    return list(rows.values())


# Rows of demonstrations and prompts as people have them, checked and brought into one form.


def parse_rows(kind: str, rows: Iterable[Mapping[str, Any]]) -> tuple[list[Row], int]:
    """(rows in file form, how many repeated an earlier one). `DomainError` names row and field."""
    parse = _demonstration if kind == Snapshot.Kind.DEMONSTRATIONS else _prompt
    seen: dict[str, Any] = {}
    parsed, repeated = [], 0
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            raise DomainError(f"Row {number} is no object.", code="bad_row", row=number)
        clean = parse(row, number)
        key = json.dumps(clean.get("messages") or clean["prompt"], sort_keys=True)
        if key in seen:
            if clean.get("answer") != seen[key]:
                raise _bad(
                    number, "answer", "differs from that of an earlier row that asks the same"
                )
            repeated += 1
            continue
        seen[key] = clean.get("answer")
        parsed.append(clean)
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


def _bad(number: int, name: str, what: str) -> DomainError:
    return DomainError(f"Row {number}: {name} {what}.", code="bad_row", row=number, field=name)

"""Rows of demonstrations and prompts as people have them, checked and brought into one form."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from apps.common.errors import DomainError
from apps.labeling.texts import BadMessages, Messages, messages_from
from apps.snapshots.assembling.rows import Row, demonstration_row, prompt_row
from apps.snapshots.models import Snapshot


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
        return messages_from(row.get(name), role=role)
    except BadMessages as error:
        raise _bad(number, name, str(error)) from error


def _about(row: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    for name in ("group", "source", "licence"):
        if not isinstance(row.get(name) or "", str):
            raise _bad(number, name, "must be text")
    return row


def _bad(number: int, name: str, what: str) -> DomainError:
    return DomainError(f"Row {number}: {name} {what}.", code="bad_row", row=number, field=name)

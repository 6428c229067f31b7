"""What a scoring service answered, read field by field: a service is not believed.

    {"scores": [{"score": 1.73, "parts": {…}, "disagreement": …, "truncated": …, "blocked": …,
                 "review": …}, …], "version": "2026-11"}

`scores` has an entry per item, in order: a number, or an object of which only `score` is needed.
`version` may be called `model`. Fields that are not named here are not read.
"""

import json
import math
from collections.abc import Sequence
from typing import Any

from workers.rewards.source import Scores


class BadAnswer(Exception):
    """The field that is wrong, and what is wrong with it."""


def read_answer(body: bytes, count: int) -> tuple[Scores, str | None]:
    """(scores of `count` items, the version the service says it is). Raises `BadAnswer`."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadAnswer(f"is no JSON: {error}") from error
    if not isinstance(data, dict):
        raise BadAnswer("is no object")
    entries = data.get("scores")
    if not isinstance(entries, list):
        raise BadAnswer("scores: must be a list")
    if len(entries) != count:
        raise BadAnswer(f"scores: has {len(entries)} entries for {count} items")
    rows = [_row(entry, f"scores[{i}]") for i, entry in enumerate(entries)]
    return _scores(rows), _version(data)


def read_id(body: bytes) -> str:
    """The id in a 202, which becomes part of an address. Raises `BadAnswer`."""
    try:
        name = json.loads(body).get("id")
    except (ValueError, AttributeError, RecursionError) as error:
        raise BadAnswer("is no object with an id") from error
    if not isinstance(name, str) or not name.replace("-", "").isalnum():
        raise BadAnswer(f"id: must be letters, digits and -, not {name!r:.60}")
    return name


def _row(entry: Any, where: str) -> dict[str, Any]:
    if not isinstance(entry, dict):
        entry = {"score": entry}
    parts = entry.get("parts") or {}
    if not isinstance(parts, dict):
        raise BadAnswer(f"{where}.parts: must be an object")
    spread = entry.get("disagreement")
    return {
        "score": _number(entry.get("score"), f"{where}.score"),
        "parts": {name: _number(v, f"{where}.parts.{name}") for name, v in parts.items()},
        "disagreement": None if spread is None else _number(spread, f"{where}.disagreement"),
        "truncated": _flag(entry, "truncated", where),
        "blocked": _flag(entry, "blocked", where),
        "review": _reason(entry.get("review"), f"{where}.review"),
    }


def _scores(rows: Sequence[dict[str, Any]]) -> Scores:
    names = list(rows[0]["parts"]) if rows else []
    for i, row in enumerate(rows):
        if set(row["parts"]) != set(names):
            raise BadAnswer(f"scores[{i}].parts: must have the same names as those of scores[0]")
    spreads = [row["disagreement"] for row in rows]
    if None in spreads and any(spread is not None for spread in spreads):
        raise BadAnswer("disagreement: must be given for every item or for none")
    values = [row["score"] for row in rows]
    reviews = [row["review"] for row in rows]
    blocked = [row["blocked"] for row in rows]
    cut = [row["truncated"] for row in rows]
    return Scores(
        values,
        {name: [row["parts"][name] for row in rows] for name in names} or {"http": values},
        sum(cut),
        None if None in spreads or not spreads else spreads,
        cut,
        reviews,
        blocked,
    )


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadAnswer(f"{where}: must be a finite number, not {value!r:.60}")
    return float(value)


def _flag(entry: dict[str, Any], name: str, where: str) -> bool:
    value = entry.get(name, False)
    if not isinstance(value, bool):
        raise BadAnswer(f"{where}.{name}: must be true or false, not {value!r:.60}")
    return value


def _reason(value: Any, where: str) -> str | None:
    if value is None or isinstance(value, str):
        return value or None
    raise BadAnswer(f"{where}: must be a text or null, not {value!r:.60}")


def _version(data: dict[str, Any]) -> str | None:
    value = data.get("version", data.get("model"))
    if value is None or isinstance(value, str):
        return value
    raise BadAnswer(f"version: must be a text, not {value!r:.60}")

"""What the statements of a service call read, by EXPLAIN (ANALYZE, BUFFERS).

The statements are caught while the real service runs, so the benchmark cannot fall behind the code.
Each is then prepared and explained with both kinds of plan that a kept connection may use: with the
values known (custom) and without (generic); the one that reads more counts. Everything is rolled
back.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from django.db import connection, transaction

from apps.labeling import selectors
from apps.labeling.services import statements

_NAMES = {
    " ".join(text.split()): name.strip("_")
    for module in (statements, selectors)
    for name, value in vars(module).items()
    if name.isupper()
    for text in (value.values() if isinstance(value, dict) else [value])
    if isinstance(text, str) and len(text) > 60
}
_TYPES = {bool: "boolean", int: "bigint", float: "double precision", list: "text[]"}


@dataclass(frozen=True, slots=True)
class Read:
    """One statement: shared buffers (8 kB pages) touched, execution time, and the plan's kind."""

    name: str
    buffers: int
    milliseconds: float
    plan: str


def reads(act: Callable[[], Any]) -> list[Read]:
    """What each hand-written statement that `act` executes reads; nothing is kept."""
    caught: list[tuple[str, dict[str, Any]]] = []

    def catch(execute: Any, text: str, values: Any, many: bool, context: Any) -> Any:
        if _name(text):
            caught.append((text, values))
        return execute(text, values, many, context)

    with _nothing_kept(), connection.execute_wrapper(catch):
        act()
    found = []
    for place in range(len(caught)):
        # A statement is explained where it ran: after the ones before it.
        found.append(
            max(
                (_explained(caught, place, plan) for plan in ("custom", "generic")),
                key=lambda read: read.buffers,
            )
        )
    return found


def _name(text: str) -> str | None:
    return _NAMES.get(" ".join(text.split()))


@contextmanager
def _nothing_kept() -> Iterator[None]:
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def _explained(caught: list[tuple[str, dict[str, Any]]], place: int, plan: str) -> Read:
    text, values = caught[place]
    names: list[str] = []

    def numbered(match: re.Match[str]) -> str:
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    body = re.sub(r"%\((\w+)\)s", numbered, text).replace("%%", "%")
    types = ", ".join(_TYPES.get(type(values[name]), "unknown") for name in names)
    with _nothing_kept():
        raw = connection.connection
        with psycopg.ClientCursor(raw) as cursor:
            for earlier, its_values in caught[:place]:
                cursor.execute(earlier, its_values)
            cursor.execute(f"set local plan_cache_mode = force_{plan}_plan")
            cursor.execute(f"prepare explained ({types}) as {body}")
            marks = ", ".join(["%s"] * len(names))
            explain = "explain (analyze, buffers, format json) execute explained"
            given = [values[name] for name in names]
            # The first run fills caches and marks dead rows; the second is what a busy site sees.
            for _ in range(2):
                cursor.execute("savepoint before")
                cursor.execute(f"{explain} ({marks})", given)
                (answer,) = cursor.fetchone()
                cursor.execute("rollback to savepoint before")
            cursor.execute("deallocate explained")
    answer = json.loads(answer) if isinstance(answer, str) else answer
    root = answer[0]["Plan"]
    return Read(
        str(_name(text)),
        root["Shared Hit Blocks"] + root["Shared Read Blocks"],
        answer[0]["Execution Time"],
        plan,
    )

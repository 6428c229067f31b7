"""Transactions that are run again when the database chose them to resolve a deadlock, and what
follows a commit.

PostgreSQL ends one of the transactions that wait for each other; doing its work again is the
remedy it asks for. `FOR UPDATE SKIP LOCKED` does not rule such cycles out: a row version that was
replaced between the snapshot and the lock is followed to its successor, and the successor's lock is
waited for.
"""

import logging
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import psycopg
import psycopg.errors
import psycopg.pq
from django.conf import settings
from django.db import (
    Error,
    InterfaceError,
    InternalError,
    OperationalError,
    connection,
    models,
    transaction,
)
from django.db.backends.utils import CursorWrapper

Given = ParamSpec("Given")
Result = TypeVar("Result")

TRIES = 4
_ENDED_BY_THE_DATABASE = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)
_log = logging.getLogger(__name__)


def said_by_database(error: BaseException) -> BaseException | None:
    """What psycopg says: behind Django's error, or as it is, which COPY raises."""
    return error.__cause__ if isinstance(error, Error) else error


def database_away(error: BaseException) -> bool:
    """Whether an error means that the database went away, and not that a statement is wrong.

    A session that ends in the middle of an answer is an InternalError of psycopg's own, without a
    code of PostgreSQL's; a block that wants to go on without its connection an InterfaceError.
    """
    said = said_by_database(error)
    if isinstance(error, InternalError | psycopg.InternalError):
        return isinstance(said, psycopg.Error) and said.sqlstate is None
    return isinstance(
        error,
        OperationalError | InterfaceError | psycopg.OperationalError | psycopg.InterfaceError,
    )


def retried(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """`function`, which is one transaction, run again when the database ended it, a few times.

    Inside a transaction of the caller it runs once: only the outermost can be restarted.
    """

    @wraps(function)
    def run(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        for attempt in range(1, TRIES + 1):
            try:
                return function(*args, **kwargs)
            except OperationalError as error:
                ended = isinstance(error.__cause__, _ENDED_BY_THE_DATABASE)
                if not ended or attempt == TRIES or connection.in_atomic_block:
                    raise
                _log.warning("%s ended by a deadlock, try %d", function.__name__, attempt)
                time.sleep(random.uniform(0, 0.02) * attempt)  # not in step with the other one
        raise AssertionError("not reached")

    return run


def after_commit(act: Callable[..., Any], **given: Any) -> None:
    """Call `act(**given)` once the transaction is committed. What it raises is logged and holds up
    nothing else; a sweep must find what it left undone.

    Not `on_commit(partial(…), robust=True)`: Django asks a callback that raised for its name, which
    a partial lacks, and so raises itself.
    """

    @wraps(act)
    def call() -> None:
        act(**given)

    transaction.on_commit(call, robust=True)


# A cursor whose statements are parsed and planned once per connection.
#
# Django merges values into the text of each statement, so PostgreSQL plans it again every time; for
# the statements of every request and of a vote that is half of their cost. This cursor binds values
# on the server and prepares what it executes. Django's own cursors on the same connection stay as
# they are, and query counting sees these statements like any other.
#
# Behind a pooler that switches connections between transactions (DATABASE_DIRECT_URL) nothing is
# prepared: the next transaction may have a connection that knows nothing of it.

_PREPARE_AFTER = 2  # executions of the same text


@contextmanager
def prepared_cursor() -> Iterator[CursorWrapper]:
    connection.ensure_connection()
    raw = connection.connection
    pooled = connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS")
    if raw.prepare_threshold is None and not pooled:
        raw.prepare_threshold = _PREPARE_AFTER
    wrap = connection.make_debug_cursor if connection.queries_logged else connection.make_cursor
    with wrap(psycopg.Cursor(raw)) as cursor:
        yield cursor


# How long statements may take.
#
# A page's connections begin with a limit (config/settings.py). Where a request reads or changes
# much of a project its statements may take longer, which is said at the beginning of each
# transaction and for that alone: a setting of the session would stay with a connection that a
# pooler then gives to somebody else.


_longer: ContextVar[bool] = ContextVar("longer", default=False)


def long_statements(allowed: bool) -> None:
    """Whether statements of this thread may from now on take LONG_STATEMENT_SECONDS, if
    STATEMENT_SECONDS limits them at all."""
    _longer.set(allowed and settings.STATEMENT_SECONDS > 0)
    if allowed and _allow_longer not in connection.execute_wrappers:
        connection.execute_wrappers.append(_allow_longer)


def _allow_longer(
    execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]
) -> Any:
    of = context["connection"]
    begun = of.connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE
    if begun or not _longer.get():  # begun: it was said at the beginning
        return execute(sql, params, many, context)
    if of.in_atomic_block:
        _say_longer(of)
        return execute(sql, params, many, context)
    with transaction.atomic(using=of.alias):
        _say_longer(of)
        return execute(sql, params, many, context)


def _say_longer(of: Any) -> None:
    of.connection.execute(f"set local statement_timeout = '{settings.LONG_STATEMENT_SECONDS}s'")


class FailedStatement:
    """Keeps the error of the newest statement that failed; for `connection.execute_wrapper`. Who
    reads attributes for somebody else may raise an error of their own, without this one."""

    error: Exception | None = None

    def __call__(
        self,
        execute: Callable[..., Any],
        sql: str,
        params: Any,
        many: bool,
        context: dict[str, Any],
    ) -> Any:
        try:
            return execute(sql, params, many, context)
        except Exception as error:
            self.error = error
            raise


# Telling PostgreSQL what its tables hold now, right after many rows came in.
#
# Prepared statements keep a plan that was right when it was made. Made over a table of a few rows,
# it reads that table whole; after an import of thousands each vote then costs six times as much,
# until autovacuum comes by, a minute or more later. ANALYZE renews the figures, and every session
# plans again.

WORTH_IT = 500  # rows; fewer change no plan that matters


def plans_renew(*tables: type[models.Model], by_key: tuple[type[models.Model], ...] = ()) -> None:
    """ANALYZE these tables; those in `by_key` by their primary key alone, which is how they are
    looked up: reading samples of long texts would take most of the time."""
    quote = connection.ops.quote_name
    names = [quote(table._meta.db_table) for table in tables]
    names += [f"{quote(table._meta.db_table)} ({quote(table._meta.pk.column)})" for table in by_key]
    with connection.cursor() as cursor:
        cursor.execute(f"analyze {', '.join(names)}")


def row_named(cursor: CursorWrapper) -> dict[str, Any] | None:
    """The next row that a statement found, by the names of its columns; None when there is none."""
    row = cursor.fetchone()
    return None if row is None else _named(_columns(cursor), row)


def rows_named(cursor: CursorWrapper) -> list[dict[str, Any]]:
    """All rows that a statement found, by the names of their columns."""
    names = _columns(cursor)
    return [_named(names, row) for row in cursor.fetchall()]


def columns_named(cursor: CursorWrapper) -> dict[str, tuple[Any, ...]]:
    """All that a statement found, column by column: for results of many rows, where a dictionary
    for each would take longer than reading them."""
    names, rows = _columns(cursor), cursor.fetchall()
    return _named(names, tuple(zip(*rows, strict=True)) if rows else ((),) * len(names))


def _columns(cursor: CursorWrapper) -> list[str]:
    return [column.name for column in cursor.description]


def _named(names: list[str], row: tuple[Any, ...]) -> dict[str, Any]:
    found = dict(zip(names, row, strict=True))
    if len(found) != len(names):
        raise ValueError(f"two columns of one name: {names}")
    return found

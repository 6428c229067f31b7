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
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import psycopg.errors
from django.db import OperationalError, connection, transaction

Given = ParamSpec("Given")
Result = TypeVar("Result")

TRIES = 4
_ENDED_BY_THE_DATABASE = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)
_log = logging.getLogger(__name__)


def retried(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """`function`, which is one transaction, run again when the database ended it, a few times.

    Inside a transaction of the caller it runs once: only the outermost can be begun anew.
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

"""A cursor whose statements are parsed and planned once per connection.

Django merges values into the text of each statement, so PostgreSQL plans it anew every time; for
the statements of every request and of a vote that is half of their cost. This cursor binds values
on the server and prepares what it executes. Django's own cursors on the same connection stay as
they are, and query counting sees these statements like any other.

Behind a pooler that switches connections between transactions (PgBouncer in transaction mode),
prepared statements need its `max_prepared_statements`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from django.db import connection
from django.db.backends.utils import CursorWrapper

_PREPARE_AFTER = 2  # executions of the same text


@contextmanager
def prepared_cursor() -> Iterator[CursorWrapper]:
    connection.ensure_connection()
    raw = connection.connection
    if raw.prepare_threshold is None:
        raw.prepare_threshold = _PREPARE_AFTER
    wrap = connection.make_debug_cursor if connection.queries_logged else connection.make_cursor
    with wrap(psycopg.Cursor(raw)) as cursor:
        yield cursor

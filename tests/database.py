"""Rights in the database that the application itself does not have."""

from collections.abc import Generator
from contextlib import contextmanager

from django.db import connection


@contextmanager
def as_superuser() -> Generator[None]:
    """To empty tables and to change rows past their triggers."""
    with connection.cursor() as cursor:
        cursor.execute("set role none; set session_replication_role = replica")
        try:
            yield
        finally:
            cursor.execute("set session_replication_role = default; reset role")

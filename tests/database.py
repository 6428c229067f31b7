"""Rights in the database that the application itself does not have."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import NamedTuple

from django.db import connection
from django.db.models import Model, QuerySet


@contextmanager
def as_superuser() -> Generator[None]:
    """To empty tables and to change rows past their triggers."""
    with connection.cursor() as cursor:
        cursor.execute("set role none; set session_replication_role = replica")
        try:
            yield
        finally:
            cursor.execute("set session_replication_role = default; reset role")


KEPT = ("django_migrations", "django_content_type", "auth_permission", "django_site")


def tables_empty() -> None:
    """Every row that a test left; as superuser. Django's own way truncates all tables and writes
    permissions again, which takes ten times as long as to delete from the few that have rows."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select quote_ident(tablename) from pg_tables where schemaname = 'public' "
            "and tablename <> all(%s)",
            [list(KEPT)],
        )
        tables = [name for (name,) in cursor.fetchall()]
        cursor.execute(
            " union all ".join(
                f"select '{name}' where exists (select 1 from {name})" for name in tables
            )
        )
        used = [name for (name,) in cursor.fetchall()]
        if used:
            cursor.execute("; ".join(f"delete from {name}" for name in used))


class Rows(NamedTuple):
    """Rows of one table as text."""

    table: str
    columns: str
    text: str


def rows_read(rows: QuerySet[Model]) -> Rows:
    """Rows as they are, for `rows_write` in another test: to copy them takes a tenth of the time
    that making them takes."""
    table = rows.model._meta.db_table
    columns = ", ".join(f'"{field.column}"' for field in rows.model._meta.concrete_fields)
    ids = ",".join(repr(pk) for pk in rows.values_list("pk", flat=True))
    with connection.cursor() as cursor:
        found = f'select {columns} from "{table}" where id in ({ids}) order by id'
        with cursor.copy(f"copy ({found}) to stdout") as copy:
            text = b"".join(bytes(part) for part in copy).decode()
    return Rows(table, columns, text)


def rows_write(rows: Rows) -> None:
    into = f'copy "{rows.table}" ({rows.columns}) from stdin'
    with connection.cursor() as cursor, cursor.copy(into) as copy:
        copy.write(rows.text)

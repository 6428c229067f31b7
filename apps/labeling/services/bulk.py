"""Thousands of rows at once: ids in one go, rows by COPY."""

from collections.abc import Iterable
from typing import Any

from django.db import models
from django.db.backends.utils import CursorWrapper


def ids_next(cursor: CursorWrapper, model: type[models.Model], n: int) -> list[int]:
    """n fresh ids of a table; rows that other tables point at are written with them."""
    cursor.execute(
        "select coalesce(array_agg(nextval(s)), '{}') from"
        " pg_get_serial_sequence(%s, 'id') s, generate_series(1, %s)",
        [model._meta.db_table, n],
    )
    return cursor.fetchone()[0]


def rows_copy(
    cursor: CursorWrapper,
    model: type[models.Model],
    columns: str,
    rows: Iterable[tuple[Any, ...]],
    *,
    stamped: bool = True,
) -> None:
    """COPY rows into a table; `stamped` ones were created when the transaction began."""
    names = columns.split() + (["created_at", "updated_at"] if stamped else [])
    now: tuple[Any, ...] = ()
    if stamped:
        cursor.execute("select now()")
        now = (cursor.fetchone()[0].isoformat(),) * 2  # as text once, not for every row
    with cursor.copy(f"copy {model._meta.db_table} ({', '.join(names)}) from stdin") as copy:
        for row in rows:
            copy.write_row((*row, *now))

"""Telling PostgreSQL what its tables hold now, right after many rows came in.

Prepared statements keep a plan that was right when it was made. Made over a table of a few rows, it
reads that table whole; after an import of thousands each vote then costs six times as much, until
autovacuum comes by, a minute or more later. ANALYZE renews the figures, and every session plans
anew.
"""

from django.db import connection, models

WORTH_IT = 500  # rows; fewer change no plan that matters


def plans_renew(*tables: type[models.Model], by_key: tuple[type[models.Model], ...] = ()) -> None:
    """ANALYZE these tables; those in `by_key` by their primary key alone, which is how they are
    looked up: reading samples of long texts would take most of the time."""
    quote = connection.ops.quote_name
    names = [quote(table._meta.db_table) for table in tables]
    names += [f"{quote(table._meta.db_table)} ({quote(table._meta.pk.column)})" for table in by_key]
    with connection.cursor() as cursor:
        cursor.execute(f"analyze {', '.join(names)}")

"""Whole columns of numbers out of the database, for statistics over a project.

A million rows as Python tuples take some three seconds and half a gigabyte; COPY hands over every
row as a message of its own, which is hardly faster. Here the database strings the numbers of
200,000 rows together, and numpy reads each such block in place: four times as fast as COPY.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from django.db import connection
from numpy.typing import NDArray

_ROWS = 200_000  # in one block; a value of PostgreSQL holds a gigabyte at most


def int_columns(query: str, values: Mapping[str, Any], *, n: int) -> list[NDArray[np.int64]]:
    """The n columns of a select, each a vector; rows in any order. Whole numbers, never null.

    `query` is this project's own text, never input. Raises ValueError where a column holds a null.
    """
    names = [f"c{i}" for i in range(n)]
    row = " || ".join(f"int8send({name}::bigint)" for name in names)
    statement = f"""
        select count(*), string_agg({row}, ''::bytea) from (
          select *, (row_number() over () - 1) / {_ROWS} as block
          from ({query}) as q({", ".join(names)})
        ) numbered group by block"""  # noqa: S608 - names are ours
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        blocks = cursor.fetchall()
    parts = [np.frombuffer(block or b"", dtype=">i8").reshape(-1, n) for _, block in blocks]
    if sum(map(len, parts)) != sum(count for count, _ in blocks):
        raise ValueError("a column holds a null")
    if not parts:
        return [np.zeros(0, dtype=np.int64) for _ in names]
    return [np.concatenate([part[:, i] for part in parts]).astype(np.int64) for i in range(n)]

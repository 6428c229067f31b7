"""CPU that PostgreSQL spends on each statement, from its own log (log_statement_stats)."""

import re
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.db import connection

_SPENT = re.compile(r"([\d.]+) s user, ([\d.]+) s system, ([\d.]+) s elapsed")
_STATEMENT = re.compile(r"STATEMENT:\s+(.*)", re.DOTALL)
_RECORD = re.compile(r"(?m)^(?=\d+ LOG:  )")
_RELOADS = 0.5  # seconds until every backend has read the settings


@contextmanager
def costs(var: Path) -> Iterator[dict[str, float]]:
    """Milliseconds of CPU by statement (blanks evened out), filled when the block ends."""
    log = var / "postgres" / "log"
    _set("on")
    before = log.stat().st_size
    spent: dict[str, float] = defaultdict(float)
    try:
        yield spent
    finally:
        _set("off")
        with log.open("rb") as lines:
            lines.seek(before)
            text = lines.read().decode(errors="replace")
        for record in _RECORD.split(text):
            took, statement = _SPENT.search(record), _STATEMENT.search(record)
            if took and statement:
                words = " ".join(statement[1].split())
                spent[words] += (float(took[1]) + float(took[2])) * 1000


def _set(value: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"alter system set log_statement_stats = '{value}'")
        cursor.execute("alter system set log_line_prefix = '%p '")
        cursor.execute("select pg_reload_conf()")
    time.sleep(_RELOADS)

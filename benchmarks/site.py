"""A Concord of a benchmark's own: PostgreSQL and Redis in a temporary folder, migrated, empty."""

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def site(*, port: int | None = None) -> Iterator[Path]:
    """Django in this process on servers of its own; yields VAR_DIR, which goes at the end.

    port: sets PORT, for benchmarks that start a web server (cookies are named after it).
    """
    folder = Path(tempfile.mkdtemp(prefix="concord-bench-"))
    for name in (
        "DATABASE_URL",
        "DATABASE_OWNER_URL",
        "DATABASE_DIRECT_URL",
        "REDIS_URL",
        "CACHE_URL",
        "ARTIFACTS_URL",
        "PRODUCTION",
        "DEBUG",
    ):
        os.environ.pop(name, None)
    os.environ |= {"VAR_DIR": str(folder), "DJANGO_SETTINGS_MODULE": "config.settings"}
    os.environ["LOG_LEVEL"] = "ERROR"
    # Counted as anywhere, and more than those who vote without pause ask.
    os.environ |= {"API_RATE": "1000000", "API_RATE_UNKNOWN": "1000000"}
    os.environ |= {"HEAVY_RATE": "100000", "HEAVY_RATE_PROJECT": "100000"}
    if port is not None:
        os.environ["PORT"] = str(port)
    from apps.common import embedded

    # Asked to end (a time limit, a person), it stops its servers first, as it does at Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with embedded.servers():
            # Projects of a million pairs are made past triggers, and tables are vacuumed.
            os.environ["DATABASE_URL"] = embedded.postgres_url(folder, embedded.SUPERUSER)
            os.environ.pop("DATABASE_OWNER_URL", None)
            import django
            from django.core.management import call_command
            from django.db import connection

            django.setup()
            call_command("migrate", verbosity=0)
            call_command("collectstatic", interactive=False, verbosity=0)
            try:
                yield folder
            finally:
                connection.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)

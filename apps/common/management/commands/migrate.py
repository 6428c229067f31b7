"""`manage.py migrate`, by the role that owns the tables; not on another version's database, and
never waiting long for a lock.

A migration that waits for a lock makes everybody behind it wait too: a vote that only wants to read
the table queues behind the change that queues behind somebody's open transaction. So a lock is
waited for briefly, what held it is named, and the migration is tried again.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from django.conf import settings
from django.core.management import CommandError, CommandParser
from django.core.management.commands import migrate
from django.db import OperationalError, connections
from django.db.migrations.loader import MigrationLoader

from apps.common.health import unknown_migrations
from apps.common.locks import direct_settings, settings_at

LOCK_SECONDS, TRIES = 5, 5
_LOOK = 0.25  # seconds between two looks at who is in the way


class Command(migrate.Command):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--lock-seconds",
            type=float,
            default=LOCK_SECONDS,
            help=f"how long to wait for a lock, in each try (default: {LOCK_SECONDS})",
        )
        parser.add_argument(
            "--tries", type=int, default=TRIES, help=f"before giving up (default: {TRIES})"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        connection = connections[options["database"]]
        if unknown := unknown_migrations(MigrationLoader(connection)):
            raise CommandError(
                f"This database was made by another version of Concord: {', '.join(unknown[:3])}"
                f"{' and more are' if unknown[3:] else ' is' if not unknown[1:] else ' are'} not"
                " known to this one. Nothing was changed. A database from before 0.2.0 cannot be"
                " upgraded: start with an empty one (another VAR_DIR, or another DATABASE_URL). A"
                " newer database needs the version that made it, or a newer one."
            )
        reach = connection.get_connection_params()
        with _as_owner(connection):
            self._tried(connection, reach, *args, **options)

    def _tried(self, connection: Any, reach: dict[str, Any], *args: Any, **options: Any) -> None:
        """Migrations that were done stay done: each is a transaction of its own."""
        seconds, tries = options["lock_seconds"], max(1, options["tries"])
        for attempt in range(1, tries + 1):
            try:
                with _locks_briefly(connection, seconds), _Blockers(connection, reach) as blockers:
                    return super().handle(*args, **options)
            except OperationalError as error:
                if not isinstance(error.__cause__, psycopg.errors.LockNotAvailable):
                    raise
                said = blockers.words or "somebody who has let go of it meanwhile"
                if attempt == tries:
                    raise CommandError(
                        f"A migration waited {tries} times {seconds:g} s for a lock, held by"
                        f" {said}. That migration changed nothing; those before it are done. End"
                        " what holds the lock, or try again when the site is less busy."
                    ) from error
                self.stderr.write(
                    f"waited {seconds:g} s for a lock, held by {said}; try {attempt + 1} of {tries}"
                )
                time.sleep(min(attempt * seconds / 2, 10.0))  # who waited behind us goes first
        raise AssertionError("not reached")


@contextmanager
def _as_owner(connection: Any) -> Iterator[None]:
    if not settings.DATABASE_OWNER_URL and not settings.DATABASE_DIRECT_URL:
        yield
        return
    application = connection.settings_dict.copy()
    connection.close()
    # Past a pooler, which would give limits of this session to others.
    owner = direct_settings()
    if settings.DATABASE_OWNER_URL:
        owner = settings_at(owner, settings.DATABASE_OWNER_URL)
    connection.settings_dict.update(owner)
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict.update(application)


@contextmanager
def _locks_briefly(connection: Any, seconds: float) -> Iterator[None]:
    """Statements may take as long as they take; waiting for others may not."""
    with connection.cursor() as cursor:
        cursor.execute("select set_config('lock_timeout', %s, false)", [f"{seconds * 1000:.0f}ms"])
        cursor.execute("set statement_timeout = 0")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("reset lock_timeout; reset statement_timeout")


class _Blockers:
    """Looks, beside a migration, at who holds the lock that it waits for; through a connection of
    the application's role, which may read what its own sessions run."""

    def __init__(self, connection: Any, reach: dict[str, Any]) -> None:
        self.words = ""
        self._pid = connection.connection.info.backend_pid
        self._reach = {
            name: reach[name]
            for name in ("dbname", "user", "password", "host", "port")
            if reach.get(name)
        }
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "_Blockers":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        try:
            with psycopg.connect(**self._reach, autocommit=True) as own:
                while not self._done.wait(_LOOK):
                    if rows := own.execute(_BLOCKERS, [self._pid]).fetchall():
                        self.words = "; ".join(text for (text,) in rows)
        except psycopg.OperationalError:
            return  # it cannot connect: then nobody is named


_BLOCKERS = """
select format('process %%s of %%s (%%s%%s, %%s for %%s s): %%s', a.pid, a.usename,
              coalesce(nullif(a.application_name, ''), 'no name'),
              coalesce(' at ' || host(a.client_addr), ''), coalesce(a.state, 'state unknown'),
              coalesce(extract(epoch from now() - a.xact_start)::int::text, '?'),
              coalesce(nullif(left(regexp_replace(a.query, '\\s+', ' ', 'g'), 120), ''), '?'))
from unnest(pg_blocking_pids(%s)) as b(pid) join pg_stat_activity a on a.pid = b.pid
"""

"""PostgreSQL's own programs: the dump of a database, and its restore.

The programs are those of the wheel, version 18: they read every server that is not newer.
"""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from django.conf import settings
from django.db import connection
from psycopg import sql

from apps.common.embedded.postgres import program
from apps.common.errors import Conflict, Unavailable
from apps.common.locks import direct_place
from apps.training.services.housekeeping import FILES_STAY

_BLOCK = 1 << 20
_UNDER_WAY = 0x6261636B  # advisory lock of the backup that is being made
_TRIED = 0x74726965  # of those that must find every content: shared by trial restores


def connection_of_owner() -> dict[str, Any]:
    """How to reach this site's database as the role that owns its tables."""
    known = direct_place()
    if settings.DATABASE_OWNER_URL:
        owner = psycopg.conninfo.conninfo_to_dict(settings.DATABASE_OWNER_URL)
        # The database's name stays: tests have one of their own.
        known |= {name: owner.get(name) for name in ("user", "password", "host", "port")}
    return {name: value for name, value in known.items() if value}


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Raises `Conflict` while another process makes a backup of this database."""
    try:
        held = psycopg.connect(**connection_of_owner(), autocommit=True)
    except psycopg.OperationalError as error:
        raise Unavailable(f"The database does not answer: {error}", code="database") from error
    with held:
        row = held.execute("select pg_try_advisory_lock(%s)", [_UNDER_WAY]).fetchone()
        if not row or not row[0]:
            raise Conflict("A backup of this site is being made.", code="backup_under_way")
        # No sweep deletes a file that the dump names before it is copied.
        held.execute("select pg_advisory_lock(%s)", [FILES_STAY])
        yield


@contextmanager
def trial() -> Iterator[None]:
    """Meanwhile nothing is deleted from a target of this site."""
    with psycopg.connect(**connection_of_owner(), autocommit=True) as held:
        held.execute("select pg_advisory_lock_shared(%s)", [_TRIED])
        yield


@contextmanager
def trials_wait() -> Iterator[bool]:
    """Gives whether no trial is under way; then none begins meanwhile."""
    with psycopg.connect(**connection_of_owner(), autocommit=True) as held:
        row = held.execute("select pg_try_advisory_lock(%s)", [_TRIED]).fetchone()
        yield bool(row and row[0])


def dumped(reach: dict[str, Any], *, snapshot: str) -> Iterator[bytes]:
    """A dump of what a transaction that exported `snapshot` sees, as it comes."""
    argv = [
        str(program("pg_dump")),
        "--format=custom",
        "--compress=gzip:1",
        f"--snapshot={snapshot}",
        "--no-owner",
        "--no-privileges",
        "--no-password",
        f"--dbname={_words(reach)}",
    ]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=errors, env=_environment(reach)
        )
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        try:
            while block := process.stdout.read(_BLOCK):
                yield block
            if process.wait():
                raise Unavailable(f"pg_dump failed: {_said(errors)}", code="dump_failed")
        finally:
            if process.poll() is None:
                process.kill()
            process.stdout.close()
            process.wait()


def dump_restore(reach: dict[str, Any], dump: Path) -> None:
    """All of a dump into a database without tables, in one transaction: all of it or nothing."""
    argv = [
        str(program("pg_restore")),
        "--no-owner",
        "--no-privileges",
        "--exit-on-error",
        "--single-transaction",
        "--no-password",
        f"--dbname={_words(reach)}",
        str(dump),
    ]
    with tempfile.TemporaryFile() as errors:
        if subprocess.run(argv, stderr=errors, env=_environment(reach), check=False).returncode:
            raise Unavailable(
                f"pg_restore failed, and left the database empty: {_said(errors)}",
                code="restore_failed",
            )
    with psycopg.connect(**reach, autocommit=True) as there:
        there.execute("analyze")


def rows_counted(reach: dict[str, Any]) -> dict[str, int]:
    """{table: rows} of the schema public."""
    with psycopg.connect(**reach) as there:
        return counted(lambda text: there.execute(text).fetchall())


def counted(ask: Any) -> dict[str, int]:
    """The same through a function that executes a statement and gives its rows."""
    tables = [
        name
        for (name,) in ask("select tablename from pg_tables where schemaname = 'public' order by 1")
    ]
    if not tables:
        return {}
    each = " union all ".join(
        f"select {_literal(name)}, count(*) from public.{_quoted(name)}"  # noqa: S608 - quoted
        for name in tables
    )
    return {name: int(n) for name, n in ask(each)}


def tables_drop(reach: dict[str, Any]) -> None:
    """What `migrate` made in a database that holds nothing yet: tables, sequences, functions.
    Raises `Conflict` while another program of the site is connected."""
    with psycopg.connect(**reach, autocommit=True) as there:
        row = there.execute(_OTHERS, [connection.get_connection_params().get("user")]).fetchone()
        if row and row[0]:
            raise Conflict(
                f"{row[0]} other sessions use the database. Stop the site, then restore.",
                code="site_running",
            )
        there.execute("set lock_timeout = '10s'")
        try:
            there.execute(_DROP)
        except psycopg.errors.LockNotAvailable as error:
            raise Conflict(
                "Another process uses the database. Stop the site, then restore.",
                code="site_running",
            ) from error


_OTHERS = """
select count(*) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and usename in (current_user, %s)
"""
_DROP = """
do $$
declare made record;
begin
  for made in select c.oid::regclass as name, c.relkind from pg_class c
    where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p')
      and not exists (select from pg_depend d where d.objid = c.oid and d.deptype = 'e')
  loop execute format('drop table if exists %s cascade', made.name); end loop;
  for made in select p.oid::regprocedure as name from pg_proc p
    where p.pronamespace = 'public'::regnamespace
      and not exists (select from pg_depend d where d.objid = p.oid and d.deptype = 'e')
  loop execute format('drop routine if exists %s cascade', made.name); end loop;
end $$
"""


def _words(reach: dict[str, Any]) -> str:
    """A connection string without the password, which other accounts would read in `ps`."""
    return psycopg.conninfo.make_conninfo(
        **{name: value for name, value in reach.items() if name != "password"}
    )


def _environment(reach: dict[str, Any]) -> dict[str, str]:
    # The site may bound its statements and idle transactions; a dump takes as long as it takes.
    free = "-c statement_timeout=0 -c lock_timeout=0 -c idle_in_transaction_session_timeout=0"
    given = {"PGPASSWORD": str(reach["password"])} if reach.get("password") else {}
    return os.environ | given | {"PGOPTIONS": free}


def _said(errors: Any) -> str:
    errors.seek(0)
    text = errors.read().decode(errors="replace")
    return " ".join(text.split())[-600:] or "it said nothing"


def _quoted(name: str) -> str:
    return sql.Identifier(name).as_string(None)


def _literal(name: str) -> str:
    return sql.Literal(name).as_string(None)

"""The tables as the migrations make them, kept between runs as a dump in pytest's own cache.

To migrate an empty database takes a process most of a minute, nearly all of it in Django's models
of the past; to read the dump takes a second. `pytest --cache-clear` forgets it.
"""

import fcntl
import hashlib
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import django
import psycopg
from django.apps import apps
from django.core.management import call_command
from django.db import connection

from apps.common import environment as env
from apps.common.embedded.postgres import program

TEMPLATE = "migrated"
_WHOLE = "-- PostgreSQL database dump complete"  # the last words of a dump
# What our migrations are made of; they may import no other part of the project.
OURS = ("*/migrations/*.*", "*/models.py", "*/models/**/*.py", "common/*.py")


def template_make(cache: Path) -> None:
    """A migrated database of the name TEMPLATE, of which Django makes the test database."""
    dump = cache / f"{fingerprint(made_of())}.sql"
    with _one_at_a_time(cache / "lock"):
        with psycopg.connect(**_reached(), dbname="postgres", autocommit=True) as server:
            server.execute(f"create database {TEMPLATE}")
        if dump.exists() and _WHOLE in dump.read_text():
            try:
                _run("psql", "--set=ON_ERROR_STOP=1", "--single-transaction", f"--file={dump}")
                return
            except subprocess.CalledProcessError:
                pass  # damaged: nothing of it is in the database, and it is made again
        with _connected_to_template():
            call_command("migrate", verbosity=0)
        unfinished = dump.with_suffix(".unfinished")
        _run("pg_dump", "--no-owner", f"--file={unfinished}")
        for old in cache.glob("*.sql"):
            old.unlink()
        unfinished.rename(dump)


def made_of() -> list[Path]:
    """The files on which a migrated database depends."""
    folder = env.ROOT / "apps"
    files = {path for pattern in OURS for path in folder.glob(pattern)}
    for app in apps.get_app_configs():  # those of libraries are others with another version
        files.update(Path(app.path).glob("migrations/*.py"))
    return sorted(files)


def fingerprint(files: list[Path]) -> str:
    """Of these, and of what applies and stores them."""
    found = hashlib.sha256(f"{django.__version__} {program('pg_dump')}".encode())
    for path in files:
        found.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """The processes of pytest-xdist begin together: one migrates, the others wait for its dump."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _connected_to_template() -> Iterator[None]:
    where = connection.settings_dict
    name = where["NAME"]
    connection.close()
    where["NAME"] = TEMPLATE
    try:
        yield
    finally:
        connection.close()
        where["NAME"] = name


def _run(name: str, *arguments: str) -> None:
    reached = _reached()
    address = [f"--host={reached['host']}", f"--username={reached['user']}", f"--dbname={TEMPLATE}"]
    command = [program(name), "--quiet" if name == "psql" else "--no-password", *address]
    subprocess.run([*command, *arguments], check=True, stdout=subprocess.DEVNULL)


def _reached() -> dict[str, str]:
    given = connection.get_connection_params()
    return {name: given[name] for name in ("host", "user")}

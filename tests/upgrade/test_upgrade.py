"""A site of each release becomes one of this version, and every page it had still answers."""

import gzip
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.test import Client

from apps.accounts.models import User
from apps.common import health

RELEASES = sorted(path.parent for path in Path(__file__).parent.glob("*/site.sql.gz"))


@pytest.fixture
def another_database(django_db_setup: None, django_db_blocker: Any) -> Iterator[str]:
    """An empty database that Django is connected to, beside the suite's own."""
    name, where = "upgrade", connection.settings_dict
    own = where["NAME"]
    with django_db_blocker.unblock(), connection._nodb_cursor() as cursor:
        cursor.execute(f"drop database if exists {name}")
        cursor.execute(f"create database {name}")
        connection.close()
        where["NAME"] = name
        try:
            yield name
        finally:
            connection.close()
            where["NAME"] = own
            cursor.execute(f"drop database {name}")


def raw_connection() -> psycopg.Connection:
    return psycopg.connect(**connection.get_connection_params() | {"cursor_factory": None})


def site_load(release: Path) -> None:
    """The site of a release, into the database that Django is connected to."""
    with raw_connection() as raw:
        raw.execute(gzip.decompress((release / "site.sql.gz").read_bytes()).decode())


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.name)
def test_a_site_of_a_release_is_migrated_and_answers_as_before(release, another_database):
    site_load(release)
    call_command("migrate", verbosity=0)
    client = Client()
    client.force_login(User.objects.get(username="ada"))
    paths = (release / "requests.txt").read_text().split()
    answers = {path: client.get(path).status_code for path in paths}
    assert len(answers) > 100
    assert answers == dict.fromkeys(paths, 200)


def test_a_database_from_before_the_first_release_is_refused_with_a_sentence(
    another_database, monkeypatch
):
    with connection.cursor() as cursor:
        cursor.execute(
            "create table django_migrations (id serial, app text, name text, applied timestamptz);"
            "insert into django_migrations (app, name) values"
            " ('accounts', '0001_initial'), ('accounts', '0002_append_only_audit'),"
            " ('labeling', '0002_votes_are_kept'), ('somebody_else', '0009_not_ours')"
        )
        with pytest.raises(CommandError) as refused:
            call_command("migrate", verbosity=0)
        cursor.execute("select count(*) from information_schema.tables where table_name ~ '^acc'")
        assert cursor.fetchone() == (0,)
    said = str(refused.value)
    assert "accounts.0002_append_only_audit, labeling.0002_votes_are_kept are not known" in said
    assert "before 0.2.0 cannot be upgraded" in said
    monkeypatch.setattr(health, "_migrated", False)
    assert "another version" in health.migrations()


def test_a_database_of_a_newer_version_names_its_migrations(another_database):
    site_load(RELEASES[-1])
    with connection.cursor() as cursor:
        cursor.execute(
            "insert into django_migrations (app, name, applied)"
            " values ('training', '9999_of_the_future', now())"
        )
    with pytest.raises(CommandError, match=r"training\.9999_of_the_future is not known") as refused:
        call_command("migrate", verbosity=0)
    assert "needs the version that made it, or a newer one" in str(refused.value)


# Somebody's open transaction.


@pytest.fixture
def blocker(another_database: str) -> Iterator[psycopg.Connection]:
    """A session that reads tables of the last release, and does not end."""
    site_load(RELEASES[-1])
    with raw_connection() as raw:
        raw.execute("lock table accounts_project, labeling_comparison, training_run in share mode")
        raw.execute("select 'an open report'")
        yield raw
        raw.rollback()


class Said(StringIO):
    """What a command writes, and what to do when it does."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._then = then

    def write(self, text: str) -> int:
        self._then()
        return super().write(text)


def test_a_migration_does_not_wait_for_an_open_transaction_and_names_it(blocker):
    said = Said()
    with pytest.raises(CommandError, match=r"waited 2 times 0\.6 s for a lock") as refused:
        call_command("migrate", verbosity=0, lock_seconds=0.6, tries=2, stderr=said)
    pid = blocker.info.backend_pid
    assert f"process {pid} of postgres" in str(refused.value)
    assert "an open report" in str(refused.value)
    assert "try 2 of 2" in said.getvalue()
    with connection.cursor() as cursor:
        cursor.execute("show lock_timeout")
        assert cursor.fetchone() == ("0",)


def test_a_migration_goes_on_once_the_transaction_has_ended(blocker):
    said = Said(then=blocker.rollback)
    call_command("migrate", verbosity=0, lock_seconds=0.6, tries=3, stderr=said)
    assert "try 2 of 3" in said.getvalue()
    assert health.unknown_migrations(MigrationLoader(connection)) == []
    assert (
        MigrationExecutor(connection).migration_plan(MigrationLoader(connection).graph.leaf_nodes())
        == []
    )

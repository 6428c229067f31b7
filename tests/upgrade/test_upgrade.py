"""A site of each release becomes one of this version, and every page it had still answers."""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
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


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.name)
def test_a_site_of_a_release_is_migrated_and_answers_as_before(release, another_database):
    site = gzip.decompress((release / "site.sql.gz").read_bytes()).decode()
    with psycopg.connect(**connection.get_connection_params() | {"cursor_factory": None}) as raw:
        raw.execute(site)
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

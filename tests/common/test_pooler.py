"""Through a PgBouncer in transaction mode: every transaction may have another connection."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, connections, transaction
from django.test import Client

from apps.accounts.models import AuditEvent, Project, User
from apps.accounts.services import audit_record
from apps.common import environment as env
from apps.common.locks import direct_place, lock_held, settings_at
from apps.common.transactions import prepared_cursor
from apps.labeling import dispatch
from apps.labeling.models import Comparison, ImportJob, Vote
from apps.labeling.services import importing
from apps.snapshots.recipe import SnapshotRecipe
from apps.snapshots.services import drafts, freezing
from apps.training.services import queueing
from tests.labeling.pairs import annotators_make, checked, imported, pairs_make, rows_make, upload
from tests.labeling.pairs import vote as cast
from tests.pooler import CONNECTIONS, installed, pgbouncer, pooled_url
from tests.training.stack import database_url

SETTING = {"DISABLE_SERVER_SIDE_CURSORS": True}  # as config/settings.py sets it


@pytest.fixture(scope="module")
def pooler(django_db_setup: None) -> Iterator[str]:
    if installed() is None:
        pytest.skip("PgBouncer is not installed")
    with pgbouncer(direct_place()["host"]) as folder:
        yield folder


@pytest.fixture
def pooled(pooler: str, transactional_db: None, settings: Any) -> Iterator[None]:
    """Every connection of Django in this process, of any thread, goes through it."""
    given = connection.settings_dict
    before = dict(given)
    settings.DATABASE_DIRECT_URL = database_url()
    connection.close()
    given.update(settings_at(given, pooled_url(pooler, given["NAME"])), **SETTING)
    try:
        yield
    finally:
        connection.close()
        given.clear()
        given.update(before)


@pytest.fixture
def busy(pooled: None) -> Iterator[None]:
    """Others use the pool all the while, so that nobody gets the same connection for long."""
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("select count(*) from django_content_type")
        connections.close_all()

    threads = [threading.Thread(target=ask) for _ in range(CONNECTIONS)]
    for one in threads:
        one.start()
    yield
    done.set()
    for one in threads:
        one.join()


def at_once(acts: list[Callable[[], Any]]) -> list[BaseException]:
    """What they raised."""
    wrong: list[BaseException] = []

    def do(act: Callable[[], Any]) -> None:
        try:
            act()
        except BaseException as error:
            wrong.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=do, args=(act,)) for act in acts]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return wrong


def backends(cursor: Any = None) -> set[int]:
    """The processes of PostgreSQL that a few transactions of this thread had."""
    found = set()
    for _ in range(200):
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("select pg_backend_pid()")
            found.add(cursor.fetchone()[0])
    return found


def test_transactions_of_one_client_have_several_connections(busy: None) -> None:
    """Or the tests below would prove nothing."""
    assert len(backends()) > 1


def test_votes_of_many_are_cast_at_once(pooled: None, project: Project) -> None:
    pairs_make(project, 8, overlap=5)
    people = annotators_make(project, 5)

    def label(person: User) -> Callable[[], None]:
        def act() -> None:
            for _ in range(8):
                cast(project, person)

        return act

    assert at_once([label(person) for person in people]) == []
    assert Vote.objects.count() == 5 * 8


def test_statements_that_are_prepared_elsewhere_are_not_here(busy: None) -> None:
    for number in range(100):
        with transaction.atomic(), prepared_cursor() as cursor:
            cursor.execute("select %s::int", [number])
            assert cursor.fetchone() == (number,)


def test_an_import_holds_its_lock_over_many_transactions(
    busy: None, project: Project, emil: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "import_send", lambda job: True)
    seen = []
    work = importing._work

    def watched(job: ImportJob, progress: Any) -> None:
        seen.append(importing.is_running(job.number))
        work(job, progress)
        seen.append(importing.is_running(job.number))

    monkeypatch.setattr(importing, "_work", watched)
    job = imported(checked(upload(project, emil, *rows_make(50))))
    assert job.state == "done", job.error
    assert seen == [True] * 4
    assert not importing.is_running(job.number), "nobody holds it any more"
    assert Comparison.objects.count() == 50


def test_a_dataset_is_frozen_under_its_lock(busy: None, project: Project, emil: User) -> None:
    pairs_make(project, 12, overlap=2)
    for person in annotators_make(project, 2):
        for _ in range(12):
            cast(project, person)
    recipe = SnapshotRecipe(
        splits={"train": 0.6, "dev": 0.4}, least_votes=2, least_agreeing=2, seed="s"
    )
    frozen = freezing.snapshot_freeze(project=project, name="pairs", recipe=recipe, user=emil)
    assert frozen.counts["rows"]["train"] + frozen.counts["rows"]["dev"] == 12
    with drafts.alone(frozen.pk) as free:
        assert free
        assert drafts.is_made(frozen.pk)
        with drafts.alone(frozen.pk) as again:
            assert not again
    assert not drafts.is_made(frozen.pk)


def test_a_lock_is_waited_for_and_let_go_of(busy: None) -> None:
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with lock_held("%s", [77]):
            held.set()
            let_go.wait(60)

    def wait() -> None:
        held.wait(60)
        with lock_held("%s", [77]) as free:
            assert not free
        let_go.set()
        with lock_held("%s", [77], wait=True) as free:
            assert free

    assert at_once([hold, wait]) == []


def test_a_long_answer_is_read_to_its_end_while_others_ask(
    busy: None, project: Project, ada: User, signed_in: Callable[[User], Client]
) -> None:
    for number in range(1_500):
        audit_record(action="token.created", actor=ada, project=project, subject=str(number))
    client = signed_in(ada)
    there = AuditEvent.objects.filter(project=project).count()
    text = client.get("/p/arguments/audit-log.csv").getvalue().decode()
    assert len(text.splitlines()) >= there
    ids = []
    for event in AuditEvent.objects.iterator(chunk_size=100):
        Vote.objects.exists()  # a transaction of its own, between two parts
        ids.append(event.pk)
    assert len(ids) == AuditEvent.objects.count()


def test_admission_is_one_at_a_time(busy: None) -> None:
    inside, most = [], []
    guard = threading.Lock()

    def enter() -> None:
        with transaction.atomic():
            queueing._lock()
            with guard:
                inside.append(1)
                most.append(len(inside))
            with connection.cursor() as cursor:
                cursor.execute("select pg_sleep(0.02)")
            with guard:
                inside.pop()

    assert at_once([enter] * 6) == []
    assert max(most) == 1


def test_migrations_go_past_the_pooler_and_leave_no_limit_in_it(
    busy: None, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = []

    def watched(self: Any, *args: Any, **options: Any) -> None:
        places.append(connection.get_connection_params()["host"])
        with connection.cursor() as cursor:
            cursor.execute("show lock_timeout")
            places.append(cursor.fetchone()[0])

    monkeypatch.setattr("django.core.management.commands.migrate.Command.handle", watched)
    call_command("migrate", stdout=StringIO())
    assert places == [direct_place()["host"], "5s"]
    limits = set()
    for _ in range(100):
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("show lock_timeout")
            limits.add(cursor.fetchone()[0])
    assert limits == {"0"}


def test_a_process_starts_with_the_pooler_and_knows_the_server_itself(
    pooler: str, transactional_db: None
) -> None:
    database = connection.settings_dict["NAME"]
    given = {
        "DATABASE_URL": pooled_url(pooler, database),
        "DATABASE_DIRECT_URL": database_url(),
    }
    text = (
        "import django, json; django.setup();"
        "from django.db import connection; from apps.accounts.models import User;"
        "from apps.common.locks import direct_place; User.objects.count();"
        "print(json.dumps([connection.settings_dict['DISABLE_SERVER_SIDE_CURSORS'],"
        " connection.get_connection_params()['host'], direct_place()['host']]))"
    )
    run = started(text, given)
    assert run.returncode == 0, run.stderr
    server = direct_place()["host"]
    assert json.loads(run.stdout.splitlines()[-1]) == [True, pooler, server]


@pytest.mark.parametrize("name", ["DATABASE_DIRECT_URL", "DATABASE_OWNER_URL"])
def test_what_must_go_past_the_pooler_may_not_name_it(name: str) -> None:
    direct = {"DATABASE_DIRECT_URL": "postgresql://concord@db/concord"}
    given = {"DATABASE_URL": "postgresql://concord@pooler:6432/concord"} | direct
    run = started("import config.settings", given | {name: "postgresql://x@pooler:6432/concord"})
    assert run.returncode != 0
    assert name in run.stderr


def started(text: str, given: dict[str, str]) -> subprocess.CompletedProcess[str]:
    own = {"DJANGO_SETTINGS_MODULE": "config.settings"} | given
    return subprocess.run(
        [sys.executable, "-c", text],
        cwd=env.ROOT,
        env=os.environ | own,
        capture_output=True,
        text=True,
        check=False,
    )

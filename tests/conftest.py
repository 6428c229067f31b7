"""Fixtures of the whole suite. The servers come from `tests.servers`, loaded earlier."""

import contextlib
import gc
import os
from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection
from django.test import TransactionTestCase
from hypothesis import settings
from pytest_django import DjangoDbBlocker
from xdist.scheduler import LoadScopeScheduling

from apps.common.admission import Admission
from apps.common.embedded.postgres import APPLICATION, ROLES_SQL, SUPERUSER
from tests.database import as_superuser, tables_empty
from tests.migrated import TEMPLATE, template_make
from tests.slow import listed

pytest_plugins = ["tests.people"]

# Loaded machines miss deadlines, a derandomised run fails for everybody or nobody, and a database
# of examples would litter the checkout.
settings.register_profile("suite", deadline=None, derandomize=True, database=None)
settings.load_profile("suite")


# Folders whose tests share trainings that take long: one process runs them all.
TOGETHER = ("tests/workers/recipes",)
# Folders and files whose tests train, drive a browser or start servers, trainers or databases of
# their own: `make test-spread` runs them.
SPREAD = (
    *(f"{folder}/" for folder in TOGETHER),
    "tests/browser/",
    "tests/clients/test_live.py",
    "tests/test_offline.py",
    "tests/upgrade/",
    "tests/web/test_drawn_requests.py",
    "tests/web/test_proxy.py",
    "tests/workers/test_ranks.py",
    "tests/workers/test_supervisor.py",
    "tests/workers/test_train.py",
)
SLOW = listed()  # … and tests that take over a second for other reasons, simulations above all
# Load, killed actors and the way over S3: a minute or more each, run by `make test-system`.
LONG = (
    "tests/browser/test_every_dataset.py",
    "tests/labeling/test_many_clients.py",
    "tests/remote/test_frozen_over_s3.py",
    "tests/workers/ray/test_actor_ends.py",
    "tests/workers/ray/test_actors.py",
)


class Together(LoadScopeScheduling):
    """A file's tests, and those of a folder with shared trainings, run in one process.

    pytest-xdist 3.8 has `xdist_group` for this, which pytest 9.2 leaves without effect: the names
    of tests no longer come from the attribute it writes."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return next((folder for folder in TOGETHER if file.startswith(f"{folder}/")), file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Together:
    return Together(config, log)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    request: pytest.FixtureRequest,
    django_db_modify_db_settings_parallel_suffix: None,
    django_db_blocker: DjangoDbBlocker,
) -> None:
    """The test database is a copy of one that need not be migrated every time."""
    if cache := getattr(request.config, "cache", None):  # none with `-p no:cacheprovider`
        with django_db_blocker.unblock():
            template_make(cache.mkdir("migrated"))
        connection.settings_dict["TEST"]["TEMPLATE"] = TEMPLATE


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Once the tables are there, every new connection has the application's rights and no more. In
    the end no thread of a server that a test left at work keeps the database from being dropped."""
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute(ROLES_SQL.read_text())
        name = connection.ops.quote_name(connection.settings_dict["NAME"])
        cursor.execute(f"alter role {SUPERUSER} in database {name} set role = {APPLICATION}")
        connection.close()
        database = connection.settings_dict["NAME"]
    yield
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as superuser:
        superuser.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", [database]
        )


@pytest.fixture(scope="session", autouse=True)
def _patient_flush() -> Generator[None]:
    """Emptying the tables after a test may meet a worker that still writes, and PostgreSQL ends
    one of two that wait for each other. What is left then would fail the next test."""

    def again(case: TransactionTestCase) -> None:
        with as_superuser():
            for _ in range(4):
                with contextlib.suppress(OperationalError):
                    return tables_empty()
            return tables_empty()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", again)
        yield


@pytest.fixture(autouse=True)
def _downloads_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests leave downloads unread, which keep their places until they are closed; those of places
    set their own."""
    from apps.common import front, turns

    monkeypatch.setattr(turns, "MOST_PAGES", 0)
    names = ("served", "others", "per_person", "per_project", "heavy", "heavy_per_project")
    limits = replace(front.limits, **dict.fromkeys((*names, "files", "files_per_project"), 1_000))
    monkeypatch.setattr(front, "admission", Admission(limits))


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Modules stay once they are imported, torch's among them: to look through them for garbage
    again and again is a fifth of the time that collecting tests takes."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """Browser tests last: Playwright leaves an event loop running in the main thread. The shared
    trainings begin right before them, so that with two processes one trains while one clicks.

    Browser and stack tests, which wait for other processes on a busy machine, may try a second
    time; a summary names them.
    """
    for item in items:
        if item.get_closest_marker("browser") or item.get_closest_marker("stack"):
            item.add_marker(pytest.mark.flaky(reruns=1))
        is_slow = item.nodeid.partition("[")[0] in SLOW
        if is_slow or any(place in item.path.as_posix() for place in SPREAD):
            item.add_marker(pytest.mark.spread)
        if item.path.as_posix().endswith(LONG):
            item.add_marker(pytest.mark.long)
    yield
    items.sort(key=_late)  # after pytest-django, which puts tests without a database last


def _late(item: pytest.Item) -> int:
    path = item.path.as_posix()
    return 2 if "tests/browser/" in path else any(f"{name}/" in path for name in TOGETHER)

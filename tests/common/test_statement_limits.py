"""Statements of pages end in time, and those that may take long are left alone."""

import logging
import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction
from django.test import Client
from pytest_django.fixtures import Settings

from apps.accounts.models import Project, User
from apps.accounts.services import token_create
from apps.common import environment, health
from apps.common.environment import BadEnvironment, session_settings
from apps.common.transactions import long_statements
from apps.labeling.models import ImportJob
from tests.labeling.pairs import upload

ROOT = Path(__file__).resolve().parents[2]
LIMITS = ("STATEMENT_SECONDS", "LONG_STATEMENT_SECONDS", "TASK_STATEMENT_SECONDS")


def options_of(process: str, monkeypatch: pytest.MonkeyPatch, **variables: str) -> str:
    """What a process of this kind says when it connects."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(environment, "process", process)
    found = runpy.run_path(str(ROOT / "config/settings.py"))
    return str(found["DATABASES"]["default"]["OPTIONS"].get("options", ""))


def reconnect(options: str) -> None:
    connection.close()
    if options:
        connection.settings_dict["OPTIONS"]["options"] = options
    else:
        connection.settings_dict["OPTIONS"].pop("options", None)


@pytest.fixture
def limited(transactional_db: None) -> Iterator[Callable[..., None]]:
    """Connect again with these limits, in milliseconds."""

    def limit(**milliseconds: int) -> None:
        reconnect(" ".join(f"-c {name}={value}" for name, value in milliseconds.items()))

    yield limit
    reconnect("")


def asked(statement: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0]


def sleeping(*_: Any, **__: Any) -> Any:
    return asked("select pg_sleep(60)")


ALONE = "-c max_parallel_workers_per_gather=0"  # of pages: no second core for one statement


def test_pages_have_a_limit_tasks_a_longer_one_and_commands_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    web = options_of("web", monkeypatch)
    assert web == (
        "-c statement_timeout=30s -c lock_timeout=15s -c idle_in_transaction_session_timeout=120s"
        f" {ALONE}"
    )
    assert options_of("tasks", monkeypatch) == "-c statement_timeout=7200s"
    assert options_of("command", monkeypatch) == ""
    none = {"STATEMENT_SECONDS": "0", "LOCK_SECONDS": "0", "IDLE_TRANSACTION_SECONDS": "0"}
    assert options_of("web", monkeypatch, **none) == ALONE


@pytest.mark.parametrize(
    ("module", "process"),
    [("config.wsgi", "web"), ("config.asgi", "web"), ("config.celery", "tasks")],
)
def test_each_program_says_what_it_is_before_settings_are_read(module: str, process: str) -> None:
    code = f"import {module}; from django.conf import settings; print(settings.PROCESS)"
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.strip() == process


def test_an_address_with_options_of_its_own_keeps_them() -> None:
    said = session_settings("-c search_path=one", statement_timeout="3s", lock_timeout="0s")
    assert said == {"options": "-c statement_timeout=3s -c search_path=one"}


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_that_is_no_number_stops_the_start_and_is_named(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadEnvironment, match=f"{name}='soon'"):
        options_of("web", monkeypatch, **{name: "soon"})


def test_a_long_limit_below_the_usual_one_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadEnvironment, match="LONG_STATEMENT_SECONDS"):
        options_of("web", monkeypatch, STATEMENT_SECONDS="30", LONG_STATEMENT_SECONDS="20")


def test_a_page_whose_statement_takes_too_long_says_so_and_the_next_works(
    limited: Any,
    ana: User,
    signed_in: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    from apps.accounts.views import account

    client = signed_in(ana)
    limited(statement_timeout=300)
    backend = asked("select pg_backend_pid()")
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(account, "tokens_of", sleeping)
        answer = client.get("/account/")
    assert answer.status_code == 503
    assert "Ask for less at once" in answer.text
    assert "Retry-After" not in answer.headers
    lines = [one for one in caplog.records if one.name == "apps.common.middleware"]
    assert [(one.levelname, one.exc_info) for one in lines] == [("WARNING", None)]
    assert "statement_too_long at /account/: canceling statement" in lines[0].getMessage()
    assert client.get("/account/").status_code == 200
    assert asked("select pg_backend_pid()") == backend, "on the connection that there was"


def test_the_api_says_it_by_a_code_and_programs_are_not_told_to_ask_again(
    limited: Any, emil: User, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    from apps.labeling.api import finding

    _, token = token_create(user=emil, name="t", scopes=["read"], days=1)
    limited(statement_timeout=300)
    monkeypatch.setattr(finding.finding, "comparisons_page", sleeping)
    url = f"/api/v1/projects/{project.slug}/comparisons"
    answer = Client().get(url, headers={"Authorization": f"Bearer {token}"})
    assert (answer.status_code, answer.json()["code"]) == (503, "statement_too_long")
    assert "Retry-After" not in answer.headers


def test_a_statement_that_fails_while_an_answer_is_written_out_is_named_as_any_other(
    limited: Any, emil: User, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pydantic reads the fields of a row, and keeps the words of what goes wrong alone."""
    _, token = token_create(user=emil, name="t", scopes=["read"], days=1)
    job = upload(project, emil, {"prompt": "p", "response_a": "a", "response_b": "b"})
    url = f"/api/v1/projects/{project.slug}/imports/{job.pk}"

    def read() -> tuple[int, str]:
        client = Client(raise_request_exception=False)
        answer = client.get(url, headers={"Authorization": f"Bearer {token}"})
        return answer.status_code, answer.json().get("code", "")

    def cut_off(*_: Any) -> Any:
        return asked("set role none; select pg_terminate_backend(pg_backend_pid())")

    assert read() == (200, "")
    limited(statement_timeout=300)
    for fault, said in (
        (sleeping, (503, "statement_too_long")),
        (cut_off, (503, "database_unavailable")),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(ImportJob, "people", property(fault))
            assert read() == said
        connection.close_if_unusable_or_obsolete()  # as between two requests
    with monkeypatch.context() as patch:
        patch.setattr(ImportJob, "people", property(lambda _: [object()]))
        assert read() == (500, "internal")  # ours
    assert read() == (200, "")


def test_the_apis_description_names_what_a_cut_off_statement_answers() -> None:
    answers = Client().get("/api/v1/openapi.json").json()["paths"]["/api/v1/me"]["get"]["responses"]
    assert "statement_too_long" in answers["503"]["description"]


def test_nothing_is_left_half_done(
    limited: Any, ada: User, project: Project, signed_in: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is written, then the audit log takes too long."""
    from apps.accounts.services import projects

    client = signed_in(ada)
    limited(statement_timeout=300)
    wrote = []

    def slow(**_: Any) -> None:
        wrote.append(Project.objects.get(pk=project.pk).name)
        sleeping()

    monkeypatch.setattr(projects, "audit_record", slow)
    sent = {"name": "Another name", "description": ""}
    answer = client.post(f"/p/{project.slug}/project/", sent)
    assert (answer.status_code, wrote) == (503, ["Another name"])
    assert Project.objects.get(pk=project.pk).name == "Arguments"


def test_who_waits_too_long_for_a_lock_is_told_to_try_again(
    limited: Any, ada: User, project: Project, signed_in: Any
) -> None:
    client = signed_in(ada)
    limited(lock_timeout=200)
    reach = {"dbname": connection.settings_dict["NAME"]}
    with psycopg.connect(os.environ["DATABASE_URL"], **reach) as other:
        other.execute("select from accounts_project where id = %s for update", [project.pk])
        sent = {"name": "Another name", "description": ""}
        answer = client.post(f"/p/{project.slug}/project/", sent)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert "Somebody else is changing" in answer.text


def test_a_statement_of_a_task_is_not_cut_off_by_the_limit_of_pages(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        reconnect(options_of("tasks", monkeypatch, STATEMENT_SECONDS="1"))
        assert asked("show statement_timeout") == "2h"
        assert asked("select 1 from pg_sleep(1.2)") == 1
    finally:
        reconnect("")


def test_what_reads_much_may_take_longer_and_nothing_of_that_stays_with_the_connection(
    limited: Any, settings: Settings, project: Project
) -> None:
    limited(statement_timeout=20_000)
    settings.LONG_STATEMENT_SECONDS = 600
    long_statements(True)
    assert asked("show statement_timeout") == "10min"
    with transaction.atomic():
        assert asked("show statement_timeout") == "10min"
        with transaction.atomic():
            assert asked("show statement_timeout") == "10min"
    rows = Project.objects.order_by("pk").iterator(1)  # a cursor of the server, held open
    assert next(rows) == project
    long_statements(False)
    assert asked("show statement_timeout") == "20s"
    with transaction.atomic():
        assert asked("show statement_timeout") == "20s"


@pytest.mark.parametrize(
    ("url", "allowed"),
    [("comparisons/votes/?format=csv", "10min"), ("comparisons/", "20s")],
)
def test_an_export_has_the_long_limit_and_a_page_the_usual_one(
    url: str,
    allowed: str,
    limited: Any,
    emil: User,
    project: Project,
    signed_in: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from apps.accounts import permissions

    seen = []
    get = permissions.membership_get

    def looked(**given: Any) -> Any:
        seen.append(asked("show statement_timeout"))
        return get(**given)

    client = signed_in(emil)
    limited(statement_timeout=20_000)
    monkeypatch.setattr(permissions, "membership_get", looked)
    answer = client.get(f"/p/{project.slug}/{url}")
    assert answer.status_code == 200
    if answer.streaming:
        assert list(answer.streaming_content), "read, and so closed"
    assert seen == [allowed]
    assert asked("show statement_timeout") == "20s"


def test_a_limit_that_does_not_arrive_is_remarked_upon(limited: Any, settings: Settings) -> None:
    """As behind a pooler that keeps back what a connection asks for."""
    settings.PROCESS = "web"
    limited(lock_timeout=200)
    assert "no time limit" in str(health.statements_unlimited())
    limited(statement_timeout=30_000)
    assert health.statements_unlimited() is None
    settings.STATEMENT_SECONDS = 0
    limited(lock_timeout=200)
    assert health.statements_unlimited() is None, "nobody wants one"

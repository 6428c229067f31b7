"""What stands in the log: ids of request, task and job; no secrets, and no text that people or
models wrote."""

import io
import json
import logging
import logging.config
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from celery.signals import before_task_publish, task_postrun, task_prerun
from django.db import IntegrityError, transaction
from django.test import Client
from structlog.contextvars import bind_contextvars, clear_contextvars

import config.celery  # noqa: F401 - connects the signals of tasks
from apps.accounts.models import ApiToken, Project, User
from apps.accounts.services import token_create
from apps.labeling.models import Response
from tests.labeling.pairs import rows_make
from workers import logs

TEXT = "MAUVE-HIPPOPOTAMUS"  # planted in an answer
PLANTED_PASSWORD = "planted-pass-word"
LOGGER = logging.getLogger("concord.tests")


@contextmanager
def logged(style: str = logs.JSON, level: str = "DEBUG") -> Iterator[io.StringIO]:
    """All that is logged inside the block, at its most talkative, as processes would write it."""
    written = io.StringIO()
    configuration = logs.configuration(level=level, style=style)
    handler = logging.StreamHandler(written)
    formatter = configuration["formatters"]["events"]
    handler.setFormatter(formatter.pop("()")(**formatter))
    root = logging.getLogger()
    before = root.level
    quiet = {n: logging.getLogger(n).level for n in ("django.request", "concord.denied")}
    for name in quiet:
        logging.getLogger(name).setLevel("DEBUG")
    root.addHandler(handler)
    root.setLevel(level)
    try:
        yield written
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
        for name, old in quiet.items():
            logging.getLogger(name).setLevel(old)
        clear_contextvars()


def lines(written: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in written.getvalue().splitlines()]


def test_a_refusal_s_line_names_the_request_that_its_answer_names(
    client: Client, project: Project
) -> None:
    with logged() as written:
        answer = client.get("/p/arguments/", HTTP_X_REQUEST_ID="forged-by-a-stranger")
        refused = client.get("/api/v1/projects/arguments")
    assert answer["X-Request-ID"] != "forged-by-a-stranger"  # no proxy of ours
    (line,) = [one for one in lines(written) if one["logger"] == "concord.denied"]
    assert line["request"] == refused["X-Request-ID"]
    assert line["level"] == "warning"


def test_a_proxy_s_id_is_kept(client: Client, settings: Any) -> None:
    from ipaddress import ip_network

    settings.TRUSTED_PROXIES = [ip_network("127.0.0.0/8")]
    assert client.get("/livez", HTTP_X_REQUEST_ID="a1b2c3d4e5f6")["X-Request-ID"] == "a1b2c3d4e5f6"
    odd = client.get("/livez", HTTP_X_REQUEST_ID="two words\n")["X-Request-ID"]
    assert "two" not in odd


def test_a_task_goes_by_the_request_that_led_to_it_and_by_its_job() -> None:
    headers: dict[str, Any] = {"task": "apps.common.tasks.sweep_scratch", "id": "t1"}
    with logged() as written:
        bind_contextvars(request="0123456789abcdef")
        before_task_publish.send(sender="x", headers=headers, body=([], {}, {}))
        clear_contextvars()
        task = SimpleNamespace(
            name="workers.tasks.run_job", request=headers | {"concord_job": "run-1/2"}
        )
        task_prerun.send(sender="t", task_id="t1", task=task)
        LOGGER.info("inside")
        task_postrun.send(sender="t", task_id="t1", task=task)
        LOGGER.info("after")
        odd = SimpleNamespace(name="x", request={logs.REQUEST_HEADER: "a b\nforged line"})
        task_prerun.send(sender="t", task_id="t2", task=odd)
        LOGGER.info("odd")
    inside, after, other = [one for one in lines(written) if one["logger"] == "concord.tests"]
    assert inside["request"] == "0123456789abcdef"
    assert inside["job"] == "run-1/2"
    assert inside["task_id"] == "t1"
    assert "task" not in after
    assert "request" not in other


def quoted_by_the_database(row: dict[str, Any]) -> Exception:
    with pytest.raises(IntegrityError) as raised, transaction.atomic():
        Response.objects.create(**row)
    return raised.value


@pytest.mark.parametrize("style", logs.STYLES)
def test_no_secret_and_no_written_text_is_logged(
    style: str,
    project: Project,
    ada: User,
    signed_in: Callable[[User], Client],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("METRICS_TOKEN", "planted-metrics-token")
    rows = rows_make(2)
    rows[0]["response_a"] = f"{TEXT} is an answer"
    _, token = token_create(user=ada, name="log", scopes=["read"], days=1)
    browser = signed_in(ada)
    with logged(style) as written:
        answer = browser.post(
            "/api/v1/projects/arguments/comparisons/import",
            {"rows": rows},
            content_type="application/json",
        )
        assert answer.status_code == 201, answer.content
        # The database refuses a row and quotes it.
        one = Response.objects.filter(brief__icontains=TEXT).values().get()
        for wrong in (one, one | {"id": None, "prompt_id": None}):
            error = quoted_by_the_database(wrong)
            LOGGER.warning("refused: %s", error, exc_info=error)
        assert TEXT in str(error), "the planted text must be at risk"
        Client().post("/sign-in/", {"login": "ada", "password": PLANTED_PASSWORD})
        Client().get("/api/v1/projects", headers={"Authorization": f"Bearer {token}"})
        Client().get("/api/v1/projects", headers={"Authorization": f"Bearer {token}x"})
        LOGGER.warning("asked with Bearer %s at redis://worker:%s@host", token, "pass-of-redis")
        LOGGER.warning("METRICS_TOKEN is planted-metrics-token; whsec_%s", "A" * 40)
    said = written.getvalue()
    assert said.count("refused") >= 2, "nothing was logged: the test would prove nothing"
    assert "[left out]" in said
    assert ApiToken.objects.count() == 1
    for secret in (TEXT, PLANTED_PASSWORD, token, "pass-of-redis", "planted-metrics", "A" * 40):
        assert secret not in said, secret


def test_a_traceback_goes_on_after_what_is_left_out() -> None:
    text = (
        "IntegrityError: null value\nDETAIL:  Failing row contains (1, two\nlines).\n\n"
        "The above exception was the direct cause of the following exception:\nmore"
    )
    said = logs.cleaned(text)
    assert "two" not in said
    assert said.endswith("of the following exception:\nmore")


def test_a_line_is_as_it_was_with_its_context_behind() -> None:
    with logged(logs.LINES) as written:
        bind_contextvars(request="0123456789abcdef")
        LOGGER.info("a %s", "sentence")
    assert written.getvalue().endswith(
        " info    concord.tests: a sentence [request=0123456789abcdef]\n"
    )

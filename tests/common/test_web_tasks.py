"""The queue of events is open to workers; the tasks of the web side are not."""

import json
from typing import Any

import pytest
from django.conf import settings

from apps.common.web_tasks import HEADER, WebTask, sign, signature
from config.celery import app
from workers.contract import wire

app.autodiscover_tasks(force=True)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a task was run with."""
    calls: list[Any] = []
    monkeypatch.setattr(
        app.tasks[wire.TASK_RUN_IMPORT], "run", lambda *args, **_: calls.append(args)
    )
    return calls


def receive(name: str, *args: Any, **headers: Any) -> None:
    """As a worker does with a message: JSON, then the task with the message's headers."""
    task = app.tasks[name]
    task.push_request(id="one", args=args, called_directly=False, is_eager=False, **headers)
    try:
        task(*json.loads(json.dumps(args)))
    finally:
        task.pop_request()


def headers_of(name: str, *args: Any) -> dict[str, Any]:
    headers = {"task": name, "id": "one"}
    sign(headers=headers, body=(args, {}, None))
    return {HEADER: headers[HEADER]}


def test_every_task_of_the_web_side_asks_for_the_signature() -> None:
    ours = [task for name, task in app.tasks.items() if name.startswith("apps.")]
    assert len(ours) > 8
    assert all(isinstance(task, WebTask) for task in ours)


def test_what_the_web_side_sends_runs(ran: list[Any]) -> None:
    receive(wire.TASK_RUN_IMPORT, "job", 1, **headers_of(wire.TASK_RUN_IMPORT, "job", 1))
    assert ran == [("job", 1)]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {HEADER: ""},
        {HEADER: "0" * 64},
        {HEADER: signature("another key", wire.TASK_RUN_IMPORT, "one", ("job", 1), {})},
        headers_of(wire.TASK_RUN_IMPORT, "job", 2),
        headers_of(wire.TASK_FREEZE, "job", 1),
    ],
)
def test_what_somebody_else_sends_does_not_run(ran: list[Any], headers: dict[str, Any]) -> None:
    receive(wire.TASK_RUN_IMPORT, "job", 1, **headers)
    assert ran == []


def test_a_former_key_is_good_as_long_as_it_is_named(
    ran: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = headers_of(wire.TASK_RUN_IMPORT, "job", 1)
    former = settings.SECRET_KEY
    monkeypatch.setattr(settings, "SECRET_KEY", "a new one")
    receive(wire.TASK_RUN_IMPORT, "job", 1, **headers)
    monkeypatch.setattr(settings, "SECRET_KEY_FALLBACKS", [former])
    receive(wire.TASK_RUN_IMPORT, "job", 1, **headers)
    assert len(ran) == 1

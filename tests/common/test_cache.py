"""What lies in Redis is neither executed nor believed, and names no session."""

import json
import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis
from django.conf import settings
from django.contrib.sessions.models import Session
from django.core.cache import cache
from django.db import OperationalError, connection, transaction
from django.test import Client

from apps.accounts.models import Project, User
from apps.common import environment as env
from apps.common.transactions import after_commit, retried
from apps.common.web_tasks import HEADER, WebTask, sign, signature
from config.celery import app
from workers.contract import wire


class Attack:
    """Unpickled, it makes a file."""

    def __init__(self, witness: Path) -> None:
        self.witness = witness

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.witness,))


@pytest.fixture
def store() -> Iterator[redis.Redis]:
    client = redis.Redis.from_url(settings.CACHE_URL)
    yield client
    client.close()


def test_a_pickle_is_a_miss(store: redis.Redis, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    store.set(cache.make_key("planted"), pickle.dumps(Attack(witness)))
    assert cache.get("planted", "a miss") == "a miss"
    assert cache.get_many(["planted"]) == {}
    assert not witness.exists()


@pytest.mark.parametrize(
    "value", ["text", {"a": [1, 2.5, None, True]}, 7, -7, "", "123", True, "ü \ud800"]
)
def test_what_was_written_is_read(value: object) -> None:
    cache.set("ours", value, 60)
    assert cache.get("ours") == value
    assert type(cache.get("ours")) is type(value)
    assert cache.get_many(["ours", "absent"]) == {"ours": value}


def test_counters_count() -> None:
    cache.delete("tries")
    assert cache.add("tries", 1, 60)
    assert not cache.add("tries", 1, 60)
    assert cache.incr("tries") == 2
    assert cache.get("tries") == 2


def test_a_value_moved_to_another_key_is_a_miss(store: redis.Redis) -> None:
    cache.set("anas", {"user": "ana"}, 60)
    store.set(cache.make_key("olgas"), store.get(cache.make_key("anas")))
    assert cache.get("olgas") is None
    changed = bytearray(store.get(cache.make_key("anas")))
    changed[-2] ^= 1
    store.set(cache.make_key("anas"), bytes(changed))
    assert cache.get("anas") is None


def test_no_session_can_be_read_from_redis_or_moved(
    store: redis.Redis, ana: User, signed_in: Callable[[User], Client]
) -> None:
    browser = signed_in(ana)
    assert browser.get("/account/").status_code == 200
    session = browser.cookies[settings.SESSION_COOKIE_NAME].value
    kept = {key: store.dump(key) and store.type(key) for key in store.scan_iter()}
    assert kept  # the session is among them, under a name that does not tell it
    for key, kind in kept.items():
        assert session.encode() not in key
        if kind == b"string":
            # one that ran out meanwhile holds nothing
            assert session.encode() not in (store.get(key) or b"")

    prefix = "django.contrib.sessions.cached_db"
    theirs = "o" * 32
    store.set(
        cache.make_key(f"{prefix}{theirs}"), store.get(cache.make_key(f"{prefix}{session}")) or b""
    )
    outsider = Client()
    outsider.cookies[settings.SESSION_COOKIE_NAME] = theirs
    assert outsider.get("/account/").status_code == 302
    assert Session.objects.filter(session_key=session).exists()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("redis://a:6379/0", "redis://user:word@A/1", True),
        ("redis://a:6379/0", "redis://a:6380/0", False),
        ("redis://a/0", "redis://b/0", False),
        ("unix:///run/r.sock?db=0", "unix:///run/r.sock?db=1", True),
        ("unix:///run/r.sock", "unix:///run/s.sock", False),
    ],
)
def test_two_addresses_of_one_server_are_told_from_two_servers(
    one: str, other: str, same: bool
) -> None:
    assert env.same_server(one, other) is same


# The queue of events is open to workers; the tasks of the web side are not.


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


# A transaction that the database ends to resolve a deadlock is run again.


@pytest.mark.django_db(transaction=True)
def test_two_who_lock_crosswise_both_get_through() -> None:
    for slug in ("one", "two"):
        Project.objects.create(slug=slug, name=slug)
    both_hold_one = threading.Barrier(2)
    tries: list[str] = []

    @retried
    @transaction.atomic
    def rename(first: str, second: str) -> None:
        tries.append(first)
        Project.objects.select_for_update().get(slug=first)
        if len(tries) <= 2:
            both_hold_one.wait(timeout=5)
        Project.objects.filter(slug=second).update(name=f"renamed by {first}")

    def run(first: str, second: str) -> None:
        try:
            rename(first, second)
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, ("one", "two"), ("two", "one")))

    names = set(Project.objects.values_list("name", flat=True))
    assert names == {"renamed by one", "renamed by two"}
    assert len(tries) >= 3  # one of them was ended, and began again; under load perhaps twice


@pytest.mark.django_db(transaction=True)
def test_another_failure_is_not_tried_again() -> None:
    tries = []

    @retried
    def fail() -> None:
        tries.append(1)
        raise OperationalError("the disk is full")

    with pytest.raises(OperationalError, match="disk"):
        fail()
    assert len(tries) == 1


@pytest.mark.django_db(transaction=True)
def test_what_fails_after_a_commit_holds_up_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done: list[str] = []

    def burst(*, name: str) -> None:
        raise ValueError(name)

    with transaction.atomic():
        after_commit(burst, name="ring")
        after_commit(lambda word: done.append(word), word="sent")
        assert done == [], "nothing happens before the commit"
    assert done == ["sent"]
    assert "ring" in caplog.text

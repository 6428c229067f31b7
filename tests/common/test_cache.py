"""What lies in Redis is neither executed nor believed, and names no session."""

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from django.conf import settings
from django.contrib.sessions.models import Session
from django.core.cache import cache
from django.test import Client

from apps.accounts.models import User
from apps.common import environment as env


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
            assert session.encode() not in store.get(key)

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

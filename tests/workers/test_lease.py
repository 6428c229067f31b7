"""The lease protocol on a real Redis: one trainer per run, whatever is lost or doubled."""

import os
import secrets
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from workers.contract import wire
from workers.contract.lease import FENCE
from workers.supervisor.connection import Lease, Line

LONG_AGO = 0.0


@pytest.fixture
def client() -> Iterator[redis.Redis]:
    client = redis.Redis.from_url(os.environ["REDIS_URL"])
    yield client
    client.close()


@pytest.fixture
def run() -> str:
    return f"lease-{secrets.token_hex(4)}"


class OldRedis:
    """The real Redis, which says that it has been up for `up` seconds, and forgets at a restart
    unless it has an append-only file."""

    def __init__(self, client: redis.Redis, up: float = 10_000, aof: int = 0) -> None:
        self._client = client
        self.up, self.aof = up, aof

    def info(self, section: str) -> dict[str, Any]:
        return {"server": {"uptime_in_seconds": self.up}, "persistence": {"aof_enabled": self.aof}}[
            section
        ]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def lease(client: redis.Redis, run: str, attempt: int = 1, seconds: float = 30) -> Lease:
    return Lease(OldRedis(client), run=run, attempt=attempt, seconds=seconds)  # type: ignore[arg-type]


def claim(client: redis.Redis, run: str, attempt: int = 1) -> str:
    return lease(client, run, attempt).claim(created_at=LONG_AGO)


def test_of_many_who_claim_an_attempt_at_once_one_gets_it(client: redis.Redis, run: str) -> None:
    answers: list[str] = []
    gate = threading.Barrier(20)

    def try_it() -> None:
        mine = lease(client, run)
        gate.wait()
        answers.append(mine.claim(created_at=LONG_AGO))

    threads = [threading.Thread(target=try_it) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == ["claimed"] + ["superseded"] * 19


def test_an_attempt_never_starts_again_even_after_its_lease(client: redis.Redis, run: str) -> None:
    first = lease(client, run)
    assert first.claim(created_at=LONG_AGO) == "claimed"
    first.release()
    assert claim(client, run, attempt=1) == "superseded"


def test_a_lower_attempt_never_starts(client: redis.Redis, run: str) -> None:
    second = lease(client, run, attempt=2)
    assert second.claim(created_at=LONG_AGO) == "claimed"
    second.release()
    assert claim(client, run, attempt=1) == "superseded"


def test_a_higher_attempt_waits_while_the_older_one_lives(client: redis.Redis, run: str) -> None:
    first = lease(client, run, 1)
    first.claim(created_at=LONG_AGO)
    second = lease(client, run, 2)
    assert second.claim(created_at=LONG_AGO) == "held"
    assert first.renew() == "wanted", "the older one hears that it should make room"
    first.release()
    assert second.claim(created_at=LONG_AGO) == "claimed"
    assert first.renew() == "lost"


def test_a_higher_attempt_gets_in_when_the_lease_ran_out(client: redis.Redis, run: str) -> None:
    lease(client, run, 1, seconds=0.1).claim(created_at=LONG_AGO)
    assert claim(client, run, 2) == "held"
    time.sleep(0.15)
    assert claim(client, run, 2) == "claimed"


def test_a_claim_whose_answer_was_lost_can_be_asked_again(client: redis.Redis, run: str) -> None:
    mine = lease(client, run)
    assert [mine.claim(created_at=LONG_AGO) for _ in range(2)] == ["claimed", "claimed"]


def test_renewing_keeps_the_lease_from_running_out(client: redis.Redis, run: str) -> None:
    mine = lease(client, run, seconds=0.3)
    mine.claim(created_at=LONG_AGO)
    for _ in range(5):
        time.sleep(0.1)
        assert mine.renew() == "renewed"
    assert client.pttl(wire.lease_key(run)) > 0


def test_a_redis_that_forgot_everything_is_told_again_by_renewing(
    client: redis.Redis, run: str
) -> None:
    mine = lease(client, run)
    mine.claim(created_at=LONG_AGO)
    client.delete(wire.lease_key(run), wire.fence_key(run))
    assert mine.renew() == "renewed"
    assert claim(client, run, attempt=1) == "superseded"


def test_a_redis_that_remembers_is_believed_at_once_after_its_restart(
    client: redis.Redis, run: str
) -> None:
    fresh = OldRedis(client, up=1, aof=1)
    mine = Lease(fresh, run=run, attempt=1, seconds=30)  # type: ignore[arg-type]
    assert mine.claim(created_at=time.time() - 60) == "claimed"


def test_the_embedded_redis_remembers(client: redis.Redis) -> None:
    assert client.info("persistence")["aof_enabled"] == 1


def test_an_attempt_from_before_a_restart_of_redis_waits_for_one_lease(
    client: redis.Redis, run: str
) -> None:
    fresh = OldRedis(client, up=10)
    mine = Lease(fresh, run=run, attempt=1, seconds=30)  # type: ignore[arg-type]
    assert mine.claim(created_at=time.time() - 60) == "held"
    assert client.exists(wire.fence_key(run)) == 0, "nothing was claimed meanwhile"
    fresh.up = 32
    assert mine.claim(created_at=time.time() - 60) == "claimed"


def test_an_attempt_that_is_newer_than_the_restart_need_not_wait(
    client: redis.Redis, run: str
) -> None:
    fresh = OldRedis(client, up=10)
    mine = Lease(fresh, run=run, attempt=1, seconds=30)  # type: ignore[arg-type]
    assert mine.claim(created_at=time.time() - 1) == "claimed"


def test_a_fenced_attempt_never_starts_and_a_started_one_cannot_be_fenced(
    client: redis.Redis, run: str
) -> None:
    assert client.eval(FENCE, 1, wire.fence_key(run), 1) == b"fenced"
    assert claim(client, run, attempt=1) == "superseded"
    assert claim(client, run, attempt=2) == "claimed"
    assert client.eval(FENCE, 1, wire.fence_key(run), 2) == b"claimed"


def test_releasing_leaves_the_lease_of_another_alone(client: redis.Redis, run: str) -> None:
    first = lease(client, run, 1, seconds=0.05)
    first.claim(created_at=LONG_AGO)
    time.sleep(0.1)
    assert claim(client, run, 2) == "claimed"
    first.release()
    assert client.get(wire.lease_key(run)).startswith(b"2:")


def test_the_age_of_a_lease_counts_from_before_the_question(client: redis.Redis, run: str) -> None:
    now = [100.0]

    class Slow(OldRedis):
        def eval(self, *args: Any) -> Any:
            now[0] += 7  # the answer takes seven seconds
            return self._client.eval(*args)

    mine = Lease(Slow(client), run=run, attempt=1, seconds=30, clock=lambda: now[0])  # type: ignore[arg-type]
    assert mine.age() == float("inf")
    mine.claim(created_at=LONG_AGO)
    assert mine.age() == 7


def test_without_redis_it_says_unreachable_and_grows_old(run: str) -> None:
    away = Line("unix:///nonexistent/redis.sock?db=0").redis
    mine = Lease(away, run=run, attempt=1, seconds=30)
    assert mine.claim(created_at=LONG_AGO) == "unreachable"
    assert mine.renew() == "unreachable"
    assert mine.age() == float("inf")
    mine.release()

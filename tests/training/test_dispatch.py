"""The web side's end of the wire, over the real Redis and over none."""

import json
import os
import secrets
import time
from collections.abc import Iterator

import pytest
import redis
from pytest_django.fixtures import Settings

from apps.training import dispatch
from apps.training.dispatch import Standing
from workers.contract import JobSpec, spec_to_json, wire
from workers.supervisor.connection import Lease, Line

JOB = {"run": "r", "attempt": 3, "queue": "short"}


@pytest.fixture
def client() -> Iterator[redis.Redis]:
    client = redis.Redis.from_url(os.environ["REDIS_URL"])
    client.delete("short")
    yield client
    client.delete("short")
    client.close()


@pytest.fixture
def name() -> str:
    return f"dispatch-{secrets.token_hex(4)}"


@pytest.fixture
def away(settings: Settings) -> None:
    settings.REDIS_URL = "unix:///nonexistent/redis.sock?db=0"


def test_a_job_is_seen_in_its_queue_until_a_worker_takes_it(client: redis.Redis) -> None:
    spec = JobSpec("r", 3, "drill", "p", 1, "/a", queue="short")
    assert dispatch.job_send(spec_to_json(spec), created_at=5.0)
    assert dispatch.jobs_waiting("short") == {("r", 3)}
    message = json.loads(client.rpop("short"))
    assert message["headers"]["task"] == wire.TASK_RUN_JOB
    assert dispatch.jobs_waiting("short") == set()


def test_foreign_messages_in_the_queue_are_passed_over(client: redis.Redis) -> None:
    client.lpush("short", json.dumps({"headers": {}}), json.dumps({"headers": {"concord_job": 5}}))
    client.lpush("short", "no json", json.dumps([1]), json.dumps({"no": "headers"}))
    assert dispatch.jobs_waiting("short") == set()


def test_a_wish_reaches_the_supervisor_and_can_be_taken_back(name: str) -> None:
    line = Line(os.environ["REDIS_URL"])
    assert line.wish(name) is None
    for wish in ("stop", "cancel"):
        assert dispatch.wish_send(name, wish)
        assert line.wish(name) == wish
    assert dispatch.wish_send(name, "")
    assert line.wish(name) is None
    line.close()


def test_an_acknowledgement_reaches_the_supervisor(name: str) -> None:
    line = Line(os.environ["REDIS_URL"])
    assert line.acked(name, 2) is None
    dispatch.ack_send(name, 2, 41)
    assert (line.acked(name, 2), line.acked(name, 1)) == (41, None)
    line.close()


def test_standing_tells_what_a_supervisor_did(client: redis.Redis, name: str) -> None:
    assert dispatch.standing(name) == Standing(leased=False, fence=0)
    lease = Lease(client, run=name, attempt=2, seconds=30)
    assert lease.claim(created_at=time.time() + 60) == "claimed"
    assert dispatch.standing(name) == Standing(leased=True, fence=2)
    assert dispatch.attempt_fence(name, 2) is False
    lease.release()
    assert dispatch.standing(name) == Standing(leased=False, fence=2)
    assert dispatch.attempt_fence(name, 3) is True
    assert dispatch.standing(name) == Standing(leased=False, fence=3)


def test_without_redis_everything_says_so_soon_and_nothing_raises(away: None, name: str) -> None:
    began = time.monotonic()
    assert dispatch.job_send(JOB, created_at=1.0) is False
    assert dispatch.wish_send(name, "cancel") is False
    assert dispatch.attempt_fence(name, 1) is None
    assert dispatch.standing(name) is None
    assert dispatch.jobs_waiting("short") is None
    dispatch.ack_send(name, 1, 1)
    assert time.monotonic() - began < 20

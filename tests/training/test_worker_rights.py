"""A training worker reaches job queues and keys in Redis, and nothing of the web side.

The worker of the stack that the other tests drive has the same rights.
"""

from collections.abc import Iterator

import pytest
import redis

from tests.training.stack import worker_redis_url
from workers.contract import wire


@pytest.fixture
def worker() -> Iterator[redis.Redis]:
    with redis.Redis.from_url(worker_redis_url()) as client:
        yield client


@pytest.mark.parametrize(
    "command",
    [
        ("GET", "concord:1:0123456789abcdef"),  # a cached page, a session
        ("SET", "concord:1:0123456789abcdef", "x"),
        ("LPUSH", wire.QUEUE_HOUSE, "x"),
        ("LPUSH", wire.QUEUE_IMPORTS, "x"),
        ("HGETALL", "web-unacked"),
        ("SADD", "_kombu.binding.house", "x"),
        ("PUBLISH", "/0.celery.pidbox", "x"),
        ("KEYS", "*"),
        ("SCAN", "0"),
        ("FLUSHALL",),
        ("CONFIG", "GET", "*"),
        ("ACL", "LIST"),
        ("DEBUG", "SLEEP", "0"),
        ("SCRIPT", "FLUSH"),
    ],
    ids=" ".join,
)
def test_what_a_worker_may_not_do(worker: redis.Redis, command: tuple[str, ...]) -> None:
    with pytest.raises(redis.exceptions.NoPermissionError):
        worker.execute_command(*command)


@pytest.mark.parametrize(
    "key", [wire.QUEUE_GPU, wire.QUEUE_GPU_LARGE, wire.QUEUE_CPU, wire.QUEUE_SHORT, "events"]
)
def test_a_worker_reaches_its_queues(worker: redis.Redis, key: str) -> None:
    assert worker.llen(key) >= 0
    assert worker.get(wire.lease_key("absent")) is None

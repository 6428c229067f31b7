"""The web side's end of the wire: jobs and commands out, what Redis knows of a run back in.

Nothing here raises when Redis is away. It answers False or None within a few seconds, and what
was not said is said again by the sweep, since the run row is the truth and messages are hints.
"""

import contextlib
import json
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import redis
from celery import Celery
from django.conf import settings
from kombu import Exchange, Queue
from kombu.exceptions import KombuError

from apps.common.redis_now import redis_now
from workers.contract import wire
from workers.contract.broker import sender_settings
from workers.contract.fleet import DRAINING_KEY
from workers.contract.lease import FENCE

log = logging.getLogger(__name__)
ACK_SECONDS = 7 * 86_400
COMMAND_SECONDS = 7 * 86_400


@dataclass(frozen=True, slots=True)
class Standing:
    """What Redis knows of a run: whether someone holds its lease, and its highest attempt that
    was ever claimed."""

    leased: bool
    fence: int


@cache
def _redis(url: str) -> redis.Redis:
    return redis_now(url)


@cache
def _sender(url: str) -> Celery:
    app = Celery("concord-dispatch", set_as_current=False, fixups=[])
    app.conf.update(sender_settings(url))
    app.conf.task_queues = [
        Queue(name, Exchange(name, type="direct"), routing_key=name) for name in wire.JOB_QUEUES
    ]
    return app


def job_send(spec: Mapping[str, Any], *, created_at: float) -> bool:
    """Offer an attempt to the workers of its queue. True: the broker has taken the message."""
    try:
        _sender(settings.REDIS_URL).send_task(
            wire.TASK_RUN_JOB,
            args=[dict(spec)],
            kwargs={"created_at": created_at},
            queue=spec["queue"],
            headers={wire.JOB_HEADER: wire.job_name(spec["run"], spec["attempt"])},
            retry=False,
        )
    except (KombuError, redis.RedisError, OSError) as error:
        log.warning("run %s stays queued, the broker is away: %s", spec["run"], error)
        return False
    return True


def jobs_waiting(queue: str) -> set[tuple[str, int]] | None:
    """(run, attempt) of every job in `queue` that no worker has taken; None when unknown."""
    try:
        messages = _redis(settings.REDIS_URL).lrange(queue, 0, -1)
    except redis.RedisError:
        return None
    return {job for job in map(_job_of, messages) if job is not None}


def _job_of(message: bytes) -> tuple[str, int] | None:
    """(run, attempt) of a message as kombu stores it; None when it is no job of ours."""
    try:
        run, _, attempt = json.loads(message)["headers"][wire.JOB_HEADER].partition("/")
        return run, int(attempt)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def command_send(run: str, command: str) -> bool:
    """Tell whoever trains `run`: "stop" or "cancel"; "" takes an old command back."""
    client = _redis(settings.REDIS_URL)
    try:
        if command:
            client.set(wire.control_key(run), command, ex=COMMAND_SECONDS)
        else:
            client.delete(wire.control_key(run))
    except redis.RedisError as error:
        log.warning("run %s: the command '%s' waits for Redis: %s", run, command, error)
        return False
    return True


def attempt_fence(run: str, attempt: int) -> bool | None:
    """Make sure `attempt` never starts. True: it never will; False: it has; None: unknown."""
    try:
        answer = _redis(settings.REDIS_URL).eval(FENCE, 1, wire.fence_key(run), attempt)
    except redis.RedisError:
        return None
    return answer == b"fenced"


def standing(run: str) -> Standing | None:
    """None when Redis does not answer: then nothing may be concluded."""
    try:
        lease, fence = _redis(settings.REDIS_URL).mget(wire.lease_key(run), wire.fence_key(run))
    except redis.RedisError:
        return None
    return Standing(leased=lease is not None, fence=int(fence or 0))


def draining_send(names: Collection[str]) -> bool:
    """Tell all workers which of them take no new run."""
    try:
        pipe = _redis(settings.REDIS_URL).pipeline(transaction=True)
        pipe.delete(DRAINING_KEY)
        if names:
            pipe.sadd(DRAINING_KEY, *names)
        pipe.execute()
    except redis.RedisError as error:
        log.warning("which workers are drained waits for Redis: %s", error)
        return False
    return True


def refusal_count() -> None:
    """One more batch that was not from the worker it named (`concord_batches_refused`)."""
    with contextlib.suppress(redis.RedisError):
        _redis(settings.REDIS_URL).incr(wire.REFUSED_KEY)


def ack_send(run: str, attempt: int, seq: int) -> None:
    """Tell the supervisor that everything up to `seq` is committed. If this is lost, it sends
    again, and we say it again."""
    try:
        _redis(settings.REDIS_URL).set(wire.ack_key(run, attempt), seq, ex=ACK_SECONDS)
    except redis.RedisError as error:
        log.warning("run %s: the acknowledgement waits for Redis: %s", run, error)

"""The line to the web side: batches out through the broker, acknowledgements and commands back.

Nothing here raises when Redis is away: it answers None or False, within about two seconds, and
`down` says so.
"""

import logging
import secrets
import time
from collections.abc import Callable
from typing import Any

import redis
from celery import Celery
from kombu import Exchange, Queue
from kombu.exceptions import KombuError
from redis.backoff import NoBackoff
from redis.retry import Retry

from workers.contract import wire
from workers.contract.broker import sender_settings
from workers.contract.lease import CLAIM, RELEASE, RENEW
from workers.control import CANCEL, STOP

TIMEOUT_S = 2.0
log = logging.getLogger(__name__)


class Line:
    def __init__(self, redis_url: str, *, timeout_s: float = TIMEOUT_S) -> None:
        self.redis = redis.Redis.from_url(
            redis_url,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=Retry(NoBackoff(), 0),  # who asks has a lease to watch, and asks again
        )
        self._app = Celery("concord-line", set_as_current=False, fixups=[])
        self._app.conf.update(sender_settings(redis_url, side="worker"))
        self._app.conf.task_queues = [
            Queue(name, Exchange(name, type="direct"), routing_key=name)
            for name in (wire.QUEUE_EVENTS, *wire.JOB_QUEUES)
        ]
        self.down = False

    def send(self, batch: dict[str, Any]) -> bool:
        """Hand a batch to the broker. True says that it was taken, not that it arrived."""
        return self._send(wire.TASK_RECORD_EVENTS, [batch], wire.QUEUE_EVENTS)

    def put_back(self, job: dict[str, Any], *, created_at: float) -> bool:
        """Offer a job again to the workers of its queue, as it came."""
        return self._send(
            wire.TASK_RUN_JOB,
            [job],
            job["queue"],
            kwargs={"created_at": created_at},
            headers={wire.JOB_HEADER: wire.job_name(job["run"], job["attempt"])},
        )

    def _send(self, task: str, args: list[Any], queue: str, **more: Any) -> bool:
        try:
            self._app.send_task(task, args=args, queue=queue, retry=False, **more)
        except (KombuError, redis.RedisError, OSError) as error:
            return self._is_down(error, False)
        return True

    def acked(self, run: str, attempt: int) -> int | None:
        """The last event number that is committed, or None when unknown."""
        try:
            value = self.redis.get(wire.ack_key(run, attempt))
        except redis.RedisError as error:
            return self._is_down(error, None)
        return int(value) if value is not None else None

    def command(self, run: str) -> str | None:
        """`stop` or `cancel`, when somebody asked for it."""
        try:
            value = self.redis.get(wire.control_key(run))
        except redis.RedisError as error:
            return self._is_down(error, None)
        word = value.decode() if isinstance(value, bytes) else None
        return word if word in (STOP, CANCEL) else None

    def batches_waiting(self) -> int | None:
        """How many batches the web side has not taken yet; None when unknown."""
        try:
            return self.redis.llen(wire.QUEUE_EVENTS)
        except redis.RedisError as error:
            return self._is_down(error, None)

    def _is_down(self, error: Exception, answer: Any) -> Any:
        if not self.down:
            log.warning("Redis does not answer: %s", error)
        self.down = True
        return answer

    def close(self) -> None:
        self.redis.close()
        self._app.close()


# This supervisor's hold on its run. The protocol itself: `workers.contract.lease`.

CLAIMED, HELD, SUPERSEDED = "claimed", "held", "superseded"
RENEWED, WANTED, LOST = "renewed", "wanted", "lost"
UNREACHABLE = "unreachable"
_CLOCKS_DIFFER_BY_S = 5.0


class Lease:
    """Claimed once, renewed until released. `clock` counts seconds also while a machine sleeps,
    so that nobody wakes up believing in a lease that has long run out."""

    def __init__(
        self,
        client: redis.Redis,
        *,
        run: str,
        attempt: int,
        seconds: float,
        clock: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        self._client = client
        self._keys = (wire.lease_key(run), wire.fence_key(run), wire.wanted_key(run))
        self._attempt = attempt
        self._token = secrets.token_hex(8)
        self._seconds = seconds
        self._clock = clock
        self._sure_at: float | None = None

    def age(self) -> float:
        """Seconds since the lease was certainly ours: since before the last renewal was asked."""
        return float("inf") if self._sure_at is None else self._clock() - self._sure_at

    def claim(self, *, created_at: float) -> str:
        """One try: claimed, held, superseded or unreachable. `created_at` (Unix seconds) is when
        this attempt came to be; with a Redis that forgets, attempts older than its start wait."""
        try:
            if self._may_be_forgotten(created_at):
                return HELD
        except redis.RedisError:
            return UNREACHABLE
        return self._ask(CLAIM, CLAIMED)

    def _may_be_forgotten(self, created_at: float) -> bool:
        if self._client.info("persistence").get("aof_enabled"):
            return False
        up = float(self._client.info("server")["uptime_in_seconds"])
        started = time.time() - up
        return created_at < started + _CLOCKS_DIFFER_BY_S and up < self._seconds + 1.0

    def renew(self) -> str:
        """renewed, wanted, lost or unreachable."""
        return self._ask(RENEW, RENEWED, WANTED)

    def _ask(self, script: str, *ours: str) -> str:
        asked_at = self._clock()
        milliseconds = int(self._seconds * 1000)
        try:
            answer = self._client.eval(
                script, len(self._keys), *self._keys, self._attempt, self._token, milliseconds
            )
        except redis.RedisError:
            return UNREACHABLE
        answer = answer.decode() if isinstance(answer, bytes) else str(answer)
        if answer in ours:
            self._sure_at = asked_at
        return answer

    def release(self) -> None:
        """Let the next attempt in. When Redis is away the lease runs out by itself."""
        try:
            self._client.eval(RELEASE, 1, self._keys[0], self._attempt, self._token)
        except redis.RedisError:
            return

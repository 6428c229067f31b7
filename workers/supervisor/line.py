"""The line to the web side: batches out through the broker, acknowledgements and wishes back.

Nothing here raises when Redis is away: it answers None or False, within about two seconds, and
`down` says so.
"""

import logging
from typing import Any

import redis
from celery import Celery
from kombu import Exchange, Queue
from kombu.exceptions import KombuError
from redis.backoff import NoBackoff
from redis.retry import Retry

from workers.contract import wire
from workers.contract.broker import sender_settings
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

    def wish(self, run: str) -> str | None:
        """`stop` or `cancel`, when somebody asked for it."""
        try:
            value = self.redis.get(wire.control_key(run))
        except redis.RedisError as error:
            return self._is_down(error, None)
        word = value.decode() if value is not None else None
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

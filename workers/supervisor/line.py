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
        exchange = Exchange(wire.QUEUE_EVENTS, type="direct")
        self._app.conf.task_queues = [
            Queue(wire.QUEUE_EVENTS, exchange, routing_key=wire.QUEUE_EVENTS)
        ]
        self.down = False

    def send(self, batch: dict[str, Any]) -> bool:
        """Hand a batch to the broker. True says that it was taken, not that it arrived."""
        try:
            self._app.send_task(
                wire.TASK_RECORD_EVENTS, args=[batch], queue=wire.QUEUE_EVENTS, retry=False
            )
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

"""Signs of life: each Celery process writes a key with an expiry, `/healthz` reads them.

`announce(app)` makes a worker beat for every queue it consumes; the scheduler beats in each of its
rounds (apps/common/scheduling.py). The sign comes from the very loop whose death would matter, not
from a thread beside it. Where ALIVE_FILE names a file, its time is that of the last sign: whoever
runs the process can tell without asking Redis, so a broker that is away restarts nobody.
"""

import contextlib
import os
import socket
import time
from pathlib import Path

import redis
from celery import Celery
from celery.signals import heartbeat_sent, worker_ready

from workers.contract.wire import ALIVE_SECONDS, BEAT_EVERY_SECONDS, alive_key


class Pulse:
    """Writes the keys of `names`, at most every few seconds; a broker that is down is skipped.
    None: this process is not ready yet."""

    def __init__(self, redis_url: str) -> None:
        self.names: list[str] | None = None
        self._due = 0.0
        self._client = redis.Redis.from_url(redis_url, socket_timeout=1, socket_connect_timeout=1)
        self._file = os.environ.get("ALIVE_FILE", "")

    def beat(self) -> None:
        now = time.monotonic()
        if now < self._due or self.names is None:
            return
        self._due = now + BEAT_EVERY_SECONDS
        if self._file:
            with contextlib.suppress(OSError):
                Path(self._file).touch()
        who = f"{socket.gethostname()}:{os.getpid()}"
        with contextlib.suppress(redis.RedisError, OSError):
            pipe = self._client.pipeline(transaction=False)
            for name in self.names:
                pipe.set(alive_key(name), who, ex=ALIVE_SECONDS)
            pipe.execute()


def announce(app: Celery) -> None:
    """Connect the signals of this process to its pulse. Called where the app is made."""
    pulses: list[Pulse] = []

    def pulse() -> Pulse:
        if not pulses:
            pulses.append(Pulse(os.environ["REDIS_URL"]))
        return pulses[0]

    def worker(sender: object = None, **_: object) -> None:
        pulse().names = sorted(app.amqp.queues.consume_from)
        beat()

    def beat(**_: object) -> None:
        pulse().beat()

    # Heart looks for receivers when it is made, which is before `worker_ready`.
    heartbeat_sent.connect(beat, weak=False)
    worker_ready.connect(worker, weak=False)

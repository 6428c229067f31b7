"""A stream of requests, as one of those who answer it sees it, and the program around it.

A request is read by one process of the group, stays on its pending list until it is answered, and
is taken over by another when it lies there untouched: each refreshes what it works on, so only what
a dead one left grows old. Answer and acknowledgement are one script.
"""

import contextlib
import logging
import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import redis

from workers.alive import Pulse
from workers.contract.channel import ANSWER, Channel, to_json
from workers.contract.wire import ContractError
from workers.logs import start_logging

WAIT_MS = 1000  # for a first request
LINGER_MS = 5  # for company, while a batch has fewer rows than it should
RETAKE_S = 15.0
MAX_DELIVERIES = 3
FORGET_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Taken:
    """A request on our pending list, delivered for the `deliveries`-th time."""

    entry: bytes
    request: Any
    deliveries: int = 1


class RequestQueue:
    """Reads, keeps and answers requests. One per process; `refresh` may run in another thread."""

    def __init__(
        self, client: redis.Redis, channel: Channel, *, retake_s: float = RETAKE_S
    ) -> None:
        self._client = client
        self.channel = channel
        self._stream, self._group = channel.stream, channel.group
        self._answer = client.register_script(ANSWER)
        self.consumer = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self.retake_s = retake_s
        self._held: set[bytes] = set()
        self._lock = threading.Lock()

    def join(self) -> None:
        """Make the group where there is none (a new or an emptied Redis)."""
        with contextlib.suppress(redis.ResponseError):  # it exists
            self._client.xgroup_create(self._stream, self._group, id="0", mkstream=True)
        for consumer in self._client.xinfo_consumers(self._stream, self._group):
            if not consumer["pending"] and consumer["idle"] > FORGET_MS:  # killed long ago
                self._client.xgroup_delconsumer(self._stream, self._group, consumer["name"])

    def take(self) -> list[Taken]:
        """What waits, from all callers: until a batch is full or nothing is left."""
        taken: list[Taken] = []
        rows = 0
        while rows < self.channel.most:
            block = WAIT_MS if not taken else LINGER_MS if rows < self.channel.fewest else None
            entry = self._read(block)
            if entry is None:
                break
            item = self._understood(*entry, deliveries=1)
            if item is not None:
                taken.append(item)
                rows += self.channel.rows(item.request)
        return taken

    def take_over(self) -> Taken | None:
        """One request that a dead process left. One at a time, and alone in its batch: the request
        that killed it must not take others with it again."""
        while True:
            answer = self._client.xautoclaim(
                self._stream,
                self._group,
                self.consumer,
                min_idle_time=int(self.retake_s * 1000),
                count=1,
            )
            entries = [entry for entry in answer[1] if entry[0] is not None]
            if not entries:
                return None
            entry, fields = entries[0]
            item = self._understood(entry, fields, deliveries=self._deliveries(entry))
            if item is None:
                continue
            if item.deliveries > MAX_DELIVERIES:
                why = (
                    f"This request ended the {self.channel.sign} {MAX_DELIVERIES} times and is not "
                    "tried again."
                )
                self.refuse(item, "poisoned", why)
                continue
            return item

    def answer(self, taken: Taken, reply: Any) -> bool:
        """Reply and acknowledge; whether it was the first answer."""
        return self._settle(taken.entry, reply)

    def refuse(self, taken: Taken, code: str, message: str) -> None:
        self._settle(taken.entry, self.channel.refusal(taken.request.id, code, message))

    @contextlib.contextmanager
    def holding(self, taken: Sequence[Taken]) -> Iterator[None]:
        """Keep these from growing old while they are worked on."""
        with self._lock:
            self._held = {item.entry for item in taken}
        try:
            yield
        finally:
            with self._lock:
                self._held = set()

    def refresh(self) -> None:
        """Say of what we hold that it is worked on."""
        with self._lock:
            held = sorted(self._held)
        if held:
            self._client.xclaim(
                self._stream,
                self._group,
                self.consumer,
                0,
                [*held],
                idle=0,
                justid=True,
            )

    def leave(self) -> None:
        """Off the group's list, unless something of ours still lies there for others to take."""
        for consumer in self._client.xinfo_consumers(self._stream, self._group):
            if consumer["name"] == self.consumer.encode() and not consumer["pending"]:
                self._client.xgroup_delconsumer(self._stream, self._group, self.consumer)

    def count(self, **figures: int) -> None:
        pipe = self._client.pipeline(transaction=False)
        for name, amount in figures.items():
            pipe.hincrby(self.channel.stats, name, amount)
        pipe.execute()

    def _read(self, block: int | None) -> tuple[bytes, dict[bytes, bytes]] | None:
        answer: Any = self._client.xreadgroup(
            self._group, self.consumer, {self._stream: ">"}, count=1, block=block
        )
        return answer[0][1][0] if answer and answer[0][1] else None

    def _deliveries(self, entry: bytes) -> int:
        rows = self._client.xpending_range(self._stream, self._group, min=entry, max=entry, count=1)
        return int(rows[0]["times_delivered"]) if rows else 1

    def _understood(
        self, entry: bytes, fields: dict[bytes, bytes] | None, *, deliveries: int
    ) -> Taken | None:
        """None for what is no request; who sent it is told where it has an id."""
        fields = fields or {}
        try:
            request = self.channel.read(fields.get(b"request", b""))
        except ContractError as error:
            why = f"The {self.channel.sign} cannot read this: {error}"
            name = fields.get(b"id", b"nobody").decode(errors="replace")
            self._settle(entry, self.channel.refusal(name, "unreadable", why))
            return None
        return Taken(entry, request, deliveries)

    def _settle(self, entry: bytes, reply: Any) -> bool:
        keys = [self.channel.reply_key(reply.id), self._stream, self.channel.stats]
        values: list[str | int | bytes] = [
            to_json(reply),
            self.channel.reply_seconds,
            self._group,
            entry,
        ]
        return bool(self._answer(keys=keys, args=values))


# The program: signs of life, turns, and an end after the work at hand.

log = logging.getLogger(__name__)
STUCK_S = 600.0  # longer in one turn, and others may have its requests
_PAUSE_S = 1.0


class Keeper(threading.Thread):
    """Gives signs of life and keeps what is being worked on, as long as turns come to an end."""

    def __init__(self, queue: RequestQueue, redis_url: str) -> None:
        super().__init__(daemon=True, name="keeper")
        self.turned_at = time.monotonic()
        self._queue = queue
        self._pulse = Pulse(redis_url)
        self._pulse.names = [queue.channel.sign]

    def run(self) -> None:
        while True:
            if time.monotonic() - self.turned_at < STUCK_S:
                self._pulse.beat()
                try:
                    self._queue.refresh()
                except (redis.RedisError, OSError) as error:
                    log.warning("Redis: %s", error)
            time.sleep(min(_PAUSE_S, self._queue.retake_s / 4))


def connected() -> redis.Redis | None:
    """Where requests wait, with logging set up; None, and said so, where REDIS_URL is not set."""
    start_logging()
    url = os.environ.get("REDIS_URL", "")
    if not url:
        log.error("REDIS_URL is not set: nobody can ask")
        return None
    return redis.Redis.from_url(url, socket_timeout=5, socket_connect_timeout=5)


def serve(queue: RequestQueue, turn: Callable[[], object]) -> bool:
    """Turn after turn until SIGTERM, which ends it after the one at hand, or until `turn` raises
    `SystemExit`. Whether the program was told to end."""
    leaving = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: leaving.set())
    keeper = Keeper(queue, os.environ["REDIS_URL"])
    keeper.start()
    log.info("waiting for requests as %s", queue.consumer)
    joined = False
    while not leaving.is_set():
        keeper.turned_at = time.monotonic()
        try:
            if not joined:
                queue.join()
                joined = True
            turn()
        except redis.ResponseError as error:  # NOGROUP: somebody emptied Redis
            log.warning("Redis: %s", error)
            joined = False
            leaving.wait(_PAUSE_S)
        except (redis.RedisError, OSError) as error:
            log.warning("Redis: %s", error)
            leaving.wait(_PAUSE_S)
        except SystemExit:
            break
    try:
        queue.leave()
    except (redis.RedisError, OSError):
        log.warning("left without taking leave: Redis does not answer")
    return leaving.is_set()

"""The stream of requests, as one scorer sees it.

A request is read by one scorer of the group, stays on its pending list until it is answered, and is
taken over by another when it lies there untouched: a scorer refreshes what it works on, so only
what a dead one left grows old. Answer and acknowledgement are one script.
"""

import contextlib
import os
import socket
import threading
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import redis

from workers.contract import scores as contract
from workers.contract.scores import ScoreReply, ScoreRequest
from workers.contract.wire import ContractError

FEWEST_ROWS, MOST_ROWS = 32, 64  # of a batch made of several requests
WAIT_MS = 1000  # for a first request
LINGER_MS = 5  # for company, while a batch has fewer rows than it should
RETAKE_S = 15.0
MAX_DELIVERIES = 3
FORGET_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Taken:
    """A request on our pending list, delivered for the `deliveries`-th time."""

    entry: bytes
    request: ScoreRequest
    deliveries: int = 1


class RequestQueue:
    """Reads, keeps and answers requests. One per scorer; `refresh` may run in another thread."""

    def __init__(self, client: redis.Redis, *, retake_s: float = RETAKE_S) -> None:
        self._client = client
        self._answer = client.register_script(contract.ANSWER)
        self.consumer = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self.retake_s = retake_s
        self._held: set[bytes] = set()
        self._lock = threading.Lock()

    def join(self) -> None:
        """Make the group where there is none (a new or an emptied Redis)."""
        with contextlib.suppress(redis.ResponseError):  # it exists
            self._client.xgroup_create(contract.STREAM, contract.GROUP, id="0", mkstream=True)
        for consumer in self._client.xinfo_consumers(contract.STREAM, contract.GROUP):
            if not consumer["pending"] and consumer["idle"] > FORGET_MS:  # killed long ago
                self._client.xgroup_delconsumer(contract.STREAM, contract.GROUP, consumer["name"])

    def take(self) -> list[Taken]:
        """What waits, from all callers: until `MOST_ROWS` rows are together or nothing is left."""
        taken: list[Taken] = []
        rows = 0
        while rows < MOST_ROWS:
            block = WAIT_MS if not taken else LINGER_MS if rows < FEWEST_ROWS else None
            entry = self._read(block)
            if entry is None:
                break
            item = self._understood(*entry, deliveries=1)
            if item is not None:
                taken.append(item)
                rows += len(item.request.items)
        return taken

    def take_over(self) -> Taken | None:
        """One request that a dead scorer left. One at a time, and alone in its batch: the request
        that killed it must not take others with it again."""
        while True:
            answer = self._client.xautoclaim(
                contract.STREAM,
                contract.GROUP,
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
                    f"This request ended the scorer {MAX_DELIVERIES} times and is not tried again."
                )
                self.refuse(item, "poisoned", why)
                continue
            return item

    def answer(self, taken: Taken, reply: ScoreReply) -> bool:
        """Reply and acknowledge; whether it was the first answer."""
        return self._settle(taken.entry, reply)

    def refuse(self, taken: Taken, code: str, message: str) -> None:
        error = {"code": code, "message": message}
        self._settle(taken.entry, ScoreReply(taken.request.id, error=error))

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
                contract.STREAM, contract.GROUP, self.consumer, 0, [*held], idle=0, justid=True
            )

    def leave(self) -> None:
        """Off the group's list, unless something of ours still lies there for others to take."""
        for consumer in self._client.xinfo_consumers(contract.STREAM, contract.GROUP):
            if consumer["name"] == self.consumer.encode() and not consumer["pending"]:
                self._client.xgroup_delconsumer(contract.STREAM, contract.GROUP, self.consumer)

    def count(self, **figures: int) -> None:
        pipe = self._client.pipeline(transaction=False)
        for name, amount in figures.items():
            pipe.hincrby(contract.STATS, name, amount)
        pipe.execute()

    def _read(self, block: int | None) -> tuple[bytes, dict[bytes, bytes]] | None:
        answer: Any = self._client.xreadgroup(
            contract.GROUP, self.consumer, {contract.STREAM: ">"}, count=1, block=block
        )
        return answer[0][1][0] if answer and answer[0][1] else None

    def _deliveries(self, entry: bytes) -> int:
        rows = self._client.xpending_range(
            contract.STREAM, contract.GROUP, min=entry, max=entry, count=1
        )
        return int(rows[0]["times_delivered"]) if rows else 1

    def _understood(
        self, entry: bytes, fields: dict[bytes, bytes] | None, *, deliveries: int
    ) -> Taken | None:
        """None for what is no request; who sent it is told where it has an id."""
        fields = fields or {}
        try:
            request = contract.request_from_json(fields.get(b"request", b""))
        except ContractError as error:
            told = {"code": "unreadable", "message": f"The scorer cannot read this: {error}"}
            name = fields.get(b"id", b"nobody").decode(errors="replace")
            self._settle(entry, ScoreReply(name, error=told))
            return None
        return Taken(entry, request, deliveries)

    def _settle(self, entry: bytes, reply: ScoreReply) -> bool:
        keys = [contract.reply_key(reply.id), contract.STREAM, contract.STATS]
        values: list[str | int | bytes] = [
            contract.to_json(reply),
            contract.REPLY_SECONDS,
            contract.GROUP,
            entry,
        ]
        return bool(self._answer(keys=keys, args=values))

"""Brings the spool to the web side: in batches, in order, again until it is acknowledged."""

from collections import deque
from collections.abc import Callable
from typing import Any

from workers.contract.wire import VERSION
from workers.supervisor.line import Line
from workers.supervisor.spool import Spool

BATCH_INTERVAL_S = 0.5
ACK_INTERVAL_S = 0.5
BATCH_EVENTS = 200
BATCH_BYTES = 500_000
IN_FLIGHT_EVENTS = 1000  # sent and not acknowledged, at most
FIRST_RESEND_S = 2.0
LONGEST_RESEND_S = 60.0
CROWDED_QUEUE = 500  # batches waiting for the web side; more signs of life would tell it nothing


class Relay:
    """Delivery at least once: the web side ignores what it has, and refuses a gap."""

    def __init__(
        self,
        spool: Spool,
        line: Line,
        *,
        run: str,
        attempt: int,
        heartbeat_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._spool = spool
        self._line = line
        self._run, self._attempt = run, attempt
        self._heartbeat_s = heartbeat_s
        self._clock = clock
        self._pending: deque[dict[str, Any]] = deque()  # read and not acknowledged
        self._acked = 0
        self._sent = 0
        self._sent_at = self._asked_at = self._progress_at = float("-inf")
        self._resend_s = FIRST_RESEND_S

    def is_drained(self) -> bool:
        """Everything in the spool is committed on the web side."""
        self.read()
        return not self._pending

    def tick(self, *, now_or_never: bool = False) -> None:
        """Do what is due. `now_or_never` does not wait for a batch to fill."""
        self.read()
        now = self._clock()
        if self._sent > self._acked and (
            now_or_never or now - self._asked_at >= min(ACK_INTERVAL_S, self._heartbeat_s)
        ):
            self._asked_at = now
            self._acknowledge(self._line.acked(self._run, self._attempt))
        if self._sent > self._acked and now - self._progress_at >= self._resend_s:
            self._sent = self._acked  # a batch or its acknowledgement was lost
            self._resend_s = min(2 * self._resend_s, LONGEST_RESEND_S)
        batch = self._next_batch()
        if batch and (now_or_never or now - self._sent_at >= BATCH_INTERVAL_S):
            if self._sent == self._acked:
                self._progress_at = now
            if self._send(batch):
                self._sent = batch[-1]["seq"]
        elif self._sent == self._acked and now - self._sent_at >= self._heartbeat_s:
            self.say_alive()

    def read(self) -> None:
        """Take from the spool what there is room for."""
        while len(self._pending) < 2 * IN_FLIGHT_EVENTS and (events := self._spool.read()):
            self._pending.extend(events)

    def say_alive(self) -> None:
        """A batch without events."""
        waiting = self._line.batches_waiting()
        if waiting is not None and waiting < CROWDED_QUEUE:
            self._send([])
        self._sent_at = self._clock()

    def _acknowledge(self, seq: int | None) -> None:
        if seq is None or seq <= self._acked:
            return
        self._acked = seq
        self._progress_at = self._clock()
        self._sent = max(self._sent, seq)
        self._resend_s = FIRST_RESEND_S
        while self._pending and self._pending[0]["seq"] <= seq:
            self._pending.popleft()

    def _next_batch(self) -> list[dict[str, Any]]:
        batch: list[dict[str, Any]] = []
        size = 0
        for event in self._pending:
            if event["seq"] <= self._sent:
                continue
            size += _size(event)
            full = len(batch) >= BATCH_EVENTS or event["seq"] - self._acked > IN_FLIGHT_EVENTS
            if full or (batch and size > BATCH_BYTES):
                break
            batch.append(event)
        return batch

    def _send(self, events: list[dict[str, Any]]) -> bool:
        self._sent_at = self._clock()
        return self._line.send(
            {"version": VERSION, "run": self._run, "attempt": self._attempt, "events": events}
        )


def _size(value: Any) -> int:
    """About how many bytes `value` takes as JSON; exactness would cost encoding it twice."""
    if isinstance(value, str):
        return len(value) + 3
    if isinstance(value, dict):
        return sum(len(key) + 4 + _size(item) for key, item in value.items())
    if isinstance(value, list):
        return sum(_size(item) + 1 for item in value)
    return 12

"""Brings the spool to the web side: in batches, in order, again until it is acknowledged."""

import json
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

from workers.contract.events import EVENT_TYPES, TERMINAL, Envelope, Event, Log, envelope_to_json
from workers.contract.signing import signed
from workers.contract.wire import VERSION
from workers.emitter import event_line
from workers.supervisor.connection import Line

# The events of one attempt on this machine's disk, until the web side has them.

_TERMINAL_NAMES = {name for name, cls in EVENT_TYPES.items() if cls in TERMINAL}
_BLOCK = 1 << 20
log = logging.getLogger(__name__)


class Spool:
    """Reads what the trainer appends. Not checked against the contract: that is the web side's
    task, which may be newer; only what the relay needs, whole lines numbered without a gap."""

    def __init__(self, path: Path, *, run: str, attempt: int) -> None:
        self.path = path
        self.last_seq = 0
        self.ended = False  # an outcome was read
        self._run = run
        self._attempt = attempt
        self._offset = 0
        self._unwritten: list[dict[str, Any]] = []

    def read(self) -> list[dict[str, Any]]:
        """The next events, about a megabyte of them at most; empty when there is nothing new."""
        events: list[dict[str, Any]] = []
        for line in self._lines():
            event = self._parsed(line)
            if event is not None:
                events += self._numbered(event)
        if not events and self._unwritten:
            events, self._unwritten = self._unwritten, []
            self.last_seq = events[-1]["seq"]
        return events

    def _lines(self) -> list[bytes]:
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                block = file.read(_BLOCK)
                if b"\n" not in block and len(block) == _BLOCK:
                    block += file.readline()  # one line longer than a block
        except FileNotFoundError:
            return []
        whole, newline, _ = block.rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        return whole.split(b"\n") if newline else []

    def _parsed(self, line: bytes) -> dict[str, Any] | None:
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        if isinstance(event, dict) and type(event.get("seq")) is int:
            return event
        log.warning("%s/%s: not an event: %r", self._run, self._attempt, line[:200])
        return None

    def _numbered(self, event: dict[str, Any]) -> list[dict[str, Any]]:
        """The event, after placeholders for lost ones, since the web side accepts no gap."""
        seq = event["seq"]
        if seq <= self.last_seq:
            log.warning("%s/%s: event %s came twice", self._run, self._attempt, seq)
            return []
        lost = range(self.last_seq + 1, seq)
        self.last_seq = seq
        self.ended = self.ended or event.get("type") in _TERMINAL_NAMES
        said = Log(lines=["An event could not be read from the trainer's file."], level="error")
        return [self._envelope(n, said) for n in lost] + [event]

    def _envelope(self, seq: int, event: Event) -> dict[str, Any]:
        return envelope_to_json(Envelope(self._run, self._attempt, seq, time.time(), event))

    # --- once the trainer is dead ---

    def close_with(self, *events: Event) -> None:
        """Make the last of `events` the attempt's outcome, unless its trainer gave one.

        With a full disk they are handed out by `read` all the same, and missing on disk."""
        self._cut_torn_line()
        all_of_it = Spool(self.path, run=self._run, attempt=self._attempt)
        while all_of_it.read():
            pass
        if all_of_it.ended:
            return
        first = all_of_it.last_seq + 1
        envelopes = [
            Envelope(self._run, self._attempt, seq, time.time(), event)
            for seq, event in enumerate(events, first)
        ]
        try:
            with self.path.open("ab") as file:
                file.write(b"".join(event_line(envelope) for envelope in envelopes))
        except OSError as error:
            log.error("%s/%s: cannot write the spool: %s", self._run, self._attempt, error)
            self._unwritten = [envelope_to_json(envelope) for envelope in envelopes]

    def _cut_torn_line(self) -> None:
        """Remove what a killed trainer left of a line."""
        try:
            with self.path.open("rb+") as file:
                end = file.seek(0, os.SEEK_END)
                while end > self._offset:
                    start = max(self._offset, end - _BLOCK)
                    file.seek(start)
                    newline = file.read(end - start).rfind(b"\n")
                    if newline >= 0:
                        file.truncate(start + newline + 1)
                        return
                    end = start
                file.truncate(self._offset)
        except OSError:
            return


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
        secret: str = "",
        batch_s: float,
        heartbeat_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._spool = spool
        self._line = line
        self._run, self._attempt, self._secret = run, attempt, secret
        self._batch_s = batch_s  # between batches, and between looks at what is acknowledged
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
        if self._sent > self._acked and (now_or_never or now - self._asked_at >= self._batch_s):
            self._asked_at = now
            self._acknowledge(self._line.acked(self._run, self._attempt))
        if self._sent > self._acked and now - self._progress_at >= self._resend_s:
            self._sent = self._acked  # a batch or its acknowledgement was lost
            self._resend_s = min(2 * self._resend_s, LONGEST_RESEND_S)
        if self._sent < self._last_read and self._sent - self._acked < IN_FLIGHT_EVENTS:
            if now_or_never or (now - self._sent_at >= self._batch_s and self._is_worth_sending):
                self._send_next()
        elif self._sent == self._acked and now - self._sent_at >= self._heartbeat_s:
            self.say_alive()

    @property
    def _is_worth_sending(self) -> bool:
        """A batch that is not full waits while another is on its way: a web side that is behind
        gets fewer and larger ones, instead of a queue that grows."""
        return self._sent == self._acked or self._last_read - self._sent >= BATCH_EVENTS

    @property
    def _last_read(self) -> int:
        return self._pending[-1]["seq"] if self._pending else self._acked

    def _send_next(self) -> None:
        batch = self._next_batch()
        if self._sent == self._acked:
            self._progress_at = self._clock()
        if self._send(batch):
            self._sent = batch[-1]["seq"]

    def read(self) -> None:
        """Take from the spool what there is room for."""
        while len(self._pending) < 2 * IN_FLIGHT_EVENTS and (events := self._spool.read()):
            self._pending.extend(events)
            self._drop_acknowledged()  # an earlier worker may have sent some of them

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
        self._drop_acknowledged()

    def _drop_acknowledged(self) -> None:
        while self._pending and self._pending[0]["seq"] <= self._acked:
            self._pending.popleft()

    def _next_batch(self) -> list[dict[str, Any]]:
        """At least one event; as many as a message and the window hold."""
        start = self._sent - self._acked  # what is pending is numbered without a gap
        room = min(BATCH_EVENTS, IN_FLIGHT_EVENTS - start)
        batch: list[dict[str, Any]] = []
        size = 0
        for event in islice(self._pending, start, start + room):
            size += _size(event)
            if batch and size > BATCH_BYTES:
                break
            batch.append(event)
        return batch

    def _send(self, events: list[dict[str, Any]]) -> bool:
        self._sent_at = self._clock()
        batch = {"version": VERSION, "run": self._run, "attempt": self._attempt, "events": events}
        return self._line.send(signed(batch, self._secret))


def _size(value: Any) -> int:
    """About how many bytes `value` takes as JSON; exactness would cost encoding it twice."""
    if isinstance(value, str):
        return len(value) + 3
    if isinstance(value, dict):
        return sum(len(key) + 4 + _size(item) for key, item in value.items())
    if isinstance(value, list):
        return sum(_size(item) + 1 for item in value)
    return 12

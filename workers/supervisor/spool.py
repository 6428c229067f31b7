"""The events of one attempt on this machine's disk, until the web side has them."""

import json
import logging
import os
import time
from pathlib import Path
from typing import Any

from workers.contract.events import (
    EVENT_TYPES,
    TERMINAL,
    Envelope,
    Event,
    Log,
    envelope_to_json,
)
from workers.emitter import event_line

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

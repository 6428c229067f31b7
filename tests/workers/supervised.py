"""What tests of the supervisor share: a web side that answers at once, and a look at processes."""

import contextlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workers.contract import Envelope, envelope_from_json, wire
from workers.supervisor.connection import Line

FOR_EVER = {"steps": 100_000, "step_seconds": 0.02}


class Unstalled:
    """Seconds as a process sees them that is never held up for longer than `most`: a machine that
    is taken away for a while does not turn it further."""

    def __init__(self, most: float = 0.2) -> None:
        self._most = most
        self._looked_at = time.monotonic()
        self._now = 0.0

    def __call__(self) -> float:
        now = time.monotonic()
        self._now += min(now - self._looked_at, self._most)
        self._looked_at = now
        return self._now


class Web(Line):
    """The real Redis with a web side that answers at once. `after` is called once so many events
    are in: what a person, or an accident, does meanwhile."""

    def __init__(self) -> None:
        super().__init__(os.environ["REDIS_URL"], timeout_s=0.3)
        self.events: list[Envelope] = []
        self.heartbeats = 0
        self.answers = True
        self.after: tuple[int, Callable[[], Any]] | None = None

    def send(self, batch: dict[str, Any]) -> bool:
        batch = json.loads(json.dumps(batch))
        self.heartbeats += not batch["events"]
        for event in batch["events"]:
            if event["seq"] == len(self.events) + 1:
                self.events.append(envelope_from_json(event))
        if self.answers:
            with contextlib.suppress(Exception):
                self.redis.set(wire.ack_key(batch["run"], batch["attempt"]), len(self.events))
        if self.after is not None and len(self.events) >= self.after[0]:
            (_, act), self.after = self.after, None
            act()
        return True

    @property
    def last(self) -> Any:
        return self.events[-1].event

    @property
    def kinds(self) -> list[str]:
        return [type(e.event).__name__ for e in self.events]


def trainers(folder: Path) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes()
            if b"workers.train" in words and str(folder).encode() in words:
                found.append(int(process.name))
    return found


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def state_of(pid: int) -> str | None:
    """The kernel's letter for the process: R, S, T (stopped), Z (zombie) …; None when gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return None


def lives(pid: int) -> bool:
    """Still there after a second; a zombie only has nobody left to collect it."""
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        if state_of(pid) in (None, "Z"):
            return False
        time.sleep(0.02)
    return True

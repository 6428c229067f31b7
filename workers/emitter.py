"""The rank-0 writer: one JSON event per line, numbered from 1, appended to a file.

A file, because inherited pipes do not survive `torchrun`, and because it is still there when
everybody who could have listened is gone.
"""

import json
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from workers.contract.events import Envelope, Event, Metrics, envelope_to_json, is_by_time

EVENTS_FILE = "events.jsonl"


class Emitter:
    """Appends events to `path`. Each line is one `write` to a file opened for appending, so lines
    stay whole; a disk that is full raises `OSError`. `step` is the highest step reported."""

    def __init__(
        self,
        path: Path,
        *,
        run: str,
        attempt: int,
        first_seq: int = 1,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._run = run
        self._attempt = attempt
        self._next = first_seq
        self._clock = clock
        self.step: int | None = None
        self._lock = threading.Lock()  # recipes may report from a data or reward thread
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, event: Event) -> None:
        with self._lock:
            envelope = Envelope(self._run, self._attempt, self._next, self._clock(), event)
            _write_whole(self._descriptor, event_line(envelope))
            self._next += 1
            self._remember_step(event)

    def _remember_step(self, event: Event) -> None:
        steps: tuple[int | None, ...]
        if isinstance(event, Metrics):
            steps = () if all(map(is_by_time, event.values)) else tuple(event.steps)
        else:
            steps = (getattr(event, "step", None),)
        known = [step for step in (self.step, *steps) if step is not None]
        self.step = max(known, default=None)

    def close(self) -> None:
        os.close(self._descriptor)


def event_line(envelope: Envelope) -> bytes:
    """The event as a line of strict JSON: NaN and infinities become the words of the contract."""
    data = envelope_to_json(envelope)
    try:
        text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    except (ValueError, TypeError):
        text = json.dumps(_strict(data), allow_nan=False, separators=(",", ":"))
    return text.encode() + b"\n"


def _strict(value: Any) -> Any:
    """`value` in plain JSON types. What has no JSON form (a tensor, a path) becomes its text."""
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return str(value)


def _write_whole(descriptor: int, line: bytes) -> None:
    while line:
        line = line[os.write(descriptor, line) :]

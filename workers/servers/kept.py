"""Answers of a server, kept in the artifact store as they come, so that an attempt that was cut off
is not paid for twice.

They lie beside the attempts of the run, `runs/RUN/answers/…`, as parts of JSON Lines that are never
changed, for stores like S3 append nothing. An answer is found by the whole request it was given to.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from hashlib import sha256
from typing import Any

from workers.context import RunContext
from workers.servers.reading import Given

SOONEST_S = 1.0
SHARE = 0.05  # of the time so far that may be lost: parts stay few when a run takes long


def request_key(where: str, body: Mapping[str, Any]) -> str:
    """SHA-256 of everything that decides an answer."""
    text = json.dumps([where, body], sort_keys=True, ensure_ascii=False)
    return sha256(text.encode()).hexdigest()


class KeptAnswers:
    """What earlier attempts of this run were answered, and what this one is."""

    def __init__(self, context: RunContext, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = context.store
        self._folder = f"runs/{context.spec.run}/answers"
        self._attempt = f"attempt-{context.spec.attempt}"
        self._clock = clock
        self._began = self._flushed = clock()
        self._found: dict[str, list[Given]] = {}
        self._models: dict[str, str] = {}
        self._fresh: list[dict[str, Any]] = []
        names = self._store.names(self._folder)
        self._parts = sum(name.startswith(self._attempt + "-") for name in names)
        for name in names:
            for key, given, model in self._read(f"{self._folder}/{name}"):
                self._found[key], self._models[key] = given, model

    def get(self, key: str) -> list[Given] | None:
        return self._found.get(key)

    def model(self, key: str) -> str:
        """What the server said that it is when it answered; empty where it said nothing."""
        return self._models.get(key, "")

    def add(self, key: str, given: list[Given], *, model: str = "") -> None:
        self._found[key], self._models[key] = given, model
        row = {"key": key, "model": model, "answers": [asdict(one) for one in given]}
        self._fresh.append(row)
        now = self._clock()
        if now - self._flushed >= max(SOONEST_S, SHARE * (now - self._began)):
            self.flush()

    def flush(self) -> None:
        """Everything that was added is in the store."""
        if self._fresh:
            lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in self._fresh)
            name = f"{self._attempt}-{self._parts:05}.jsonl"
            self._store.write_bytes(f"{self._folder}/{name}", lines.encode())
            self._parts += 1
            self._fresh = []
        self._flushed = self._clock()

    def _read(self, path: str) -> Iterator[tuple[str, list[Given], str]]:
        """A line that is not whole is asked again: the machine may have died while it wrote."""
        for line in self._store.read_bytes(path).splitlines():
            with contextlib.suppress(ValueError, TypeError, KeyError):
                row = json.loads(line)
                given = [Given(**one) for one in row["answers"]]
                yield row["key"], given, str(row.get("model") or "")

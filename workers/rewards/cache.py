"""Scores that were made already: in this process, and in Redis for all scorers.

The key is of everything a score depends on and of nothing else: the model's version (content hash
and precision), the chat template, the ids of the prompt and those of the response. Never the
response's text alone, which another prompt makes another answer, and never text with its white
space tidied, which the tokenizer may read differently.
"""

import hashlib
import json
import math
import struct
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import redis

MEMORY_ENTRIES = 1_000_000  # 0.5 GB when full, measured with one part each
SECONDS = 3600.0
_PREFIX = "concord:score:cache:"


class Row(Protocol):
    """Token ids of a conversation; the response begins at `prompt_length` (data.encoding)."""

    ids: list[int]
    prompt_length: int


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a model said of one text. Floats survive JSON bit by bit."""

    score: float
    parts: dict[str, float] = field(default_factory=dict)
    disagreement: float | None = None
    truncated: bool = False  # what a service said; of token ids the caller knows
    blocked: bool = False
    review: str | None = None

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.score)

    def to_json(self) -> str:
        return json.dumps([getattr(self, name) for name in self.__slots__])

    @classmethod
    def from_json(cls, text: str | bytes) -> "Remembered":
        return cls(*json.loads(text))


def template_version(templates: Iterable[str | None]) -> str:
    """One hash of the chat templates of a source's tokenizers, in the order of its rows."""
    digest = hashlib.sha256()
    for template in templates:
        digest.update(repr(template).encode())
    return digest.hexdigest()


def score_key(version: str, template: str, rows: Sequence[Row]) -> bytes:
    """32 bytes. `rows` is the text as each distinct tokenizer of the model reads it."""
    digest = hashlib.sha256()
    for text in (version, template):
        digest.update(_counted(text.encode()))
    for row in rows:
        border = row.prompt_length
        for ids in (row.ids[:border], row.ids[border:]):
            digest.update(_counted(struct.pack(f"<{len(ids)}I", *ids)))
    return digest.digest()


def _counted(data: bytes) -> bytes:
    """With its length before it, so that no two sequences of parts give the same bytes."""
    return struct.pack("<Q", len(data)) + data


@dataclass
class Hits:
    """Of the texts asked for: found in this process, found in Redis, scored."""

    memory: int = 0
    shared: int = 0
    misses: int = 0

    @property
    def rate(self) -> float | None:
        """Share found in either place, 0–1; None before the first text."""
        total = self.memory + self.shared + self.misses
        return (self.memory + self.shared) / total if total else None


class ScoreCache:
    """Least recently used of `entries` in memory over Redis; both forget after `seconds`.

    A Redis that does not answer is a cache that knows nothing: scores are made again.
    """

    def __init__(
        self,
        client: "redis.Redis[Any] | None",
        *,
        entries: int = MEMORY_ENTRIES,
        seconds: float = SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._entries = entries
        self._seconds = seconds
        self._clock = clock
        self._memory: OrderedDict[bytes, tuple[float, Remembered]] = OrderedDict()
        self.hits = Hits()

    def get(self, keys: Sequence[bytes]) -> list[Remembered | None]:
        """What is known of each key, in order."""
        found = [self._recall(key) for key in keys]
        self.hits.memory += sum(entry is not None for entry in found)
        missing = [i for i, entry in enumerate(found) if entry is None]
        for i, entry in zip(missing, self._fetch([keys[i] for i in missing]), strict=True):
            found[i] = entry
            if entry is not None:
                self._keep(keys[i], entry)
                self.hits.shared += 1
        self.hits.misses += sum(entry is None for entry in found)
        return found

    def put(self, keys: Sequence[bytes], entries: Sequence[Remembered]) -> None:
        for key, entry in zip(keys, entries, strict=True):
            self._keep(key, entry)
        if self._client is None or not keys:
            return
        try:
            pipe = self._client.pipeline(transaction=False)
            for key, entry in zip(keys, entries, strict=True):
                pipe.set(_PREFIX + key.hex(), entry.to_json(), ex=max(1, int(self._seconds)))
            pipe.execute()
        except (redis.RedisError, OSError):
            return

    def __len__(self) -> int:
        return len(self._memory)

    def _recall(self, key: bytes) -> Remembered | None:
        known = self._memory.get(key)
        if known is None:
            return None
        until, entry = known
        if until <= self._clock():
            del self._memory[key]
            return None
        self._memory.move_to_end(key)
        return entry

    def _keep(self, key: bytes, entry: Remembered) -> None:
        self._memory[key] = (self._clock() + self._seconds, entry)
        self._memory.move_to_end(key)
        while len(self._memory) > self._entries:
            self._memory.popitem(last=False)

    def _fetch(self, keys: Sequence[bytes]) -> list[Remembered | None]:
        if self._client is None or not keys:
            return [None] * len(keys)
        try:
            texts = self._client.mget([_PREFIX + key.hex() for key in keys])
        except (redis.RedisError, OSError):
            return [None] * len(keys)
        return [None if text is None else _read(text) for text in texts]


def _read(text: bytes) -> Remembered | None:
    """None for what another version of us wrote there."""
    try:
        return Remembered.from_json(text)
    except (ValueError, TypeError):
        return None

"""Scores that were made already: in this process, and in Redis for all scorers.

The key is of everything a score depends on and of nothing else: the model's version (content hash
and precision), the chat template, the ids of the prompt and those of the response. Never the
response's text alone, which another prompt makes another answer, and never text with its white
space tidied, which the tokenizer may read differently.
"""

import hashlib
import json
import math
import os
import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from measures.messages import Messages
from workers.contract.events import Fault, RecipeError
from workers.data.snapshot import prompt_key
from workers.rewards.source import Scores

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
    reason: str | None = None

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.score)

    def to_json(self) -> str:
        told = [getattr(self, name) for name in self.__slots__]
        # A scorer of the release before takes no more than it knows.
        return json.dumps(told if self.reason else told[:-1])

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
        client: redis.Redis | None,
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


def _read(text: str | bytes) -> Remembered | None:
    """None for what another version of us wrote there."""
    try:
        return Remembered.from_json(text)
    except (ValueError, TypeError):
        return None


# A source that is asked once for each text, by the cache that the scorer uses.

# A trainer is reported no Redis but this one, which holds scores and nothing else.
URL_VARIABLE = "SCORE_CACHE_URL"


class ByRows(Protocol):
    """A source that reads text as rows of tokens: what it scores depends on those alone."""

    def encode(
        self, prompts: Sequence[Messages], responses: Sequence[str]
    ) -> Sequence[tuple[Any, ...]]: ...

    def score_rows(self, texts: Sequence[tuple[Any, ...]]) -> Scores: ...


@dataclass(frozen=True, slots=True)
class TextRow:
    """For a source without a tokenizer: a text's bytes are its tokens."""

    prompt: Messages
    response: str
    truncated: bool = False

    @property
    def ids(self) -> list[int]:
        return [*self._before, *self.response.encode()]

    @property
    def prompt_length(self) -> int:
        return len(self._before)

    @property
    def _before(self) -> bytes:
        return prompt_key(self.prompt).encode()


def cache_of(*, entries: int, seconds: float) -> ScoreCache:
    """In this process, over the Redis of SCORE_CACHE_URL where there is one."""
    url = os.environ.get(URL_VARIABLE, "")
    if not url:
        return ScoreCache(None, entries=entries, seconds=math.inf)
    try:
        client = redis.Redis.from_url(
            url,
            socket_timeout=1,
            socket_connect_timeout=1,
            retry=Retry(NoBackoff(), 0),  # a score is made sooner than asked for again
        )
    except ValueError as error:
        raise RecipeError("bad_setting", Fault.MACHINE, f"{URL_VARIABLE}: {error}") from error
    return ScoreCache(client, entries=entries, seconds=seconds)


class CachedReward:
    """Scores of `source`, each made once.

    `version` must name everything about the source that a score depends on (a content hash, the
    precision, how members become one); `template` the chat templates its rows were made with.
    """

    def __init__(
        self, source: ByRows, version: str, cache: ScoreCache, *, template: str = ""
    ) -> None:
        self.asked = 0
        self.hits = 0
        self._source = source
        self._version = version
        self._template = template
        self._cache = cache
        self._lock = threading.Lock()  # a queue's thread and the trainer may both ask

    @property
    def source(self) -> ByRows:
        return self._source

    @property
    def threshold(self) -> float | None:
        """An ensemble's."""
        threshold: float | None = getattr(self._source, "threshold", None)
        return threshold

    @property
    def hit_rate(self) -> float | None:
        """Share of the texts so far that did not need the source, 0–1; None before the first."""
        return self.hits / self.asked if self.asked else None

    def score(self, prompts: Sequence[Messages], responses: Sequence[str]) -> Scores:
        with self._lock:
            return self._score(self._source.encode(prompts, responses))

    def _score(self, rows: Sequence[tuple[Any, ...]]) -> Scores:
        keys = [score_key(self._version, self._template, texts) for texts in rows]
        entries = dict(zip(keys, self._cache.get(keys), strict=True))
        first: dict[bytes, int] = {}  # of each text that is not known: where it stands
        for i, key in enumerate(keys):
            if entries[key] is None:
                first.setdefault(key, i)
        known = [first.get(key) != i for i, key in enumerate(keys)]
        if first:
            made = _remembered(self._source.score_rows([rows[i] for i in first.values()]))
            entries |= zip(first, made, strict=True)
            fit = {key: entry for key, entry in zip(first, made, strict=True) if entry.is_finite}
            self._cache.put(list(fit), list(fit.values()))
        self.asked += len(keys)
        self.hits += sum(known)
        return _told([entries[key] for key in keys], rows, known)


def _remembered(scores: Scores) -> list[Remembered]:
    def each(values: list[Any] | None, otherwise: Any) -> list[Any]:
        return [otherwise] * len(scores.values) if values is None else values

    return [
        Remembered(score, scores.parts_of(i), spread, cut, blocked, review, reason)
        for i, (score, spread, cut, blocked, review, reason) in enumerate(
            zip(
                scores.values,
                each(scores.disagreement, None),
                each(scores.cut, False),
                each(scores.blocked, False),
                each(scores.reviews, None),
                each(scores.reasons, None),
                strict=True,
            )
        )
    ]


def _told(entries: Sequence[Any], rows: Sequence[tuple[Any, ...]], known: list[bool]) -> Scores:
    names = entries[0].parts if entries else ()
    spreads = [entry.disagreement for entry in entries]
    reviews = [entry.review for entry in entries]
    blocked = [entry.blocked for entry in entries]
    reasons = [entry.reason for entry in entries]
    cut = [
        entry.truncated or any(row.truncated for row in texts)
        for entry, texts in zip(entries, rows, strict=True)
    ]
    return Scores(
        [entry.score for entry in entries],
        {name: [entry.parts[name] for entry in entries] for name in names},
        sum(cut),
        None if None in spreads or not spreads else spreads,
        cut,
        reviews if any(reviews) else None,
        blocked if any(blocked) else None,
        known=known,
        reasons=reasons if any(reasons) else None,
    )

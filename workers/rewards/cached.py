"""A source that is asked once for each text, by the cache that the scorer uses."""

import math
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import redis

from workers.contract.events import (
    Fault,
    RecipeError,
)
from workers.data.snapshot import Messages, prompt_key
from workers.rewards.cache import Remembered, ScoreCache, score_key
from workers.rewards.source import Scores

# A trainer is told of no Redis but this one, which holds scores and nothing else.
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
        client = redis.Redis.from_url(url, socket_timeout=1, socket_connect_timeout=1)
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
        Remembered(score, scores.parts_of(i), spread, cut, blocked, review)
        for i, (score, spread, cut, blocked, review) in enumerate(
            zip(
                scores.values,
                each(scores.disagreement, None),
                each(scores.cut, False),
                each(scores.blocked, False),
                each(scores.reviews, None),
                strict=True,
            )
        )
    ]


def _told(entries: Sequence[Any], rows: Sequence[tuple[Any, ...]], known: list[bool]) -> Scores:
    names = entries[0].parts if entries else ()
    spreads = [entry.disagreement for entry in entries]
    reviews = [entry.review for entry in entries]
    blocked = [entry.blocked for entry in entries]
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
    )

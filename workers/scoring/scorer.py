"""One turn after another: take requests, put those of one model together, score, answer."""

import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import redis

from workers.artifacts import ArtifactError
from workers.contract.events import (
    RecipeError,
)
from workers.contract.scores import ScoreReply, ScoreRequest
from workers.rewards.cache import Remembered, ScoreCache, score_key
from workers.scoring.gate import PrecisionGate
from workers.scoring.models import Models, Source
from workers.scoring.queue import RequestQueue, Taken

log = logging.getLogger(__name__)
FLOAT32 = "float32"


class Refusal(Exception):
    """Why there are no scores: a stable code and a sentence."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Scorer:
    """Works on one queue. `turn` returns after at most about a second without work."""

    def __init__(
        self,
        queue: RequestQueue,
        models: Models,
        cache: ScoreCache,
        gate: PrecisionGate,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queue = queue
        self._models = models
        self._cache = cache
        self._gate = gate
        self._clock = clock
        self._look_at = 0.0

    def turn(self) -> int:
        """What a dead scorer left comes first; returns the requests answered."""
        if self._clock() >= self._look_at:
            left = self._queue.take_over()
            if left is not None:
                log.info("took over request %s, delivery %s", left.request.id, left.deliveries)
                return self._work([left])
            self._look_at = self._clock() + self._queue.retake_s / 3
        return self._work(self._queue.take())

    def _work(self, taken: Sequence[Taken]) -> int:
        groups: dict[tuple[str, str], list[Taken]] = defaultdict(list)
        for item in taken:
            groups[item.request.sha256, item.request.precision].append(item)
        before = asdict(self._cache.hits)
        with self._queue.holding(taken):
            for group in groups.values():
                self._answer(group)
        if taken:
            after = asdict(self._cache.hits)
            self._queue.count(**{f"texts_{name}": after[name] - before[name] for name in after})
        return len(taken)

    def _answer(self, group: Sequence[Taken]) -> None:
        """All at once; where that fails, each alone, so that one bad request fails alone."""
        try:
            replies = self._score([item.request for item in group])
        except redis.RedisError:
            raise  # they stay on our list, and are taken from it again
        except Exception as error:
            if len(group) > 1:
                for item in group:
                    self._answer([item])
                return
            refusal = _refusal(error)
            self._queue.refuse(group[0], refusal.code, refusal.message)
            return
        for item, reply in zip(group, replies, strict=True):
            self._queue.answer(item, reply)

    def _score(self, requests: Sequence[ScoreRequest]) -> list[ScoreReply]:
        """Of one model and one precision."""
        first = requests[0]
        wanted = first.precision
        verdict = None if wanted == FLOAT32 else self._gate.verdict(first.sha256, wanted)
        if verdict is not None and not verdict.passed:
            raise Refusal("precision_refused", verdict.says(wanted))
        used = wanted if verdict is not None else FLOAT32
        source, template = self._models.get(first, used)
        items = [item for request in requests for item in request.items]
        rows = source.encode([i["prompt"] for i in items], [i["response"] for i in items])
        keys = [score_key(f"{first.sha256}:{used}", template, texts) for texts in rows]
        scores, known = self._scores_of(source, rows, keys)
        if used != wanted:
            self._compare(first, wanted, rows, keys, scores)
        return _replies(requests, rows, scores, known, used)

    def _scores_of(
        self, source: Source, rows: Sequence[tuple[Any, ...]], keys: Sequence[bytes]
    ) -> tuple[list[Remembered], list[bool]]:
        """Per text its scores, and whether they were known."""
        found = self._cache.get(keys)
        missing = {key: i for i, key in enumerate(keys) if found[i] is None}  # one of a kind
        made: dict[bytes, Remembered] = {}
        if missing:
            scores = source.score_rows([rows[i] for i in missing.values()])
            if not all(map(math.isfinite, scores.values)):
                raise Refusal("non_finite", "The model's score of a text is no finite number.")
            for place, key in enumerate(missing):
                spread = scores.disagreement[place] if scores.disagreement else None
                made[key] = Remembered(scores.values[place], scores.parts_of(place), spread)
            self._cache.put(list(made), list(made.values()))
        known = [entry is not None for entry in found]
        return [entry or made[key] for entry, key in zip(found, keys, strict=True)], known

    def _compare(
        self,
        request: ScoreRequest,
        precision: str,
        rows: Sequence[tuple[Any, ...]],
        keys: Sequence[bytes],
        scores: Sequence[Remembered],
    ) -> None:
        """Score the same texts in the precision that was asked for, to learn whether it may be."""
        source, _ = self._models.get(request, precision)
        other = source.score_rows(rows).values
        reference = [entry.score for entry in scores]
        verdict = self._gate.compare(request.sha256, precision, keys, reference, other)
        if verdict is not None:
            log.info("%s of %s: %s", precision, request.sha256[:12], asdict(verdict))


def _replies(
    requests: Sequence[ScoreRequest],
    rows: Sequence[tuple[Any, ...]],
    scores: Sequence[Remembered],
    known: Sequence[bool],
    precision: str,
) -> list[ScoreReply]:
    replies, start = [], 0
    for request in requests:
        stop = start + len(request.items)
        told = [
            {
                "score": entry.score,
                "parts": entry.parts,
                "disagreement": entry.disagreement,
                "truncated": any(row.truncated for row in texts),
            }
            for entry, texts in zip(scores[start:stop], rows[start:stop], strict=True)
        ]
        replies.append(ScoreReply(request.id, told, sum(known[start:stop]), precision))
        start = stop
    return replies


def _refusal(error: Exception) -> Refusal:
    match error:
        case Refusal():
            return error
        case RecipeError():
            return Refusal(error.kind, error.message)
        case ArtifactError():
            return Refusal("model_missing", f"The model cannot be read from the store: {error}")
    log.error("scoring failed", exc_info=error)
    return Refusal("scorer_failed", "Scoring failed on the scorer's side. It was logged.")

"""One turn after another: take requests, put those of one model together, score, answer."""

import json
import logging
import math
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import redis

from workers.artifacts import ArtifactError, Store
from workers.contract.events import RecipeError
from workers.contract.jobs import FLOAT32
from workers.contract.scores import ScoreReply, ScoreRequest
from workers.request_queue import RequestQueue, Taken
from workers.rewards.cache import Remembered, ScoreCache, score_key, template_version
from workers.trust.precision import LEAST_AGREEMENT, rank_agreement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from measures.messages import Messages
    from workers.rewards.source import Scores


# The reward models that were used last, loaded when they are asked for.

KEPT = 2
BATCH = 64


class Source(Protocol):
    """A loaded model (workers.rewards: ModelReward, EnsembleReward)."""

    def encode(
        self, prompts: "Sequence[Messages]", responses: "Sequence[str]"
    ) -> "Sequence[tuple[Any, ...]]": ...

    def score_rows(self, texts: "Sequence[tuple[Any, ...]]") -> "Scores": ...


class Models:
    """The last `KEPT` models used, by content hash and precision."""

    def __init__(self, cache: Path, *, kept: int = KEPT) -> None:
        self._cache = cache
        self._kept = kept
        self._loaded: OrderedDict[tuple[str, str], tuple[Source, str]] = OrderedDict()

    def get(self, request: ScoreRequest, precision: str) -> tuple[Source, str]:
        """(model, hash of its chat templates). Loads, and lets go of the one unused longest."""
        key = (request.sha256, precision)
        if key not in self._loaded:
            while len(self._loaded) >= self._kept:
                self._loaded.popitem(last=False)
            self._loaded[key] = self._load(request, precision)
        self._loaded.move_to_end(key)
        return self._loaded[key]

    def _load(self, request: ScoreRequest, precision: str) -> tuple[Source, str]:
        from workers.rewards.build import load_reward  # seconds of imports, not before they count

        store = Store(request.artifacts_url)
        folder = store.get_tree(
            request.uri, sha256=request.sha256, cache=self._cache, with_state=False
        )
        source = load_reward(folder, name="model", batch_size=BATCH, precision=precision)
        return source, template_version(each.chat_template for each in source.tokenizers)


# No precision is served before it has shown that it orders this model's answers alike.
#
# Until `ROWS` distinct texts were scored in both, callers get float32 whatever they asked for;
# then
# the agreement decides, for good: a model's content does not change under its hash. The texts are
# the
# first that callers send, so the check is on what the model is used for.

ROWS = 100
_PREFIX = "concord:score:precision:"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Share of pairs ordered alike over `rows` texts."""

    agreement: float
    rows: int

    @property
    def passed(self) -> bool:
        return self.agreement >= LEAST_AGREEMENT

    def says(self, precision: str) -> str:
        least = f"{100 * LEAST_AGREEMENT:.0f}"
        return (
            f"{precision} orders {100 * self.agreement:.1f} % of pairs of this model's answers as "
            f"float32 does ({self.rows} answers); at least {least} % is needed. Ask for float32."
        )


class PrecisionGate:
    """Verdicts by model and precision, shared through Redis."""

    def __init__(self, client: redis.Redis | None) -> None:
        self._client = client
        self._verdicts: dict[tuple[str, str], Verdict] = {}
        self._pairs: dict[tuple[str, str], dict[bytes, tuple[float, float]]] = {}

    def verdict(self, sha256: str, precision: str) -> Verdict | None:
        """None while it is open."""
        known = self._verdicts.get((sha256, precision))
        if known is None and self._client is not None:
            text = self._client.get(f"{_PREFIX}{sha256}:{precision}")
            if text is not None:
                known = self._verdicts[sha256, precision] = Verdict(**json.loads(text))
        return known

    def compare(
        self,
        sha256: str,
        precision: str,
        keys: Sequence[bytes],
        reference: Sequence[float],
        other: Sequence[float],
    ) -> Verdict | None:
        """Take in texts scored in both; the verdict once there are enough."""
        pairs = self._pairs.setdefault((sha256, precision), {})
        pairs.update(zip(keys, zip(reference, other, strict=True), strict=True))
        if len(pairs) < ROWS:
            return None
        agreement = _agreement(*map(np.array, zip(*pairs.values(), strict=True)))
        if agreement is None:  # float32 says the same of all of them: nothing to order
            pairs.clear()
            return None
        verdict = self._verdicts[sha256, precision] = Verdict(agreement, len(pairs))
        del self._pairs[sha256, precision]
        if self._client is not None:
            self._client.set(f"{_PREFIX}{sha256}:{precision}", json.dumps(asdict(verdict)))
        return verdict


def _agreement(reference: np.ndarray, other: np.ndarray) -> float | None:
    """(n,), (n,). A number format whose scores are no numbers agrees about nothing."""
    if not np.isfinite(other).all():
        return 0.0
    return rank_agreement(reference, other).value


log = logging.getLogger(__name__)


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

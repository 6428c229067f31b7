"""Requests for scores as callers send them, and a model that scores without a model library."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

from workers.contract import scores as contract
from workers.contract.channel import to_json
from workers.contract.scores import CHANNEL, ScoreReply, ScoreRequest
from workers.request_queue import RequestQueue
from workers.rewards.cache import ScoreCache
from workers.rewards.source import Scores
from workers.scoring.scorer import PrecisionGate, Scorer

KEYS = "concord:score:*"


def redis_client() -> "redis.Redis[Any]":
    return redis.Redis.from_url(os.environ["REDIS_URL"])


def emptied() -> Iterator["redis.Redis[Any]"]:
    """Redis without a trace of scoring, before and after."""
    client = redis_client()
    for _ in range(2):
        keys = list(client.scan_iter(KEYS, count=1000))
        if keys:
            client.delete(*keys)
        if _ == 0:
            yield client
    client.close()


def item(response: str, prompt: str = "Why?") -> dict[str, Any]:
    return {"prompt": [{"role": "user", "content": prompt}], "response": response}


def ask(client: "redis.Redis[Any]", name: str, *items: dict[str, Any], **more: str) -> ScoreRequest:
    """Put a request on the stream, as the web side does."""
    values = {"uri": "models/one", "sha256": "1" * 64, "artifacts_url": "/nowhere"} | more
    request = ScoreRequest(id=name, items=list(items), **values)
    taken = client.register_script(contract.SUBMIT)(
        keys=[contract.STREAM, contract.asked_key(name)],
        args=[contract.MAX_WAITING, 600, "{}", name, to_json(request)],
    )
    assert taken == 1
    return request


def reply(client: "redis.Redis[Any]", name: str) -> ScoreReply | None:
    text = client.get(contract.reply_key(name))
    return contract.reply_from_json(text) if text else None


def stats(client: "redis.Redis[Any]") -> dict[str, int]:
    return {k.decode(): int(v) for k, v in client.hgetall(contract.STATS).items()}


@dataclass(frozen=True)
class Letters:
    """A text as a tokenizer would leave it: a letter is a token, prompt first."""

    ids: list[int]
    prompt_length: int
    truncated: bool = False


@dataclass
class CountingModel:
    """Scores a text by its length times `scale`; remembers the batches it was given."""

    scale: float = 1.0
    batches: list[int] = field(default_factory=list)
    fails_on: str = ""

    def encode(
        self, prompts: Sequence[list[dict[str, str]]], responses: Sequence[str]
    ) -> list[tuple[Letters, ...]]:
        rows = []
        for prompt, response in zip(prompts, responses, strict=True):
            if self.fails_on and self.fails_on in response:
                raise RuntimeError("no such letter")
            asked = json.dumps(prompt)
            rows.append((Letters([ord(c) for c in asked + response], len(asked)),))
        return rows

    def score_rows(self, texts: Sequence[tuple[Letters, ...]]) -> Scores:
        self.batches.append(len(texts))
        values = [self.scale * len(row.ids) for (row,) in texts]
        return Scores(values, {"model": values}, disagreement=[0.5] * len(texts))


class Shelf:
    """Models by content hash and precision, all there already."""

    def __init__(self, **models: CountingModel) -> None:
        self.models = models
        self.asked: list[tuple[str, str]] = []

    def get(self, request: ScoreRequest, precision: str) -> tuple[CountingModel, str]:
        self.asked.append((request.sha256, precision))
        return self.models[f"{request.uri.rpartition('/')[2]}_{precision}"], "template"


def scorer(client: "redis.Redis[Any]", shelf: Shelf, *, retake_s: float = 15.0) -> Scorer:
    queue = RequestQueue(client, CHANNEL, retake_s=retake_s)
    queue.join()
    return Scorer(queue, shelf, ScoreCache(client), PrecisionGate(client))


def put_tree(root: Path, folder: Path, name: str) -> tuple[str, str, str]:
    """(store's URL, uri, sha256) of a model folder put into a store below `root`."""
    from workers.artifacts import Store

    store = Store(str(root / "store"))
    sha256, _ = store.put_tree(folder, f"models/{name}")
    return store.url, f"models/{name}", sha256

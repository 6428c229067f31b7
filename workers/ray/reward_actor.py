"""Scoring by actors, each with the whole reward: a source like any other.

A text is always scored by the same actor, chosen by its hash, so what that actor remembers of it
(docs/rewards.md, caches) is found again.
"""

import hashlib
import json
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from workers.artifacts import Store
from workers.context import (
    RunContext,
)
from workers.contract.events import (
    RecipeError,
)
from workers.contract.jobs import JobSpec
from workers.data.snapshot import Messages
from workers.ray.cluster import Cluster
from workers.ray.pool import LIMIT_S, Call, Pool, Refused
from workers.rewards.build import build_reward
from workers.rewards.source import RewardSource, Scores, join


class RewardActor:
    """Builds the reward from the job, as the trainer would: its inputs come from the store."""

    def __init__(
        self, spec: JobSpec, reward: Mapping[str, Any], batch_size: int, threads: int
    ) -> None:
        torch.set_num_threads(threads)
        self._folder = tempfile.TemporaryDirectory(prefix="reward-")
        self._source: RewardSource | None = None
        self._made = (spec, dict(reward), batch_size)

    def ready(self) -> Refused | float | None:
        """The threshold of an ensemble, or what is wrong with the reward."""
        try:
            return getattr(self._reward(), "threshold", None)
        except RecipeError as error:
            return Refused.of(error)

    def score(self, prompts: Sequence[Messages], responses: Sequence[str]) -> Scores | Refused:
        try:
            return self._reward().score(prompts, responses)
        except RecipeError as error:
            return Refused.of(error)

    def _reward(self) -> RewardSource:
        if self._source is None:
            spec, reward, batch_size = self._made
            context = RunContext(spec, Store(spec.artifacts_url), Path(self._folder.name))
            self._source = build_reward(context, reward, batch_size=batch_size)
        return self._source


class RayReward:
    """A `RewardSource` of `workers` actors. Several threads may ask."""

    def __init__(
        self,
        cluster: Cluster,
        spec: JobSpec,
        reward: Mapping[str, Any],
        *,
        workers: int,
        batch_size: int,
        gpus: float = 0.0,
        limit_s: float = LIMIT_S,
    ) -> None:
        ray = cluster.ray
        make = ray.remote(RewardActor).options(num_cpus=1, num_gpus=gpus, max_restarts=0)
        threads = max(1, torch.get_num_threads() // workers)
        self.pool = Pool(
            ray,
            lambda: make.remote(spec, dict(reward), batch_size, threads),
            workers,
            what="reward workers",
            limit_s=limit_s,
        )
        self.threshold: float | None = ray.get(self.pool.actors[0].ready.remote())
        self._lock = threading.Lock()

    def score(self, prompts: Sequence[Messages], responses: Sequence[str]) -> Scores:
        count = len(self.pool.actors)
        whose = [place_of(p, r, count) for p, r in zip(prompts, responses, strict=True)]
        parts = [[i for i, place in enumerate(whose) if place == own] for own in range(count)]
        asked = [own for own in range(count) if parts[own]]
        calls = [
            _call([prompts[i] for i in parts[own]], [responses[i] for i in parts[own]])
            for own in asked
        ]
        with self._lock:
            scored = list(self.pool.map(calls, asked))
        order = [i for own in asked for i in parts[own]]
        return in_order(scored, order)

    def close(self) -> None:
        self.pool.close()


def _call(prompts: Sequence[Messages], responses: Sequence[str]) -> Call:
    return lambda actor: actor.score.remote(prompts, responses)


def place_of(prompt: Messages, response: str, count: int) -> int:
    """Which of `count` actors scores this text: the same in every process and run."""
    digest = hashlib.sha256(json.dumps([prompt, response], sort_keys=True).encode()).digest()
    return int.from_bytes(digest[:8], "big") % count


def in_order(scored: Sequence[Scores], order: Sequence[int]) -> Scores:
    """Scores of parts as one; `order` says which text each of theirs belongs to."""
    whole = join(list(scored))
    back = sorted(range(len(order)), key=order.__getitem__)
    moved: dict[str, Any] = {}
    for each in fields(Scores):
        value = getattr(whole, each.name)
        if isinstance(value, list):
            moved[each.name] = [value[i] for i in back]
        elif isinstance(value, Mapping):
            moved[each.name] = {name: [v[i] for i in back] for name, v in value.items()}
        else:
            moved[each.name] = value
    return Scores(**moved)

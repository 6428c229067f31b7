"""Answers drawn by actors, each with a copy of the policy.

Weights are told by version: put into the object store once, in shards, and fetched by every actor
that is asked for an answer of that version. Only what updates change is sent again, so with
adapters the adapters. An answer comes back with the version that gave it.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from workers.ray.cluster import Cluster
from workers.ray.policy_actor import Answer, Plan, PolicyActor, on
from workers.ray.pool import LIMIT_S, Call, Pool
from workers.ray.weights import fixed, shards, trained
from workers.rollouts.drawing import Chunk, Drawn


class RayDrawer:
    """`workers` actors that draw as `LocalDrawer` would: the same chunk, the same answers.

    `put_s`, `load_s`: seconds of the newest broadcast, for putting its weights and for the slowest
    actor's fetching.
    """

    def __init__(
        self,
        cluster: Cluster,
        policy: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        stop: Sequence[int],
        *,
        workers: int,
        lora: tuple[int, float] | None = None,
        half: bool = False,
        gpus: float = 0.0,
        limit_s: float = LIMIT_S,
    ) -> None:
        """`gpus`: of each actor; 0 draws on a processor. `limit_s`: seconds for one chunk."""
        self.policy = policy
        self.put_s = 0.0
        self.load_s = 0.0
        self.with_logprobs = False
        self._ray = cluster.ray
        self._version: int | None = None
        self._changed: list[Any] = []
        plan = Plan(
            policy.config,
            policy.config._attn_implementation,
            tokenizer,
            tuple(stop),
            lora,
            half,
            max(1, torch.get_num_threads() // workers),
        )
        make = self._ray.remote(PolicyActor).options(num_cpus=1, num_gpus=gpus, max_restarts=0)
        plan_ref = self._ray.put(plan)
        self._fixed = self._put(fixed(policy))  # kept, for whoever takes a dead actor's place
        self.pool = Pool(
            self._ray,
            lambda: make.remote(plan_ref, self._fixed),
            workers,
            what="rollout workers",
            limit_s=limit_s,
        )

    def publish(self, version: int) -> None:
        """The policy as it stands is `version`: copied, so an update may begin at once."""
        if version == self._version:
            return
        began = time.monotonic()
        self._changed = self._put(trained(self.policy))
        self._version = version
        self.put_s, self.load_s = time.monotonic() - began, 0.0

    def draw(self, chunks: Sequence[Chunk], *, version: int) -> Iterator[Drawn]:
        self.publish(version)
        return self.draw_published(chunks)

    def draw_published(self, chunks: Sequence[Chunk]) -> Iterator[Drawn]:
        """Answers of the version published last, whatever happens to the policy here."""
        device, version = self.policy.device, self._version
        calls = [self._call(chunk) for chunk in chunks]
        for chunk, answer in zip(chunks, self.pool.map(calls), strict=True):
            if answer.version != version:
                raise RuntimeError(f"asked for version {version}, drawn by {answer.version}")
            self.load_s = max(self.load_s, answer.load_s)
            yield Drawn(
                chunk,
                on(answer.responses, device),
                answer.version,
                None if answer.logprobs is None else answer.logprobs.to(device),
                None if answer.entropy is None else answer.entropy.to(device),
            )

    def _call(self, chunk: Chunk) -> Call:
        asked = self._version, list(self._changed), chunk, self.with_logprobs

        def call(actor: Any) -> "Answer":
            return actor.draw.remote(*asked)

        return call

    def _put(self, tensors: dict[str, torch.Tensor]) -> list[Any]:
        return [self._ray.put(shard) for shard in shards(tensors)]

    def close(self) -> None:
        self.pool.close()

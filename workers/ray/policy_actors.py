"""A copy of the policy in a process of its own, which draws answers with the weights it is told."""

import os
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from workers.models.forward import score_responses
from workers.models.loading import disable_dropout, pick_device
from workers.models.lora import attach_policy_lora
from workers.ray.cluster import Cluster
from workers.ray.pool import LIMIT_S, Call, Pool
from workers.rollouts.drawing import Chunk, Drawn
from workers.rollouts.local import Responses, generate

# Weights on their way through the object store: shards of bytes, by the names of the tensors.
#
# A shard is one object, so that a large model is neither one allocation nor a thousand, and actors
# on
# one machine read the same memory. Every number type travels, for only its bytes do.

SHARD_BYTES = 256 * 2**20

Packed = tuple[str, tuple[int, ...], NDArray[np.uint8]]  # type, shape, bytes
Shard = dict[str, Packed]


def trained(policy: nn.Module) -> dict[str, Tensor]:
    """What an update may change."""
    return {name: p for name, p in policy.named_parameters() if p.requires_grad}


def fixed(policy: nn.Module) -> dict[str, Tensor]:
    """The rest, buffers included: it is sent once."""
    frozen = {name: p for name, p in policy.named_parameters() if not p.requires_grad}
    return frozen | dict(policy.named_buffers())


def shards(tensors: Mapping[str, Tensor], *, most: int = SHARD_BYTES) -> list[Shard]:
    """In shards of up to `most` bytes, or one tensor where that is larger."""
    found: list[Shard] = []
    size = most
    for name, tensor in tensors.items():
        packed = _pack(tensor)
        if size + packed[2].nbytes > most:
            found.append({})
            size = 0
        found[-1][name] = packed
        size += packed[2].nbytes
    return found


def size_of(tensors: Iterable[Tensor]) -> int:
    """Bytes."""
    return sum(t.numel() * t.element_size() for t in tensors)


@torch.no_grad()
def load(policy: nn.Module, shard: Shard) -> None:
    """Put the tensors of a shard into the model that has them by these names."""
    own = dict(policy.named_parameters()) | dict(policy.named_buffers())
    for name, (kind, shape, raw) in shard.items():
        with warnings.catch_warnings():  # the object store's memory is for reading, as this is
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            flat = torch.from_numpy(raw)
        own[name].copy_(flat.view(getattr(torch, kind)).reshape(shape))


def _pack(tensor: Tensor) -> Packed:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    kind = str(tensor.dtype).removeprefix("torch.")
    return kind, tuple(tensor.shape), flat.view(torch.uint8).numpy()


@dataclass(frozen=True, slots=True)
class Plan:
    """What an actor builds its copy from; weights come apart from it."""

    config: PretrainedConfig
    attention: str
    tokenizer: PreTrainedTokenizerBase
    stop: tuple[int, ...]
    lora: tuple[int, float] | None  # rank, alpha
    half: bool  # passes in bfloat16, as the trainer's
    threads: int


@dataclass(slots=True)
class Answer:
    """A drawn chunk on a CPU. `logprobs`, `entropy` [B, R]: of the version that drew, in nats, by
    the forward pass that an update uses; None where nobody asked. `load_s`: seconds its weights
    took, 0 where it had them."""

    responses: Responses
    logprobs: Tensor | None
    entropy: Tensor | None
    version: int
    load_s: float


class PolicyActor:
    """Becomes a Ray actor; by itself it knows Ray only to fetch weights."""

    def __init__(self, plan: Plan, fixed: Sequence[Any]) -> None:
        """`fixed`: references to the shards that no update changes."""
        torch.set_num_threads(plan.threads)
        policy = AutoModelForCausalLM.from_config(
            plan.config, attn_implementation=plan.attention, dtype=torch.float32
        )
        disable_dropout(policy)
        if plan.lora:
            attach_policy_lora(policy, rank=plan.lora[0], alpha=plan.lora[1])
        self.policy = policy.to(pick_device()).eval()
        self.plan = plan
        self.version: int | None = None
        self._fetch(fixed)

    def ready(self) -> int:
        """Its process."""
        return os.getpid()

    def draw(
        self, version: int, changed: Sequence[Any], chunk: Chunk, with_logprobs: bool
    ) -> Answer:
        """Answers by `version`, whose weights the references `changed` lead to."""
        began = time.monotonic()
        if self.version != version:
            self.version = None  # half of one version and half of another is neither
            self._fetch(changed)
            self.version = version
        load_s = time.monotonic() - began
        device = self.policy.device
        with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=self.plan.half):
            responses = generate(
                self.policy, self.plan.tokenizer, chunk.ids, chunk.sampling, stop=self.plan.stop
            )
            looked = self._look(responses, chunk) if with_logprobs else (None, None)
        logprobs, entropy = looked
        return Answer(on(responses, torch.device("cpu")), logprobs, entropy, version, load_s)

    def _look(self, responses: Responses, chunk: Chunk) -> tuple[Tensor, Tensor]:
        outputs = score_responses(
            self.policy,
            responses.prompt_ids,
            responses.prompt_mask,
            responses.response_ids,
            responses.response_mask,
            temperature=chunk.sampling.temperature,
            with_entropy=True,
        )
        assert outputs.entropy is not None  # noqa: S101 — asked for
        return outputs.logprobs.float().cpu(), outputs.entropy.float().cpu()

    def _fetch(self, references: Sequence[Any]) -> None:
        import ray

        for reference in references:  # one after the other: a shard at a time is in memory
            load(self.policy, ray.get(reference))


def on(responses: Responses, device: torch.device) -> Responses:
    """The same on another device."""
    return Responses(
        prompt_ids=responses.prompt_ids.to(device),
        prompt_mask=responses.prompt_mask.to(device),
        response_ids=responses.response_ids.to(device),
        response_mask=responses.response_mask.to(device),
        ended=responses.ended.to(device),
        texts=responses.texts,
    )


# Answers drawn by actors, each with a copy of the policy.
#
# Weights are told by version: put into the object store once, in shards, and fetched by every
# actor
# that is asked for an answer of that version. Only what updates change is sent again, so with
# adapters the adapters. An answer comes back with the version that gave it.


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

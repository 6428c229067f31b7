"""What a PPO run has beyond its own process: actors that draw, actors that score."""

import os
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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

from measures.messages import Messages
from workers import ranks
from workers.config.policy import PPOSettings
from workers.context import RunContext
from workers.contract.events import Fault, RecipeError
from workers.models.forward import score_responses
from workers.models.loading import disable_dropout, pick_device, stop_ids
from workers.models.lora import attach_policy_lora
from workers.ppo.diagnostics import MetricValues
from workers.ppo.rollout import Rollout
from workers.ppo.setup import Models
from workers.ray.cluster import Cluster
from workers.ray.pool import LIMIT_S, Call, Pool, RayReward
from workers.rewards.source import RankedPending
from workers.rl.losses import importance_metrics
from workers.rollouts.drawing import Chunk, Drawer, Drawn
from workers.rollouts.local import Responses, generate

# A copy of the policy in a process of its own, which draws answers with the weights it is told.

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


# One step off: the answers of the next step are drawn elsewhere while the policy learns here.

Submit = Callable[[Sequence[Messages], Sequence[str]], RankedPending]


@dataclass(slots=True)
class _Held:
    """Answers on their way, and their scores."""

    chunks: list[Chunk]
    version: int
    thread: threading.Thread | None = None
    drawn: list[Drawn] = field(default_factory=list)
    scores: list[RankedPending] = field(default_factory=list)
    error: BaseException | None = None


class AsyncRollout:
    """A `Drawer` that has the answers already where it was told what would be asked.

    `dropped`: chunks drawn ahead in vain, for they were over `most_age` optimizer steps old, or
    others were asked for.
    """

    def __init__(self, drawer: "RayDrawer", submit: Submit, *, most_age: int) -> None:
        self.dropped = 0
        self.most_age = most_age
        self._drawer = drawer
        self._submit = submit
        self._held: _Held | None = None
        self._scores: deque[RankedPending] = deque()
        self._closed = False

    def begin(self, chunks: Sequence[Chunk], *, version: int) -> None:
        """Draw `chunks` with the policy as it stands, and hand them in to be scored, while the
        caller continues. Nobody else may hand in until they are asked for."""
        self._drawer.publish(version)
        held = self._held = _Held(list(chunks), version)
        held.thread = threading.Thread(target=self._run, args=(held,), name="ahead", daemon=True)
        held.thread.start()

    def _run(self, held: _Held) -> None:
        try:
            for drawn in self._drawer.draw_published(held.chunks):
                if self._closed:
                    return
                held.scores.append(self._submit(drawn.chunk.messages, drawn.responses.texts))
                held.drawn.append(drawn)
        except BaseException as error:  # who asks for the answers must get it
            held.error = error

    def draw(self, chunks: Sequence[Chunk], *, version: int) -> Iterator[Drawn]:
        held = self._taken()
        if held is not None and held.error is not None:
            raise held.error
        fits = held and held.chunks == list(chunks) and version - held.version <= self.most_age
        if held is not None and fits:
            self._scores = deque(held.scores)
            yield from held.drawn
            return
        if held is not None:
            self.dropped += len(held.chunks)
        yield from self._drawer.draw(chunks, version=version)

    def scores_of(self, messages: Sequence[Messages], texts: Sequence[str]) -> RankedPending:
        """Of the answers drawn last, in their order: those handed in before, or handed in now."""
        return self._scores.popleft() if self._scores else self._submit(messages, texts)

    def _taken(self) -> _Held | None:
        """What was drawn ahead, once it is there."""
        held, self._held = self._held, None
        if held is not None and held.thread is not None:
            held.thread.join()
        return held

    def close(self) -> None:
        """Wait for the thread, which uses what is closed next."""
        self._closed = True
        self._taken()


KEPT_VERSIONS = 3  # room in the object store: the one in use, the next, and what is still fetched


@dataclass
class Actors:
    """Open with `open_actors`, close when the run ends."""

    cluster: Cluster
    settings: PPOSettings
    drawer: RayDrawer | None
    reward: RayReward | None
    async_rollout: AsyncRollout | None = None
    _told: dict[str, int] = field(default_factory=dict)

    def draw_ahead_by(self, submit: Submit) -> None:
        """One step off from now on, where the settings want that."""
        if self.drawer is not None and self.settings.rollout_lag:
            self.drawer.with_logprobs = True
            self.async_rollout = AsyncRollout(
                self.drawer, submit, most_age=self.settings.oldest_rollout
            )

    def who_draws(self) -> Drawer | None:
        return self.async_rollout or self.drawer

    def metrics(self, rollout: Rollout, version: int) -> MetricValues:
        """Of a step that learned from `rollout` as `version`, by the names of docs/metrics.md."""
        metrics: MetricValues = {}
        if self.drawer is not None:
            metrics |= {
                "time/broadcast_s": self.drawer.put_s + self.drawer.load_s,
                "rollout/redrawn": self._since("redrawn", self.drawer.pool.redone),
                "rollout/workers_replaced": self._since("drawers", self.drawer.pool.replaced),
            }
        if self.reward is not None:
            metrics["reward/workers_replaced"] = self._since("scorers", self.reward.pool.replaced)
        if self.async_rollout is not None and rollout.importance is not None:
            cap = self.settings.importance_cap
            metrics |= importance_metrics(rollout.importance, rollout.mask, cap=cap)
            metrics |= {
                "rollout/age": float(version - rollout.policy_version),
                "rollout/dropped": self._since("dropped", self.async_rollout.dropped),
            }
        return metrics

    def _since(self, name: str, count: int) -> float:
        """Since the step before."""
        before, self._told[name] = self._told.get(name, 0), count
        return float(count - before)

    def stop(self) -> None:
        """Draw nothing ahead any more."""
        if self.async_rollout is not None:
            if self.drawer is not None:
                self.drawer.pool.stop()  # its thread may wait for an actor that hangs
            self.async_rollout.close()

    def close(self) -> None:
        """After `stop`, and after the last who asks for scores."""
        for each in (self.drawer, self.reward):
            if each is not None:
                each.close()
        self.cluster.close()


def open_actors(
    context: RunContext, settings: PPOSettings, models: Models, *, half: bool
) -> Actors:
    """Start or join a cluster and start the actors that the settings ask for."""
    if ranks.world() > 1:
        raise RecipeError(
            "bad_config",
            Fault.CONFIGURATION,
            "rollout_workers, reward_workers: go with the layout 'one'; a job of several "
            "processes shares drawing and scoring among its ranks. Set both to 0, or the layout "
            "to 'one'.",
        )
    policy = models.actor_critic.policy
    drawing, scoring = settings.rollout_workers, settings.reward_workers
    weights = size_of([*policy.parameters(), *policy.buffers()]) if drawing else 0
    cluster = Cluster.open(
        context.workdir,
        actors=drawing + scoring,
        gpus=settings.worker_gpus,
        store=KEPT_VERSIONS * weights + 2**26,
    )
    try:
        drawer = reward = None
        if drawing:
            adapted = settings.lora_rank > 0
            drawer = RayDrawer(
                cluster,
                policy,
                models.tokenizer,
                stop_ids(policy, models.tokenizer),
                workers=drawing,
                lora=(settings.lora_rank, settings.lora_alpha) if adapted else None,
                half=half,
                gpus=settings.worker_gpus,
                limit_s=settings.worker_timeout,
            )
        if scoring:
            reward = RayReward(
                cluster,
                context.spec,
                settings.reward,
                workers=scoring,
                batch_size=settings.reward_batch_size,
                precision=settings.reward_precision,
                gpus=settings.worker_gpus,
                limit_s=settings.worker_timeout,
            )
    except BaseException:
        cluster.close()
        raise
    return Actors(cluster, settings, drawer, reward)

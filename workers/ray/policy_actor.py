"""A copy of the policy in a process of its own, which draws answers with the weights it is told."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedTokenizerBase

from workers.models.forward import score_responses
from workers.models.loading import disable_dropout, pick_device
from workers.models.lora import attach_policy_lora
from workers.ray.weights import load
from workers.rollouts.drawing import Chunk
from workers.rollouts.local import Responses, generate


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
    """Becomes a Ray actor in `workers.ray.drawer`; by itself it knows Ray only to fetch weights."""

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
        return Answer(on(responses, torch.device("cpu")), *looked, version, load_s)

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

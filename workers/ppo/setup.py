"""What a PPO run starts with: models, optimizer, prompts."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate import Accelerator, InitProcessGroupKwargs
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from measures.messages import Messages
from workers import ranks
from workers.config.policy import OptimisedSettings, PPOSettings
from workers.context import RunContext
from workers.contract.events import Fault, RecipeError
from workers.contract.jobs import FSDP, ONE, ZERO2, ZERO3
from workers.data.batches import encode_fitting
from workers.data.snapshot import TRAIN, Prompt, read_held_out_prompts, read_prompts
from workers.layouts.gathered import is_split, whole_weights
from workers.models.forward import Reference
from workers.models.loading import is_quantised, keep, load_causal, load_tokenizer, on_half_gpu
from workers.models.lora import attach_policy_lora
from workers.ppo.distributed import RestingAdamW, Zero, split
from workers.ppo.model import ActorCritic, critic_of
from workers.rollouts.local import derive_seed
from workers.samples import choose

if TYPE_CHECKING:
    from workers.config.inference import AskingSettings

# Longer than one rank may keep the others waiting, while it alone scores or stores something. A
# rank that dies is noticed by who started it, not by this.
LONGEST_WAIT = timedelta(hours=2)


@dataclass(slots=True)
class Models:
    """The policy with its critic, and the frozen model it is compared with."""

    actor_critic: ActorCritic
    reference: Reference
    tokenizer: PreTrainedTokenizerBase
    fresh_model: Callable[
        [], ActorCritic
    ]  # another of the same kind, on the CPU, on this rank alone
    zero: Zero | None = None  # what DeepSpeed has made of `actor_critic`

    def whole(self) -> AbstractContextManager[None]:
        """Inside, policy, critic and reference can be asked by one rank without the others."""
        own = [] if self.reference.adapted else [self.reference.model]
        return whole_weights(self.zero.engine if self.zero else self.actor_critic, *own)

    @property
    def tied(self) -> bool:
        """Whether a pass with gradients, of one rank alone, would wait for the others."""
        return self.zero is not None or is_split(self.actor_critic)


@dataclass(slots=True)
class Prompts:
    """Prompts that fit, as messages and token ids; `left_out` counts those too long."""

    messages: list[Messages]
    ids: list[list[int]]
    left_out: int

    def __len__(self) -> int:
        return len(self.ids)

    def at(self, indices: list[int]) -> tuple[list[Messages], list[list[int]]]:
        return [self.messages[i] for i in indices], [self.ids[i] for i in indices]


def check_layout(context: RunContext) -> None:
    """Raises `RecipeError` (bad_config) where PPO cannot run as the job is laid out."""
    if context.spec.layout == ONE and ranks.world() > 1:
        raise RecipeError(
            "bad_config",
            Fault.CONFIGURATION,
            f"layout: 'one' is one process, and this job was started in {ranks.world()}",
        )


def make_accelerator(settings: PPOSettings) -> Accelerator:
    """Device, precision and processes. Weights stay in float32; bfloat16 is for the passes."""
    on_gpu = torch.cuda.is_available()
    half = settings.precision == "bfloat16" or (settings.precision == "auto" and on_half_gpu())
    # What `accelerate launch` would have a model wrapped in; here the recipe splits it itself.
    for wrapper in ("ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED"):
        os.environ.pop(wrapper, None)
    return Accelerator(
        mixed_precision="bf16" if half else "no",
        cpu=not on_gpu,
        kwargs_handlers=[InitProcessGroupKwargs(timeout=LONGEST_WAIT)],
    )


def load_models(context: RunContext, settings: PPOSettings) -> Models:
    """The starting policy (or the resumed one) and the reference, never the same weights in use."""
    start = context.input_path("policy" if context.has_input("policy") else "sft")
    reference_folder = context.input_path("reference") if context.has_input("reference") else start
    resumed = context.resume_path()
    context.phase("loading the models")
    tokenizer = load_tokenizer(resumed or start)
    adapters = settings.lora_rank > 0
    layout = context.spec.layout
    actor_critic = _actor_critic(start if adapters else resumed or start, settings, layout)
    policy, adapted = actor_critic.policy, actor_critic.adapted
    if adapted is not None and reference_folder == start:
        reference = Reference.below_adapters(adapted)
    else:
        kept = keep(settings, layout, trained=False)
        reference = Reference.frozen(load_causal(reference_folder, keep=kept), policy=policy)
    if resumed:
        actor_critic.load(resumed)
    actor_critic.eval()  # dropout is off anyway; nothing may differ between rollout and update
    if layout == FSDP and ranks.world() > 1:
        split(actor_critic, reference)
    fresh_model = partial(_actor_critic, start, settings, layout, device=torch.device("cpu"))
    return Models(actor_critic, reference, tokenizer, fresh_model)


def _actor_critic(
    folder: Path, settings: PPOSettings, layout: str, *, device: torch.device | None = None
) -> ActorCritic:
    kept = keep(settings, layout, trained=not settings.lora_rank)
    policy = load_causal(folder, device=device, keep=kept)
    _check_room(policy, settings)
    critic = None
    if settings.critic == "separate":
        narrow = is_quantised(policy) or policy.dtype != torch.float32
        whole = keep(settings, layout, trained=True)
        critic = critic_of(load_causal(folder, device=device, keep=whole) if narrow else policy)
    if settings.gradient_checkpointing == "on" or (
        settings.gradient_checkpointing == "auto" and policy.device.type == "cuda"
    ):
        policy.activation_checkpointing_enable()
    adapted = None
    if settings.lora_rank > 0:
        adapted = attach_policy_lora(policy, rank=settings.lora_rank, alpha=settings.lora_alpha)
    return ActorCritic(policy, adapted=adapted, critic=critic)


def make_optimizer(
    actor_critic: ActorCritic, settings: PPOSettings
) -> RestingAdamW | torch.optim.Optimizer:
    """AdamW with the critic's own step size. ε = 1e-5 after Huang et al. 2022, detail 3."""
    value_rate = settings.value_learning_rate or 10 * settings.learning_rate
    groups: list[dict[str, Any]] = [
        {"params": actor_critic.policy_parameters(), "base_lr": settings.learning_rate},
        {"params": actor_critic.critic_parameters(), "base_lr": value_rate},
    ]
    if settings.optimizer == "adamw_8bit":
        from bitsandbytes.optim import AdamW8bit

        made: torch.optim.Optimizer = AdamW8bit(
            groups, lr=settings.learning_rate, eps=1e-5, weight_decay=0.0
        )
        return made
    return RestingAdamW(
        groups,
        lr=settings.learning_rate,
        eps=1e-5,
        weight_decay=0.0,
        # One pass over memory on a processor. On a GPU the default already is one of few, and the
        # fused one would want its step counters there, where a resumed run does not put them.
        fused=actor_critic.policy.device.type == "cpu",
    )


def make_zero(
    context: RunContext,
    settings: PPOSettings,
    models: Models,
    optimizer: torch.optim.Optimizer,
    accelerator: Accelerator,
) -> Zero | None:
    """DeepSpeed around policy and critic, where the job's layout wants it: the last thing that is
    done to them, for what steps with them is DeepSpeed from then on."""
    layout = context.spec.layout
    if layout not in (ZERO2, ZERO3) or ranks.world() == 1:
        return None
    assert isinstance(optimizer, RestingAdamW)  # noqa: S101 — `check_layout` refuses others
    models.zero = Zero(
        models.actor_critic,
        optimizer,
        layout=layout,
        max_norm=settings.max_grad_norm,
        half=accelerator.mixed_precision == "bf16",
    )
    return models.zero


def set_learning_rate(
    optimizer: torch.optim.Optimizer | Zero, settings: PPOSettings, step: int, *, scale: float = 1.0
) -> float:
    """Set every group's rate for `step` (from 1) by the schedule, times what a guardrail made of
    it; returns the policy's."""
    warmup = settings.warmup_share * settings.steps
    factor = min(1.0, step / warmup) if warmup else 1.0
    if settings.lr_schedule == "linear":
        factor *= 1.0 - (step - 1) / settings.steps
    for group in optimizer.param_groups:
        group["lr"] = group["base_lr"] * factor * scale
    return optimizer.param_groups[0]["lr"]


def read_training_prompts(
    folder: Path,
    tokenizer: PreTrainedTokenizerBase,
    settings: OptimisedSettings,
    *,
    encode: Callable[[Messages], list[int]] | None = None,
) -> Prompts:
    """The prompts of the training file; `RecipeError` (no_rows) when none fits. `encode` in place
    of the tokenizer's own template, where more than the prompt is told."""
    return _fitting(read_prompts(folder, TRAIN), tokenizer, settings, encode)


def read_evaluation_prompts(
    folder: Path,
    tokenizer: PreTrainedTokenizerBase | None,
    settings: "OptimisedSettings | AskingSettings",
    *,
    seed: int,
    encode: Callable[[Messages], list[int]] | None = None,
) -> Prompts:
    """A fixed, seeded choice: from the evaluation files, else from the training file. Without a
    tokenizer all prompts are taken and have no ids."""
    prompts = _fitting(read_held_out_prompts(folder), tokenizer, settings, encode)
    chosen = choose(len(prompts), settings.eval_prompts, derive_seed(seed, "evaluation"))
    messages, ids = prompts.at(chosen)
    return Prompts(messages, ids, prompts.left_out)


def _fitting(
    rows: list[Prompt],
    tokenizer: PreTrainedTokenizerBase | None,
    settings: "OptimisedSettings | AskingSettings",
    encode: Callable[[Messages], list[int]] | None = None,
) -> Prompts:
    if tokenizer is None:
        return Prompts([row.messages for row in rows], [[] for _ in rows], 0)
    if encode is None:
        messages, ids = encode_fitting(
            tokenizer, [row.messages for row in rows], settings.max_prompt_length
        )
    else:
        both = [(row.messages, encode(row.messages)) for row in rows]
        fitting = [(said, ids) for said, ids in both if len(ids) <= settings.max_prompt_length]
        messages, ids = [said for said, _ in fitting], [ids for _, ids in fitting]
    if not ids:
        raise RecipeError(
            "no_rows", Fault.DATA, "no prompt is left: all are longer than max_prompt_length"
        )
    return Prompts(messages, ids, len(rows) - len(ids))


def _check_room(policy: PreTrainedModel, settings: PPOSettings) -> None:
    positions = getattr(policy.config.get_text_config(), "max_position_embeddings", None)
    wanted = settings.max_prompt_length + settings.max_new_tokens
    if positions and wanted > positions:
        raise RecipeError(
            "bad_config",
            Fault.CONFIGURATION,
            f"max_prompt_length + max_new_tokens: {wanted} tokens are more than the "
            f"{positions} positions of this model",
        )

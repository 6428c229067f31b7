"""What a run of some settings will hold and compute at once, from the inputs' configurations."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, PretrainedConfig

from workers.context import RunContext
from workers.memory.entries import Held, Plan
from workers.memory.shape import ModelShape, frozen_shape, shape_of
from workers.models.forward import LOGITS_CHUNK
from workers.rewards.layout import is_ensemble, read_layout

PROPOSED_RANK = 16  # of the adapters a ledger proposes where a run has none


def plan_for(
    context: RunContext,
    kind: str,
    settings: Any,
    *,
    longest_prompt: int | None = None,
    longest_row: int | None = None,
) -> Plan | None:
    """The plan of a ppo, grpo, dpo or sft run; None where no input names a model's configuration
    (a model that is built, or comes from a hub), or its architecture cannot be read without its
    data. `longest_prompt` (of prompts) and `longest_row`
    (of pairs or demonstrations): tokens, where they are known and under the settings' limit."""
    folder = _start(context)
    if folder is None:
        return None
    try:
        return plan_of(
            kind,
            settings,
            policy=AutoConfig.from_pretrained(folder),
            reference=_other_reference(context, folder),
            readers=_readers(context),
            device="cuda" if torch.cuda.is_available() else "cpu",
            longest_prompt=longest_prompt,
            longest_row=longest_row,
        )
    except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        # An estimate that cannot be made is no reason to end a run; why, the log says.
        context.log(f"No estimate of memory: {type(error).__name__}: {error}", level="warning")
        return None


def plan_of(
    kind: str,
    settings: Any,
    *,
    policy: PretrainedConfig,
    reference: PretrainedConfig | None = None,
    readers: Mapping[str, tuple[PretrainedConfig, int]] | None = None,
    device: str = "cpu",
    weight_bytes: int = 4,
    longest_prompt: int | None = None,
    longest_row: int | None = None,
) -> Plan:
    """The plan from configurations alone. `reference` is given where it is another model than the
    start; readers: role (reward, judge) to configuration and members."""
    precision = _precision(settings, device)
    rank = getattr(settings, "lora_rank", 0)
    masked = kind != "ppo"  # whose rows are read without their padding

    def seen(config: PretrainedConfig, lora_rank: int = 0) -> ModelShape:
        return shape_of(config, lora_rank=lora_rank, dtype=precision, masked=masked)

    models = [
        Held(
            role="policy",
            shape=seen(policy, rank),
            trained=True,
            weight_bytes=weight_bytes,
            adapted=None if rank else seen(policy, PROPOSED_RANK),
        )
    ]
    if _needs_reference(kind, settings) and (reference is not None or not rank):
        held = seen(reference or policy)
        # Of the same weights as the start: adapters, once there are any, make it superfluous.
        spare = reference is None
        models.append(Held(role="reference", shape=held, weight_bytes=weight_bytes, spare=spare))
    if getattr(settings, "critic", "") == "separate":
        models.append(
            Held(role="critic", shape=seen(policy), trained=True, weight_bytes=weight_bytes)
        )
    for role, (config, members) in (readers or {}).items():
        models.append(Held(role=role, shape=frozen_shape(config, dtype="float32"), copies=members))
    plan = Plan(
        models=tuple(models),
        device=device,
        precision=precision,
        gradient_checkpointing=_checkpointing(settings, device),
        value_head=kind == "ppo" and getattr(settings, "critic", "shared") == "shared",
        # On an accelerator TRL's fused output layer makes the others' in pieces too.
        logits_chunk=LOGITS_CHUNK if kind == "ppo" or device == "cuda" else None,
        # Its split policy projects on the vocabulary within its own pass.
        chunks_when_split=kind != "grpo",
    )
    rolls_out = hasattr(settings, "max_new_tokens") or hasattr(settings, "max_completion_length")
    if rolls_out:
        return _rolling(plan, settings, longest_prompt)
    return _reading(plan, kind, settings, longest_row)


def _rolling(plan: Plan, settings: Any, longest_prompt: int | None) -> Plan:
    """PPO and GRPO: answers are drawn, looked at, scored, stored and learned from."""
    answer = _first(settings, "max_new_tokens", "max_completion_length", default=128)
    prompt = _first(settings, "max_prompt_length", default=512)
    prompt = min(prompt, longest_prompt or prompt)
    length = prompt + answer
    batch = settings.batch_size
    chunk = min(batch, _first(settings, "rollout_chunk", "generation_batch_size", default=batch))
    micro = _first(settings, "microbatch_size", "minibatch_size", default=batch)
    micro = max(1, micro // _first(settings, "gradient_accumulation", default=1))
    readers = [held for held in plan.models if held.role in ("reward", "judge")]
    return replace(
        plan,
        update_rows=_rows(settings, min(micro, batch), length),
        update_length=length,
        update_response=answer,
        look_rows=_rows(settings, batch, length),
        generate_rows=chunk,
        generate_length=length,
        scoring_rows=min(batch, _first(settings, "reward_batch_size", default=64))
        if readers
        else 0,
        scoring_length=length if readers else 0,
        rollout_rows=batch,
        rollout_prompt=prompt,
        rollout_response=answer,
    )


def _reading(plan: Plan, kind: str, settings: Any, longest_row: int | None) -> Plan:
    """SFT and DPO: rows are read; of pairs both answers count, each behind its prompt."""
    rows = max(1, settings.batch_size // getattr(settings, "gradient_accumulation", 1))
    rows *= 2 if kind == "dpo" else 1
    length = min(settings.max_length, longest_row or settings.max_length)
    return replace(
        plan,
        update_rows=_rows(settings, rows, length),
        update_length=length,
        update_response=length,
    )


def _rows(settings: Any, rows: int, length: int) -> int:
    """Rows of full length that are computed at once under the token budget, where there is one."""
    budget = getattr(settings, "max_tokens_per_batch", None)
    return rows if budget is None else max(1, min(rows, budget // length))


def _first(settings: Any, *names: str, default: int) -> int:
    """The first of these fields that is there and set."""
    values = (getattr(settings, name, None) for name in names)
    return next((value for value in values if value is not None), default)


def _needs_reference(kind: str, settings: Any) -> bool:
    if kind == "grpo":
        return _price(settings) > 0
    return kind == "ppo" or (kind == "dpo" and not getattr(settings, "precompute_reference", False))


def _price(settings: Any) -> float:
    return getattr(settings, "beta", None) or getattr(settings, "kl_coef", None) or 0.0


def _precision(settings: Any, device: str) -> str:
    wish = getattr(settings, "precision", "float32")
    if wish == "auto":
        return "bfloat16" if device == "cuda" else "float32"
    return wish


def _checkpointing(settings: Any, device: str) -> bool:
    wish = getattr(settings, "gradient_checkpointing", False)
    return wish is True or wish == "on" or (wish == "auto" and device == "cuda")


# --- inputs ---


def _start(context: RunContext) -> Path | None:
    for role in ("policy", "sft"):
        if context.has_input(role):
            return _model_folder(context.input_path(role))
    return None


def _other_reference(context: RunContext, start: Path) -> PretrainedConfig | None:
    if not context.has_input("reference"):
        return None
    folder = _model_folder(context.input_path("reference"))
    return None if folder is None or folder == start else AutoConfig.from_pretrained(folder)


def _readers(context: RunContext) -> dict[str, tuple[PretrainedConfig, int]]:
    """Reward model and judge: an ensemble counts as so many of its first member."""
    found: dict[str, tuple[PretrainedConfig, int]] = {}
    for role in ("reward", "judge"):
        if not context.has_input(role):
            continue
        folder, members = context.input_path(role), 1
        if is_ensemble(folder):
            names = read_layout(folder).members
            folder, members = folder / names[0], len(names)
        if _model_folder(folder) is not None:
            found[role] = (AutoConfig.from_pretrained(folder), members)
    return found


def _model_folder(folder: Path) -> Path | None:
    return folder if (folder / "config.json").is_file() else None

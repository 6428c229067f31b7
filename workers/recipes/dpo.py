"""Direct preference optimisation: the policy learns from pairs, with no reward model between.

Inputs: `data` (a preferences snapshot) and `sft` (the checkpoint that the policy starts from and
that is its reference). TRL's losses on our batches (`workers.trainers.dpo`). The reference is the
policy as it stands in memory before the first step: a copy of it, or the weights below its
adapters. Left to itself TRL reloads it from the path in the policy's configuration, which is wrong
for a policy that was changed in memory.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from peft import PeftModel
from transformers import set_seed
from trl import DPOConfig

from workers.config.training import DPOSettings
from workers.context import RunContext
from workers.data.snapshot import (
    TRAIN,
    Messages,
    Preference,
    evaluation_splits,
    read_preferences,
    refuse_soft_labels,
)
from workers.layouts.shards import Shares
from workers.models.forward import Reference
from workers.models.loading import (
    load_causal,
    load_tokenizer,
    parameter_count,
    readable_length,
    trained_parameter_count,
)
from workers.models.lora import attach_policy_lora
from workers.preflight.findings import Parts
from workers.preflight.minimal import settings_of
from workers.trainers.dpo import (
    Pair,
    PairTrainer,
    Precomputed,
    Probe,
    encode_pairs,
    loss_arguments,
    precompute,
    reference_key,
)
from workers.trainers.trainer_bridge import (
    Reporter,
    check_batches,
    train,
    trainer_arguments,
    validation_split,
)

CONFIG = DPOSettings


def run(context: RunContext) -> dict[str, Any]:
    """Train, report samples, return the headline figures."""
    settings: DPOSettings = settings_of(context, "dpo")
    set_seed(context.spec.seed)
    folder = context.input_path("data")
    start = context.input_path("sft")
    tokenizer = load_tokenizer(start)
    policy, reference = with_reference(load_causal(start), settings)
    max_length = min(settings.max_length, readable_length(reference.model, tokenizer))

    splits = {s: read_preferences(folder, s) for s in (TRAIN, *evaluation_splits(folder))}
    refuse_soft_labels(splits[TRAIN], "DPO reads winners only; freeze one without ties")
    _tell_unread(context, splits[TRAIN])
    watched = {TRAIN: splits[TRAIN], "held_out": splits[validation_split(splits)]}
    pairs = {name: encode_pairs(tokenizer, rows, max_length) for name, rows in watched.items()}
    check_batches(settings, len(pairs[TRAIN]))
    looked = None
    if context.spec.resume is None:
        cut, dropped = _cut(pairs[TRAIN]), len(splits[TRAIN]) - len(pairs[TRAIN])
        parts = Parts(tokenizer=tokenizer, policy=policy, left_out=dropped, cut=cut)
        looked = context.look_before("dpo", settings, parts).summary()
    if settings.preflight:
        return {"step": 0, "preflight": looked}
    known = None
    if settings.precompute_reference:
        known = _ask_reference(context, settings, reference, pairs, tokenizer.pad_token_id)
        pairs = known.joined(pairs)

    reporter = Reporter(context, settings)
    prompts = _distinct(watched["held_out"])
    probe = Probe(
        context,
        settings,
        policy,
        reference,
        tokenizer,
        prompts,
        max_length,
        look=reporter.look,
    )
    trainer = PairTrainer(
        model=policy,
        args=dpo_config(context, settings, max_length),
        settings=settings,
        train_pairs=pairs[TRAIN],
        eval_pairs=pairs["held_out"],
        tokenizer=tokenizer,
        callbacks=[reporter, probe],
        reference=None if known else reference,
        precomputed=known,
        shares=Shares.of(context.spec.layout),
    )
    probe.whole = trainer.whole
    train(context, trainer)
    reference.check()

    step = trainer.state.global_step
    if context.stopped != "cancel":
        probe.show(step)
    return {
        "step": step,
        "parameters": parameter_count(policy),
        "trained_parameters": trained_parameter_count(policy),
        "train_rows": len(pairs[TRAIN]),
        "dropped_rows": len(splits[TRAIN]) - len(pairs[TRAIN]),
        "truncated_share": _cut(pairs[TRAIN]) / len(pairs[TRAIN]),
        "preflight": looked,
        "reference_sha256": reference.sha256,
        "reference_precomputed": known is not None,
        "kl": probe.kl,
        "held_out_margin": reporter.evaluated.get("eval/rewards/margins"),
        "held_out_accuracy": reporter.evaluated.get("eval/rewards/accuracies"),
    }


def with_reference(policy: Any, settings: DPOSettings) -> tuple[Any, Reference]:
    """The policy to train, with adapters where they are asked for, and what it is compared with:
    itself as it is now, whatever path its configuration names."""
    if settings.gradient_checkpointing:
        policy.activation_checkpointing_enable()
    if not settings.lora_rank:
        return policy, Reference.frozen(copy.deepcopy(policy), policy=policy)
    adapted = attach_policy_lora(policy, rank=settings.lora_rank, alpha=settings.lora_alpha)
    return adapted, Reference.below_adapters(adapted)


def dpo_config(context: RunContext, settings: DPOSettings, max_length: int) -> DPOConfig:
    """TRL's arguments of the run."""
    return DPOConfig(
        **trainer_arguments(context, settings),
        **loss_arguments(settings),
        max_length=max_length,
    )


def _ask_reference(
    context: RunContext,
    settings: DPOSettings,
    reference: Reference,
    pairs: Mapping[str, Sequence[Pair]],
    pad_id: int,
) -> Precomputed:
    """Its log-probabilities of every pair: those of the checkpoint that is resumed, or new ones.

    A copy of its own then leaves the accelerator, and comes back only to be sampled from.
    """
    device = reference.model.device
    half = device.type == "cuda" and torch.cuda.is_bf16_supported()
    key = reference_key(reference, pairs, "bfloat16" if half else "float32")
    resume = context.resume_path()
    known = Precomputed.load(resume, key) if resume is not None else None
    if known is None:
        if resume is not None:
            context.log(
                "the checkpoint's reference log-probabilities are of another reference or of other "
                "pairs: they are computed again",
                level="warning",
            )
        known = precompute(
            reference,
            pairs,
            key,
            pad_id=pad_id,
            device=device,
            budget=settings.max_tokens_per_batch,
            autocast=torch.autocast(device.type, torch.bfloat16, enabled=half),
        )
        context.log(f"asked the reference about {sum(map(len, pairs.values())):,} pairs")
    if not isinstance(reference.adapted, PeftModel):
        model: torch.nn.Module = reference.model
        model.to("cpu")
    return known


def _tell_unread(context: RunContext, rows: Sequence[Preference]) -> None:
    """TRL's losses count every pair alike; nobody should believe that weights did something."""
    weighted = sum(row.weight != 1.0 for row in rows)
    if weighted:
        context.log(
            f"{weighted:,} of {len(rows):,} pairs have a weight other than 1, which DPO does not "
            "read: every pair counts the same (a reward run reads weights and confidences)",
            level="warning",
        )


def _cut(pairs: Sequence[Pair]) -> int:
    """Pairs of which an answer was cut."""
    return sum(pair.chosen.truncated or pair.rejected.truncated for pair in pairs)


def _distinct(rows: Sequence[Preference]) -> list[Messages]:
    unique: dict[str, Messages] = {repr(row.prompt): row.prompt for row in rows}
    return list(unique.values())

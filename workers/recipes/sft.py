"""Supervised fine-tuning: imitate the answers of the demonstrations.

Inputs: `data` (a demonstrations snapshot) and optionally `base` (a checkpoint). Without `base`
and without `base_model` a tokenizer and a small model are built from the demonstrations. TRL's loss
on our batches (`workers.trainers.sft`). At the end its answers are compared with the demonstrations
(`workers.trainers.sft`), because RL starts from what it has learnt.
"""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peft import PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase, set_seed
from trl import SFTConfig

from workers.behaviour import Copies
from workers.config.training import SFTSettings
from workers.context import RunContext
from workers.contract.events import Alert, Fault, RecipeError
from workers.data.batches import Encoded, encode_pair, encode_turns, truncated_share
from workers.data.snapshot import Demonstration, evaluation_splits, read_demonstrations
from workers.layouts.shards import Shares
from workers.models.forward import can_share_rows
from workers.models.loading import (
    keep,
    load_causal,
    load_tokenizer,
    named_model,
    parameter_count,
    pick_device,
    readable_length,
    stop_ids,
    trained_parameter_count,
)
from workers.models.lora import attach_policy_lora, body_of
from workers.preflight.findings import Parts
from workers.preflight.minimal import settings_of
from workers.trainers.probes import GENERAL, TRAINED, FixedRows, Probe, general_rows
from workers.trainers.row_checks import leaked_share, row_figures
from workers.trainers.sft import (
    BaseShape,
    DemonstrationTrainer,
    Imitation,
    build_model,
    imitation_of,
    report_departures,
    train_tokenizer,
)
from workers.trainers.trainer_bridge import Reporter, check_batches, train, trainer_arguments

CONFIG = SFTSettings


@dataclass(frozen=True, slots=True)
class Rows:
    """Demonstrations that fit, and what became of the rest."""

    encoded: list[Encoded]
    longer: float  # share longer than max_length, 0–1
    changed: int  # earlier answers that the template shows otherwise, and nobody learns


def run(context: RunContext) -> dict[str, Any]:
    """Train, compare with the demonstrations, report samples, return the headline figures."""
    settings: SFTSettings = settings_of(context, "sft")
    set_seed(context.spec.seed)
    training, held_out = _split(context, settings)
    tokenizer, body = _base(context, settings, training)
    if settings.packing and not can_share_rows(body):
        raise RecipeError(
            "bad_config",
            Fault.CONFIGURATION,
            f"packing: a model of the kind '{body.config.model_type}' does not read texts that "
            "share a row as it reads each alone; switch it off",
        )
    max_length = min(settings.max_length, readable_length(body, tokenizer))
    train_rows = _encode(tokenizer, training, max_length, settings)
    eval_rows = _encode(tokenizer, held_out, max_length, settings)
    check_batches(settings, len(train_rows.encoded))

    model = _adapted(body, settings)
    looked = None
    if context.spec.resume is None:
        left_out = len(training) - len(train_rows.encoded)
        cut = sum(row.truncated for row in train_rows.encoded)
        parts = Parts(
            tokenizer=tokenizer,
            policy=body,
            left_out=left_out,
            cut=cut,
            example=most_turns(train_rows.encoded),
            changed_answers=train_rows.changed,
        )
        looked = context.look_before("sft", settings, parts).summary()
    if settings.preflight:
        return {"step": 0, "preflight": looked}
    figures = (
        {"data/truncated_share": train_rows.longer}
        | leaked_share(*([(r.prompt, r.response) for r in of] for of in (training, held_out)))
        | row_figures(
            tokenizer, [(r.prompt, r.response) for r in training], stop_ids(body, tokenizer)
        )
    )
    reporter = Reporter(context, settings, rows=figures)
    probe = Probe(
        context,
        settings,
        model,
        tokenizer,
        [(row.prompt, row.response) for row in held_out],
        max_length,
        reporter.look,
        rows=FixedRows.drawn(
            context.spec.seed,
            texts={
                TRAINED: train_rows.encoded,
                GENERAL: general_rows(context, tokenizer, max_length),
            },
        ),
        copies=Copies(row.response for row in training),
    )
    reporter.histograms = probe.histograms
    trainer = DemonstrationTrainer(
        model=model,
        args=sft_config(context, settings, max_length),
        settings=settings,
        train_rows=train_rows.encoded,
        eval_rows=eval_rows.encoded,
        tokenizer=tokenizer,
        callbacks=[reporter, probe],
        shares=Shares.of(context.spec.layout),
    )
    probe.whole = trainer.whole
    train(context, trainer)

    step, imitation = trainer.state.global_step, None
    if context.stopped != "cancel":
        probe.show(step)
        with trainer.whole() as whole:
            if whole is not None:
                imitation = _imitation(context, settings, body_of(whole), tokenizer, held_out, step)
    return {
        "step": step,
        "parameters": parameter_count(body),
        "trained_parameters": trained_parameter_count(model),
        "max_length": max_length,
        "train_rows": len(train_rows.encoded),
        "held_out_rows": len(eval_rows.encoded),
        "longer_than_max_length_share": train_rows.longer,
        "held_out_loss": reporter.losses[-1][1] if reporter.losses else None,
        "held_out_loss_at_start": reporter.losses[0][1] if context.spec.resume is None else None,
        "preflight": looked,
        "imitation": imitation.summary() if imitation else None,
    }


def most_turns(rows: list[Encoded]) -> Encoded | None:
    """The row to show: the first of those with most answers."""
    return max(rows, key=lambda row: len(row.others), default=None)


def sft_config(context: RunContext, settings: SFTSettings, max_length: int) -> SFTConfig:
    """TRL's arguments of the run."""
    return SFTConfig(
        **trainer_arguments(context, settings),
        loss_type=settings.loss_type,
        max_length=max_length,
    )


def _adapted(body: PreTrainedModel, settings: SFTSettings) -> PreTrainedModel | PeftModel:
    """What is trained: the model, or adapters in its layers, so that `body` answers as it does."""
    if settings.gradient_checkpointing:
        body.activation_checkpointing_enable()
    if not settings.lora_rank:
        return body
    return attach_policy_lora(body, rank=settings.lora_rank, alpha=settings.lora_alpha)


def _imitation(
    context: RunContext,
    settings: SFTSettings,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    held_out: list[Demonstration],
    step: int,
) -> Imitation | None:
    """The comparison, reported; None where it is not asked for or nothing can be compared."""
    if not settings.imitation_prompts:
        return None
    imitation = imitation_of(
        model,
        tokenizer,
        held_out,
        prompts=settings.imitation_prompts,
        seed=context.spec.seed,
        limit=settings.imitation_max_new_tokens,
    )
    if imitation is None:
        context.log("no held-out prompt leaves room for an answer: nothing is compared")
    else:
        report_departures(context, step, imitation)
    return imitation


def _split(
    context: RunContext, settings: SFTSettings
) -> tuple[list[Demonstration], list[Demonstration]]:
    """Training and held-out demonstrations: the snapshot's own files, else a seeded share."""
    folder = context.input_path("data")
    rows = read_demonstrations(folder)
    splits = evaluation_splits(folder)
    if splits:
        return rows, [row for split in splits for row in read_demonstrations(folder, split)]
    order = list(range(len(rows)))
    random.Random(context.spec.seed).shuffle(order)
    kept_out = max(1, round(settings.held_out_share * len(rows)))
    return [rows[i] for i in sorted(order[kept_out:])], [rows[i] for i in sorted(order[:kept_out])]


def _base(
    context: RunContext, settings: SFTSettings, training: list[Demonstration]
) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
    """The model to start from: the resumed one, an input, a named one, or one built here.

    Adapters go on the model they were trained on; a checkpoint has them merged into its weights
    for others, and beside them for the trainer to read back.
    """
    source: str | Path | None = None if settings.lora_rank else context.resume_path()
    if source is None and context.has_input("base"):
        source = context.input_path("base")
    if source is None and settings.base_model is not None:
        source = named_model(settings.base_model)
    context.phase("loading the models")
    if source is not None:
        kept = keep(settings, context.spec.layout, trained=not settings.lora_rank)
        return load_tokenizer(source), load_causal(source, keep=kept)
    if not settings.toy:
        raise RecipeError(
            "missing_input",
            Fault.CONFIGURATION,
            "an SFT run needs an input 'base' or a base_model; 'toy' builds a small model instead",
        )
    if settings.lora_rank:
        raise RecipeError(
            "bad_config",
            Fault.CONFIGURATION,
            "lora_rank: a model that is built here has learnt nothing to adapt; name a base_model",
        )
    context.emit(
        Alert(
            rule="toy",
            severity="info",
            step=0,
            message="No model to start from was chosen, but 'toy': a small one is built from the "
            "demonstrations. It shows that everything works, and its text is not worth reading.",
        )
    )
    texts = [m["content"] for row in training for m in row.prompt] + [r.response for r in training]
    tokenizer = train_tokenizer(
        texts, vocabulary=settings.base_vocabulary, context=settings.base_context
    )
    shape = BaseShape(
        vocabulary=len(tokenizer),
        width=settings.base_width,
        layers=settings.base_layers,
        heads=settings.base_heads,
        context=settings.base_context,
    )
    return tokenizer, build_model(tokenizer, shape, seed=context.spec.seed).to(pick_device())


def _encode(
    tokenizer: PreTrainedTokenizerBase,
    rows: list[Demonstration],
    max_length: int,
    settings: SFTSettings,
) -> Rows:
    """Token ids; a row without room for an answer is left out whatever `overlong` says."""
    encoded, changed = [], 0
    for row in rows:
        if settings.train_on == "last":
            one = encode_pair(tokenizer, row.prompt, row.response, max_length=max_length)
        else:
            one, n = encode_turns(tokenizer, row.prompt, row.response, max_length=max_length)
            changed += n
        encoded.append(one)
    kept = [
        row
        for row in encoded
        if row.response_length > 0 and (settings.overlong == "truncate" or not row.truncated)
    ]
    return Rows(kept, truncated_share(encoded), changed)

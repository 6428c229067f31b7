"""Direct preference optimisation: the policy learns from pairs, with no reward model between.

Inputs: `data` (a preferences snapshot) and `sft` (the checkpoint that the policy starts from and
that is its reference). TRL's losses on our batches (`workers.trainers.dpo`). The reference is the
policy as it stands in memory before the first step: a copy of it, or the weights below its
adapters. Left to itself TRL reloads it from the path in the policy's configuration, which is wrong
for a policy that was changed in memory.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from peft import PeftModel
from transformers import PreTrainedTokenizerBase, set_seed
from trl import DPOConfig

from measures.messages import Messages
from workers.behaviour import Copies
from workers.config.training import DPOSettings, SampledSettings
from workers.context import RunContext
from workers.data.snapshot import (
    TRAIN,
    JudgedAnswer,
    evaluation_splits,
    read_preferences,
    refuse_soft_labels,
)
from workers.layouts.shards import Shares
from workers.models.forward import Reference
from workers.models.loading import (
    keep,
    load_causal,
    load_tokenizer,
    on_half_gpu,
    parameter_count,
    readable_length,
    stop_ids,
    trained_parameter_count,
)
from workers.models.lora import attach_policy_lora, body_of
from workers.preflight.findings import Parts
from workers.preflight.minimal import settings_of
from workers.samples import known_pairs
from workers.trainers.dpo import (
    Pair,
    PairTrainer,
    Precomputed,
    encode_pairs,
    loss_arguments,
    precompute,
    reference_key,
)
from workers.trainers.probes import (
    GENERAL,
    HELD_OUT,
    KNOWN,
    MOST_KNOWN,
    TRAINED,
    Asked,
    FixedRows,
    Probe,
    general_rows,
)
from workers.trainers.row_checks import leaked_share, longer_chosen_share, row_figures
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
    start = begin(context, settings)
    policy, reference, tokenizer = start.policy, start.reference, start.tokenizer
    folder = context.input_path("data")
    splits = {s: read_preferences(folder, s) for s in (TRAIN, *evaluation_splits(folder))}
    refuse_soft_labels(splits[TRAIN], "DPO reads winners only; freeze one without ties")
    tell_unread(context, [row.weight for row in splits[TRAIN]], "pair")
    watched = {TRAIN: splits[TRAIN], "held_out": splits[validation_split(splits)]}
    pairs = {name: encode_pairs(tokenizer, r, start.max_length) for name, r in watched.items()}
    check_batches(settings, len(pairs[TRAIN]))
    rows = Rows(
        trained=len(pairs[TRAIN]),
        dropped=len(splits[TRAIN]) - len(pairs[TRAIN]),
        cut=sum(pair.chosen.truncated or pair.rejected.truncated for pair in pairs[TRAIN]),
    )
    figures = (
        rows.figures
        | leaked_share(*([(r.prompt, r.chosen, r.rejected) for r in of] for of in watched.values()))
        | start.row_figures([(row.prompt, row.chosen) for row in splits[TRAIN]])
        | longer_chosen_share([(row.chosen, row.rejected) for row in splits[TRAIN]])
    )
    looked = look_before(context, "dpo", settings, start, rows)
    if settings.preflight:
        return {"step": 0, "preflight": looked}
    known = None
    if settings.precompute_reference:
        known = _ask_reference(context, settings, reference, pairs, tokenizer.pad_token_id)
        pairs = known.joined(pairs)

    reporter, probe = watchers(
        context,
        settings,
        start,
        [(row.prompt, row.chosen) for row in watched["held_out"]],
        learned=[row.chosen for row in splits[TRAIN]],
        beta=settings.beta,
        pairs={
            TRAINED: pairs[TRAIN],
            HELD_OUT: pairs["held_out"],
            KNOWN: _known_pairs(context, start),
        },
        figures=figures,
    )
    trainer = PairTrainer(
        model=policy,
        args=dpo_config(context, settings, start.max_length),
        settings=settings,
        train_pairs=pairs[TRAIN],
        eval_pairs=pairs["held_out"],
        tokenizer=tokenizer,
        callbacks=[reporter, probe],
        reference=None if known else reference,
        precomputed=known,
        shares=Shares.of(context.spec.layout),
    )
    return train_and_sum_up(context, trainer, start, rows, reporter, probe) | {
        "preflight": looked,
        "reference_precomputed": known is not None,
        "held_out_accuracy": reporter.evaluated.get("eval/rewards/accuracies"),
    }


# What DPO and KTO share: how a training of a policy on fixed rows begins and ends.


@dataclass(frozen=True, slots=True)
class Start:
    """The policy to train, what it is held to, and how many tokens both read at most."""

    policy: Any
    reference: Reference
    tokenizer: PreTrainedTokenizerBase
    max_length: int

    def row_figures(self, rows: Sequence[tuple[Messages, str]]) -> dict[str, float]:
        """Of training rows, through the template: `workers.trainers.row_checks`."""
        ends = stop_ids(body_of(self.policy), self.tokenizer)
        return row_figures(self.tokenizer, rows, ends)


@dataclass(frozen=True, slots=True)
class Rows:
    """Numbers of training rows: those trained on, too long to be, and cut to fit."""

    trained: int
    dropped: int
    cut: int

    @property
    def figures(self) -> dict[str, float]:
        return {"data/truncated_share": (self.dropped + self.cut) / (self.trained + self.dropped)}


def begin(context: RunContext, settings: SampledSettings) -> Start:
    """The models of a run, seeded."""
    set_seed(context.spec.seed)
    folder = context.input_path("sft")
    context.phase("loading the models")
    tokenizer = load_tokenizer(folder)
    layout = context.spec.layout
    kept = keep(settings, layout, trained=not settings.lora_rank)
    policy, reference = with_reference(load_causal(folder, keep=kept), settings, layout)
    max_length = min(settings.max_length, readable_length(reference.model, tokenizer))
    return Start(policy, reference, tokenizer, max_length)


def look_before(
    context: RunContext,
    kind: str,
    settings: SampledSettings,
    start: Start,
    rows: Rows,
    answers: Sequence[JudgedAnswer] | None = None,
) -> dict[str, Any] | None:
    """The summary of the preflight of a fresh run; None of a resumed one. `answers`: the training
    rows, where they are single answers."""
    if context.spec.resume is not None:
        return None
    parts = Parts(
        tokenizer=start.tokenizer,
        policy=start.policy,
        left_out=rows.dropped,
        cut=rows.cut,
        answers=answers,
    )
    return context.look_before(kind, settings, parts).summary()


def watchers(
    context: RunContext,
    settings: SampledSettings,
    start: Start,
    asked: Sequence[Asked],
    *,
    learned: Sequence[str],
    beta: float,
    figures: Mapping[str, float],
    pairs: Mapping[str, Sequence[Pair]] | None = None,
) -> tuple[Reporter, Probe]:
    """The callbacks of a training: what reports it, and what asks the policy. `learned`: the
    answers whose copies are looked for; `figures` of the training rows, known before it."""
    reporter = Reporter(context, settings, rows=figures)
    general = general_rows(context, start.tokenizer, start.max_length)
    probe = Probe(
        context,
        settings,
        start.policy,
        start.tokenizer,
        asked,
        start.max_length,
        reporter.look,
        reference=start.reference,
        rows=FixedRows.drawn(context.spec.seed, pairs=pairs, texts={GENERAL: general}),
        copies=Copies(learned),
        beta=beta,
    )
    reporter.histograms = probe.histograms
    return reporter, probe


def _known_pairs(context: RunContext, start: Start) -> list[Pair]:
    """Pairs whose better answer is known, where the run has them."""
    if not context.has_input("canaries"):
        return []
    rows = known_pairs(context, "canaries", most=MOST_KNOWN)
    return encode_pairs(start.tokenizer, rows, start.max_length)


def train_and_sum_up(
    context: RunContext, trainer: Any, start: Start, rows: Rows, reporter: Reporter, probe: Probe
) -> dict[str, Any]:
    """Train, show answers beside the reference's own; the figures that every such run has."""
    probe.whole = trainer.whole
    train(context, trainer)
    start.reference.check()
    step = trainer.state.global_step
    if context.stopped != "cancel":
        probe.show(step)
    return {
        "step": step,
        "parameters": parameter_count(start.policy),
        "trained_parameters": trained_parameter_count(start.policy),
        "train_rows": rows.trained,
        "dropped_rows": rows.dropped,
        "truncated_share": rows.cut / rows.trained,
        "reference_sha256": start.reference.sha256,
        "kl": probe.kl,
        "held_out_margin": reporter.evaluated.get("eval/rewards/margins"),
    }


def with_reference(policy: Any, settings: SampledSettings, layout: str) -> tuple[Any, Reference]:
    """The policy to train, with adapters where they are asked for, and what it is compared with:
    itself as it is now, whatever path its configuration names."""
    if settings.gradient_checkpointing:
        policy.activation_checkpointing_enable()
    if not settings.lora_rank:
        own = keep(settings, layout, trained=False).of(copy.deepcopy(policy))
        return policy, Reference.frozen(own, policy=policy)
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
    half = on_half_gpu()
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


def tell_unread(context: RunContext, weights: Sequence[float], noun: str) -> None:
    """TRL's losses count every row alike; nobody should believe that weights did something."""
    weighted = sum(weight != 1.0 for weight in weights)
    if weighted:
        context.log(
            f"{weighted:,} of {len(weights):,} {noun}s have a weight other than 1, which this "
            f"training does not read: every {noun} counts the same (a reward run reads weights and "
            "confidences)",
            level="warning",
        )

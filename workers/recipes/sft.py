"""Supervised fine-tuning: imitate the answers of the demonstrations.

Inputs: `data` (a demonstrations snapshot) and optionally `base` (a checkpoint). Without `base`
and without `base_model` a tokenizer and a small model are built from the demonstrations.

The library's plain trainer with the loss written out here: TRL's SFTTrainer computes the same, but
its fused output layer takes three times as long on a processor (docs/log.md).
"""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainingArguments, set_seed

from workers.context import RunContext
from workers.data.base_model import BaseShape, build_model, train_tokenizer
from workers.data.encoding import Encoded, encode_pair, truncated_share
from workers.data.padding import pad_right
from workers.data.snapshot import (
    Demonstration,
    Messages,
    evaluation_splits,
    read_demonstrations,
)
from workers.models import (
    load_causal,
    load_tokenizer,
    parameter_count,
    pick_device,
    readable_length,
)
from workers.recipes.samples import choose, emit_samples, encode_fitting
from workers.recipes.settings import settings_for
from workers.recipes.settings.supervised import SFTSettings
from workers.recipes.trainer_bridge import (
    GuardedTrainer,
    Reporter,
    check_batches,
    train,
    trainer_arguments,
)
from workers.rollouts.answers import answer
from workers.rollouts.forward import answer_logits
from workers.rollouts.sampling import Sampling

CONFIG = SFTSettings
IGNORED = -100  # the label that the loss skips


class Trainer(GuardedTrainer, transformers.Trainer):
    """Cross-entropy on the tokens of the answers, every token counting the same."""

    loss_is_scaled_for_ga = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.seen: dict[bool, list[torch.Tensor]] = {True: [], False: []}  # training → sums

    def compute_loss(
        self,
        model: PreTrainedModel,
        inputs: dict[str, torch.Tensor],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | None = None,
    ) -> torch.Tensor:
        labels = inputs["labels"][:, 1:]
        keep = F.pad(labels != IGNORED, (0, 1))  # the position before each answer token
        logits = answer_logits(model, inputs["input_ids"], inputs["attention_mask"], keep)
        targets = labels[labels != IGNORED]
        total = F.cross_entropy(logits.float(), targets, reduction="sum")
        right = (logits.argmax(-1) == targets).sum()
        count = torch.tensor(float(len(targets)))
        self.seen[model.training].append(torch.stack([total.detach().cpu(), right.cpu(), count]))
        return total / (len(targets) if num_items_in_batch is None else num_items_in_batch)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Adds the share of tokens guessed right, under TRL's name; and weighs the held-out loss
        by token, where the library would weigh it by batch."""
        batches = self.seen[self.model.training]
        if batches:
            total, right, count = torch.stack(batches).sum(0).tolist()
            prefix = "" if self.model.training else "eval_"
            logs[f"{prefix}mean_token_accuracy"] = right / count
            if prefix:
                logs["eval_loss"] = total / count
            batches.clear()
        super().log(logs, start_time)


@dataclass(frozen=True, slots=True)
class Rows:
    """Demonstrations that fit, and what became of the rest."""

    encoded: list[Encoded]
    longer: float  # share longer than max_length, 0–1


def run(context: RunContext) -> dict[str, Any]:
    """Train, report samples, return the headline figures."""
    settings: SFTSettings = settings_for("sft", context.spec.config)
    set_seed(context.spec.seed)
    training, held_out = _split(context, settings)
    tokenizer, model = _base(context, settings, training)
    max_length = min(settings.max_length, readable_length(model, tokenizer))
    train_rows = _encode(tokenizer, training, max_length, settings.overlong)
    eval_rows = _encode(tokenizer, held_out, max_length, settings.overlong)
    check_batches(settings, len(train_rows.encoded))

    reporter = Reporter(context, settings)
    trainer = Trainer(
        model=model,
        args=TrainingArguments(**trainer_arguments(context, settings)),
        train_dataset=train_rows.encoded,
        eval_dataset=eval_rows.encoded,
        processing_class=tokenizer,
        data_collator=lambda rows: _collate(rows, tokenizer.pad_token_id),
        callbacks=[reporter],
    )
    trainer.row_lengths = [len(row.ids) for row in train_rows.encoded]
    train(context, trainer)

    if context.stopped != "cancel":
        room = max(1, max_length - settings.sample_max_new_tokens)
        prompts, ids = encode_fitting(tokenizer, [row.prompt for row in held_out], room)
        _show_samples(context, settings, model, tokenizer, prompts, ids, trainer.state.global_step)
    return {
        "step": trainer.state.global_step,
        "parameters": parameter_count(model),
        "max_length": max_length,
        "train_rows": len(train_rows.encoded),
        "held_out_rows": len(eval_rows.encoded),
        "longer_than_max_length_share": train_rows.longer,
        "held_out_loss": reporter.losses[-1][1] if reporter.losses else None,
        "held_out_loss_at_start": reporter.losses[0][1] if context.spec.resume is None else None,
    }


def _show_samples(
    context: RunContext,
    settings: SFTSettings,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: list[Messages],
    ids: list[list[int]],
    step: int,
) -> None:
    """Answers to a few held-out prompts, the same ones in every run of this seed."""
    chosen = choose(len(prompts), settings.sample_prompts, context.spec.seed)
    if not chosen:
        return
    model.eval()
    sampling = Sampling(settings.sample_max_new_tokens, seed=context.spec.seed)
    answers = answer(model, tokenizer, [ids[i] for i in chosen], sampling)
    emit_samples(context, step, [prompts[i] for i in chosen], answers)


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
    """The model to start from: the resumed one, an input, a named one, or one built here."""
    source: str | Path | None = context.resume_path()
    if source is None and context.has_input("base"):
        source = context.input_path("base")
    source = source or settings.base_model
    if source is not None:
        return load_tokenizer(source), load_causal(source)
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


def _collate(rows: list[Encoded], pad_id: int) -> dict[str, torch.Tensor]:
    """[N, L] ids, mask and labels; the labels of prompt and padding are ignored."""
    ids, mask = pad_right([row.ids for row in rows], pad_id)
    labels = torch.where(mask.bool(), ids, IGNORED)
    for label, row in zip(labels, rows, strict=True):
        label[: row.prompt_length] = IGNORED
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def _encode(
    tokenizer: PreTrainedTokenizerBase,
    rows: list[Demonstration],
    max_length: int,
    overlong: str,
) -> Rows:
    """Token ids; a row without room for an answer is left out whatever `overlong` says."""
    encoded = [
        encode_pair(tokenizer, row.prompt, row.response, max_length=max_length) for row in rows
    ]
    kept = [
        row
        for row in encoded
        if row.response_length > 0 and (overlong == "truncate" or not row.truncated)
    ]
    return Rows(kept, truncated_share(encoded))

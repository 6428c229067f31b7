"""A reward model: which of two answers would people prefer?

Inputs: `data` (a preferences snapshot) and a model to start from: `sft`, `base` or `base_model`.
The loss is Bradley–Terry's; with hard labels and no weights it is TRL's RewardTrainer's, with
confidences as soft targets it also learns how sure people were. Every evaluation file of the
snapshot is reported with an interval, next to the rule that reads nothing ("the longer wins").
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainingArguments, set_seed

from workers.context import RecipeError, RunContext
from workers.contract.events import Fault
from workers.data.encoding import Encoded, PairEncoder
from workers.data.padding import pad_right
from workers.data.snapshot import (
    TRAIN,
    Preference,
    evaluation_splits,
    read_preferences,
    refuse_soft_labels,
)
from workers.models import load_scorer, load_tokenizer, parameter_count, readable_length
from workers.recipes.settings import settings_for
from workers.recipes.settings.preference import RewardSettings
from workers.recipes.trainer_bridge import (
    GuardedTrainer,
    Reporter,
    check_batches,
    train,
    trainer_arguments,
    validation_split,
)
from workers.rewards.model import score_rows
from workers.rewards.report import PairReport, pair_report
from workers.rl.losses import bradley_terry_loss

CONFIG = RewardSettings


@dataclass(frozen=True, slots=True)
class EncodedPair:
    """Both conversations of a row, which share their prompt."""

    row: Preference
    chosen: Encoded
    rejected: Encoded

    @property
    def longest(self) -> int:
        return max(len(self.chosen.ids), len(self.rejected.ids))


class Trainer(GuardedTrainer, transformers.Trainer):
    """Bradley–Terry on pairs; the first half of a batch holds the chosen answers."""

    loss_is_scaled_for_ga = False

    def __init__(self, *args: Any, settings: RewardSettings, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.settings = settings
        self.seen: dict[bool, list[torch.Tensor]] = {True: [], False: []}  # training → scores

    def compute_loss(
        self,
        model: PreTrainedModel,
        inputs: dict[str, torch.Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> torch.Tensor:
        scores = model(
            input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]
        ).logits.squeeze(-1)
        chosen, rejected = scores.float().chunk(2)
        loss = bradley_terry_loss(
            chosen,
            rejected,
            target=inputs["confidence"] if self.settings.labels == "soft" else None,
            weight=inputs["weight"] if self.settings.use_weights else None,
        )
        if self.settings.center_coef:
            loss = loss + self.settings.center_coef * ((chosen + rejected) ** 2).mean()
        self.seen[model.training].append(torch.stack([chosen, rejected]).detach())
        return loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Adds what the scores of the batches since the last point say, under TRL's names."""
        batches = self.seen[self.model.training]
        if batches:
            chosen, rejected = torch.cat(batches, dim=1)
            prefix = "" if self.model.training else "eval_"
            credit = (torch.sign(chosen - rejected) + 1) / 2  # a tie counts half
            logs[f"{prefix}accuracy"] = credit.mean().item()
            logs[f"{prefix}margin"] = (chosen - rejected).mean().item()
            logs[f"{prefix}mean_reward"] = torch.cat([chosen, rejected]).mean().item()
            batches.clear()
        super().log(logs, start_time)


def run(context: RunContext) -> dict[str, Any]:
    """Train, report every split, return the headline figures."""
    settings: RewardSettings = settings_for("reward", context.spec.config)
    set_seed(context.spec.seed)
    folder = context.input_path("data")
    source = _source(context, settings)
    tokenizer = load_tokenizer(source)
    model = load_scorer(source, tokenizer, dropout=settings.dropout)
    max_length = min(settings.max_length, readable_length(model, tokenizer))
    tokenizer.model_max_length = max_length  # scoring later cuts where training cut

    encoder = PairEncoder(tokenizer, max_length=max_length)
    rows = {s: read_preferences(folder, s) for s in (TRAIN, *evaluation_splits(folder))}
    if settings.labels != "soft":
        refuse_soft_labels(rows[TRAIN], "set labels to soft, or freeze one without ties")
    splits = {split: _encode(encoder, of) for split, of in rows.items()}
    validation = validation_split(splits)
    check_batches(settings, len(splits[TRAIN]))
    trainer = Trainer(
        model=model,
        args=TrainingArguments(**trainer_arguments(context, settings)),
        train_dataset=splits[TRAIN],
        eval_dataset=splits[validation],
        processing_class=tokenizer,
        data_collator=lambda pairs: _collate(pairs, tokenizer.pad_token_id),
        callbacks=[Reporter(context, settings)],
        settings=settings,
    )
    trainer.row_lengths = [pair.longest for pair in splits[TRAIN]]
    train(context, trainer)

    summary: dict[str, Any] = {
        "step": trainer.state.global_step,
        "parameters": parameter_count(model),
        "train_rows": len(splits[TRAIN]),
        "max_length": max_length,
    }
    if context.stopped != "cancel":
        reports = {
            split: _report(model, tokenizer, pairs, settings, context.spec.seed)
            for split, pairs in splits.items()
            if pairs
        }
        _publish(context, reports, step=trainer.state.global_step)
        summary |= {"splits": {split: report.plain() for split, report in reports.items()}}
    return summary


def _source(context: RunContext, settings: RewardSettings) -> str | Path:
    for role in ("sft", "base"):
        if context.has_input(role):
            return context.input_path(role)
    if settings.base_model is None:
        raise RecipeError(
            "missing_input",
            Fault.CONFIGURATION,
            "a reward run needs an input 'sft' or 'base', or a base_model",
        )
    return settings.base_model


def _encode(encoder: PairEncoder, rows: Sequence[Preference]) -> list[EncodedPair]:
    return [
        EncodedPair(row, encoder(row.prompt, row.chosen), encoder(row.prompt, row.rejected))
        for row in rows
    ]


def _collate(pairs: Sequence[EncodedPair], pad_id: int) -> dict[str, torch.Tensor]:
    """[2N, L] ids and mask, chosen first; confidence and weight [N]."""
    ids, mask = pad_right([p.chosen.ids for p in pairs] + [p.rejected.ids for p in pairs], pad_id)
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "confidence": torch.tensor([pair.row.confidence for pair in pairs]),
        "weight": torch.tensor([pair.row.weight for pair in pairs]),
    }


def _report(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Sequence[EncodedPair],
    settings: RewardSettings,
    seed: int,
) -> PairReport:
    model.eval()
    both = [pair.chosen for pair in pairs] + [pair.rejected for pair in pairs]
    scores = score_rows(model, tokenizer, both, batch_size=64)
    margins = [a - b for a, b in zip(scores[: len(pairs)], scores[len(pairs) :], strict=True)]
    return pair_report(
        [pair.row for pair in pairs],
        margins,
        chosen_lengths=[len(pair.row.chosen) for pair in pairs],
        rejected_lengths=[len(pair.row.rejected) for pair in pairs],
        truncated=sum(row.truncated for row in both),
        replicates=settings.bootstrap_replicates,
        seed=seed,
    )


def _publish(context: RunContext, reports: Mapping[str, PairReport], *, step: int) -> None:
    """The report as a file, and its figures as the last metric points of the run."""
    for split, report in reports.items():
        context.metrics(
            step,
            {
                f"report/{split}/accuracy": report.accuracy.value,
                f"report/{split}/length_only_accuracy": report.length_only.value,
                f"report/{split}/margin": report.margin_mean,
            },
        )
    path = context.workdir / "report.json"
    plain = {split: report.plain() for split, report in reports.items()}
    path.write_text(json.dumps(plain, indent=1))
    context.save_artifact(path, media_type="application/json")

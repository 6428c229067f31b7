"""A process reward model: is each step of a trajectory right?

Inputs: `data` (a stepwise snapshot) and a causal language model to start from (`sft`, `base` or
`base_model`). One score at the end of each step (`workers.trainers.step_trainer`). Reported on
every evaluation file: accuracy of steps, first errors that are found, their F1, calibration, with
intervals over trajectories. Options and words: docs/process-rewards.md.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transformers import TrainingArguments, set_seed

from measures.steps import StepReport, step_report
from workers.config.training import ProcessRewardSettings
from workers.context import RunContext
from workers.contract.events import Fault, RecipeError, Sample
from workers.data.snapshot import TRAIN, evaluation_splits, read_judged_steps
from workers.models.loading import (
    keep,
    load_step_scorer,
    load_tokenizer,
    named_model,
    parameter_count,
    readable_length,
)
from workers.preflight.minimal import settings_of
from workers.trainers.step_trainer import (
    EncodedSteps,
    StepTrainer,
    check_labels,
    encode_steps,
    figures,
)
from workers.trainers.trainer_bridge import (
    Reporter,
    check_batches,
    train,
    trainer_arguments,
    validation_split,
)

CONFIG = ProcessRewardSettings
REPORT = "steps.json"
SAMPLES = 4
Splits = dict[str, list[EncodedSteps]]


def run(context: RunContext) -> dict[str, Any]:
    """Train, report every split, return the headline figures."""
    settings: ProcessRewardSettings = settings_of(context, "process_reward")
    set_seed(context.spec.seed)
    source = _source(context, settings)
    context.phase("loading the models")
    tokenizer = load_tokenizer(source)
    kept = keep(settings, context.spec.layout, trained=True)
    model: Any = load_step_scorer(source, tokenizer, keep=kept)
    max_length = min(settings.max_length, readable_length(model, tokenizer))
    tokenizer.model_max_length = max_length
    splits, left_out = _read(context, tokenizer, max_length)
    check_batches(settings, len(splits[TRAIN]))
    check_labels(splits[TRAIN])
    watched = validation_split(splits)
    counted = _counted(splits, left_out)
    context.log(
        f"{counted['rows']:,} trajectories with {counted['marked_steps']:,} marked steps, "
        f"{counted['wrong_share']:.0%} of them wrong; {counted['cut_steps']:,} were cut and "
        f"{left_out:,} trajectories have none left."
    )
    if settings.preflight:
        return {"step": 0, "preflight": counted}
    trainer = StepTrainer(
        model=model,
        args=TrainingArguments(**trainer_arguments(context, settings)),
        train_dataset=splits[TRAIN],
        eval_dataset=splits[watched],
        processing_class=tokenizer,
        callbacks=[Reporter(context, settings)],
        settings=settings,
        pad_id=tokenizer.pad_token_id,
    )
    train(context, trainer)
    step = trainer.state.global_step
    summary = {"step": step, "parameters": parameter_count(model), "preflight": counted}
    if context.stopped == "cancel":
        return summary
    reports = {name: _report(trainer, rows, settings) for name, rows in splits.items() if rows}
    _publish(context, trainer, splits[watched], reports, step=step)
    return summary | {
        "splits": {name: _plain(report) for name, report in reports.items()},
        "last": {f"eval/{name}": value for name, value in figures(reports[watched]).items()},
    }


def _source(context: RunContext, settings: ProcessRewardSettings) -> str | Path:
    for role in ("sft", "base"):
        if context.has_input(role):
            return context.input_path(role)
    if settings.base_model is None:
        raise RecipeError(
            "missing_input",
            Fault.CONFIGURATION,
            "a process_reward run needs an input 'sft' or 'base', or a base_model",
        )
    return named_model(settings.base_model)


def _read(context: RunContext, tokenizer: Any, max_length: int) -> tuple[Splits, int]:
    """Every file's rows that have a marked step, and how many of the training file have none."""
    folder = context.input_path("data")
    found: Splits = {}
    left_out = 0
    for split in (TRAIN, *evaluation_splits(folder)):
        found[split], lost = encode_steps(tokenizer, read_judged_steps(folder, split), max_length)
        left_out += lost if split == TRAIN else 0
    return found, left_out


def _counted(splits: Splits, left_out: int) -> dict[str, Any]:
    labels = [one for row in splits[TRAIN] for one in row.labels if one is not None]
    return {
        "rows": len(splits[TRAIN]),
        "left_out": left_out,
        "marked_steps": len(labels),
        "wrong_share": labels.count(False) / len(labels),
        "cut_steps": sum(row.cut for row in splits[TRAIN]),
    }


def _report(
    trainer: StepTrainer, rows: list[EncodedSteps], settings: ProcessRewardSettings
) -> StepReport:
    return step_report(
        trainer.score(rows),
        [row.labels for row in rows],
        replicates=settings.bootstrap_replicates,
        seed=trainer.args.seed,
    )


def _plain(report: StepReport) -> dict[str, Any]:
    return asdict(report)


def _publish(
    context: RunContext,
    trainer: StepTrainer,
    held_out: list[EncodedSteps],
    reports: dict[str, StepReport],
    *,
    step: int,
) -> None:
    """The report as a file, and a few held-out trajectories with what the model says of them."""
    path = context.workdir / REPORT
    path.write_text(json.dumps({name: _plain(one) for name, one in reports.items()}, indent=1))
    context.save_artifact(path, media_type="application/json")
    shown = held_out[:SAMPLES]
    for row, logits in zip(shown, trainer.score(shown), strict=True):
        lines = [
            f"{_word(z > 0)} ({_word(y)}): {text}"
            for z, y, text in zip(logits, row.labels, row.row.steps, strict=False)
        ]
        context.emit(Sample(step, "random", list(row.row.prompt), "\n".join(lines)))


def _word(right: bool | None) -> str:
    return "unmarked" if right is None else "right" if right else "wrong"

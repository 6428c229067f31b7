"""A reward model: which of two answers would people prefer?

Inputs: `data` (a preferences snapshot), optionally `hard` (adversarial pairs), and a model to start
from: `sft`, `base` or `base_model` (any Hugging Face encoder or causal model). The loss is
Bradley–Terry's; with hard labels and no weights it is TRL's RewardTrainer's. A run may train the
models of a cross-validation and the members of an ensemble one after another. Every evaluation file
of the snapshot is reported with an interval, next to the rule that reads nothing ("the longer
wins"). All options: docs/reward-training.md.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from measures.accuracy import pair_credit
from workers.config.training import RewardSettings
from workers.context import RunContext
from workers.contract.events import Fault, RecipeError
from workers.data.snapshot import TRAIN
from workers.models.loading import load_tokenizer, named_model, readable_length
from workers.preflight.minimal import settings_of
from workers.rewards.ensemble import is_ensemble
from workers.trainers.reward_data import FOLD, HARD, PairData, Result, plan_parts, read_pairs
from workers.trainers.reward_reports import (
    cross_validation,
    ensemble_layout,
    gap_of,
    preflight,
    publish,
    show_pairs,
    split_reports,
    warnings_of,
)
from workers.trainers.reward_training import Training, fresh_model
from workers.trainers.trainer_bridge import check_batches, validation_split

CONFIG = RewardSettings


def run(context: RunContext) -> dict[str, Any]:
    """Train, report every split, return the headline figures."""
    settings: RewardSettings = settings_of(context, "reward")
    training = _prepare(context, settings)
    progress = training.progress
    if settings.preflight:
        return {"step": 0, "preflight": progress.preflight}
    partial: Result | None = None
    for part in training.parts[len(progress.done) :]:
        result = training.train(part)
        if context.stopped:
            partial = result
            break
        progress.done.append(result)
        training.save_ended(part, result)
    return _summary(training, partial)


def _prepare(context: RunContext, settings: RewardSettings) -> Training:
    source = _source(context, settings)
    context.phase("loading the models")
    tokenizer = load_tokenizer(source)
    model = fresh_model(source, tokenizer, settings, context.spec.layout, seed=context.spec.seed)
    max_length = min(settings.max_length, readable_length(model, tokenizer))
    tokenizer.model_max_length = max_length  # scoring later cuts where training cut
    data = read_pairs(context, settings, tokenizer, max_length=max_length)
    check_batches(settings, len(data.train))
    training = Training(
        context=context,
        settings=settings,
        source=source,
        tokenizer=tokenizer,
        data=data,
        validation=_watched(data),
        parts=plan_parts(settings, [pair.row for pair in data.train], seed=context.spec.seed),
    )
    resume = context.resume_path()
    if resume is not None:
        training.take_up(resume)
    if training.progress.preflight is None:
        context.log("Preflight: counting, and timing a step.")
        found = preflight(model, data, training.parts, settings, tokenizer.pad_token_id)
        training.progress.preflight = found | {"max_length": max_length}
        context.log(
            f"Preflight: {found['models']} model(s), {found['steps']} steps, about "
            f"{found['seconds']:.0f} s and {found['memory_mb']:.0f} MB."
        )
        for text in warnings_of(found):
            context.log(f"Preflight: {text}", level="warning")
    return training


def _source(context: RunContext, settings: RewardSettings) -> str | Path:
    for role in ("sft", "base"):
        if context.has_input(role):
            folder = context.input_path(role)
            if is_ensemble(folder):
                raise RecipeError(
                    "model_unavailable",
                    Fault.CONFIGURATION,
                    f"input '{role}' is an ensemble of reward models; a run starts from a single "
                    "model",
                )
            return folder
    if settings.base_model is None:
        raise RecipeError(
            "missing_input",
            Fault.CONFIGURATION,
            "a reward run needs an input 'sft' or 'base', or a base_model",
        )
    return named_model(settings.base_model)


def _watched(data: PairData) -> str:
    """The split that is watched: of `data` itself where it has any, else of the hard pairs."""
    own = {s: pairs for s, pairs in data.splits.items() if not s.startswith(HARD)}
    return validation_split(own if any(own[s] for s in own if s != TRAIN) else data.splits)


def _summary(training: Training, partial: Result | None) -> dict[str, Any]:
    """Headline figures; after a cancellation only how far the run came."""
    progress, seed = training.progress, training.context.spec.seed
    ended = partial or progress.done[-1]
    step = progress.steps + (partial.steps if partial else 0)
    preflight = progress.preflight or {}
    summary: dict[str, Any] = {
        "step": step,
        "parameters": preflight.get("parameters"),
        "trained_parameters": preflight.get("trainable_parameters"),
        "train_rows": len(training.data.train),
        "max_length": training.tokenizer.model_max_length,
        "stopped_at": {
            "step": step,
            "model": ended.name,
            "reason": ended.reason,
            "weights_of_step": ended.kept_step,
        },
        "preflight": preflight,
    }
    if training.context.stopped == "cancel":
        return summary
    members = progress.members
    results: Sequence[Result] = members if len(members) > 1 else [ended]
    if results[0].kind == FOLD:  # stopped before there was a model of all rows
        return summary
    layout = None
    if len(members) > 1:
        layout = ensemble_layout(members, training.validation, training.settings)
    reports = split_reports(results, training.data, layout, training.settings, seed=seed)
    cross = cross_validation(
        progress.done, training.parts, training.data, training.settings, seed=seed
    )
    publish(training.context, reports, step=step, cross=cross)
    held_out = training.data.held_out[training.validation]
    show_pairs(training.context, held_out, results[0].scores[training.validation], step=step)
    plain = {split: report.plain() for split, report in reports.items()}
    summary |= {
        "splits": plain,
        "gap": gap_of(training.context, reports, training.validation, step=step),
        "members": {result.name: _member(training, result) for result in members},
    }
    if cross is not None:
        summary["cross_validation"] = cross
    if layout is not None:
        summary["ensemble"] = {
            "members": len(members),
            "planned": training.settings.members,
            "aggregate": layout.aggregate,
            "lambda": layout.lam,
            "threshold": layout.threshold,
        }
    return summary


def _member(training: Training, result: Result) -> dict[str, Any]:
    margins = result.scores[training.validation].margins
    return {
        "seed": result.seed,
        "rows": result.rows,
        "steps": result.steps,
        "reason": result.reason,
        "weights_of_step": result.kept_step,
        "loss": result.loss,
        "accuracy": float(pair_credit(margins).mean()),
    }

"""Kahneman–Tversky optimisation: the policy learns from single answers, each desirable or not.

Inputs: `data` (a snapshot of single answers, or of preferences, whose two answers are read one by
one) and `sft` (the checkpoint that the policy starts from and that is its reference). TRL's losses
on our batches (`workers.trainers.kto`); reference, samples and checkpoints are those of
`workers.recipes.dpo`.
"""

from typing import Any

from trl import KTOConfig

from workers.config.training import KTOSettings
from workers.context import RunContext
from workers.data.snapshot import TRAIN, evaluation_splits, read_judged_answers
from workers.layouts.shards import Shares
from workers.preflight.minimal import settings_of
from workers.recipes.dpo import (
    Rows,
    begin,
    look_before,
    tell_unread,
    train_and_sum_up,
    watchers,
)
from workers.trainers.kto import AnswerTrainer, balanced_weight, encode_answers
from workers.trainers.row_checks import leaked_share
from workers.trainers.trainer_bridge import check_batches, trainer_arguments, validation_split

CONFIG = KTOSettings


def run(context: RunContext) -> dict[str, Any]:
    """Train, report samples, return the headline figures."""
    settings: KTOSettings = settings_of(context, "kto")
    start = begin(context, settings)
    folder = context.input_path("data")
    splits = {s: read_judged_answers(folder, s) for s in (TRAIN, *evaluation_splits(folder))}
    tell_unread(context, [row.weight for row in splits[TRAIN]], "answer")
    watched = {TRAIN: splits[TRAIN], "held_out": splits[validation_split(splits)]}
    answers = {
        name: encode_answers(start.tokenizer, rows, start.max_length)
        for name, rows in watched.items()
    }
    trained = answers[TRAIN]
    check_batches(settings, len(trained))
    rows = Rows(
        trained=len(trained),
        dropped=len(splits[TRAIN]) - len(trained),
        cut=sum(row.text.truncated for row in trained),
    )
    looked = look_before(context, "kto", settings, start, rows, splits[TRAIN])
    if settings.preflight:
        return {"step": 0, "preflight": looked}
    weight = balanced_weight(trained, settings)
    config = KTOConfig(
        **trainer_arguments(context, settings),
        loss_type=settings.loss_type,
        beta=settings.beta,
        desirable_weight=weight,
        undesirable_weight=settings.undesirable_weight,
        max_length=start.max_length,
    )
    figures = (
        rows.figures
        | leaked_share(*([(r.prompt, r.response) for r in of] for of in watched.values()))
        | start.row_figures([(r.prompt, r.response) for r in splits[TRAIN]])
    )
    reporter, probe = watchers(
        context,
        settings,
        start,
        [(row.prompt, row.response) for row in watched["held_out"] if row.desirable],
        learned=[row.response for row in splits[TRAIN] if row.desirable],
        beta=settings.beta,
        figures=figures,
    )
    trainer = AnswerTrainer(
        model=start.policy,
        args=config,
        settings=settings,
        train_answers=trained,
        eval_answers=answers["held_out"],
        tokenizer=start.tokenizer,
        reference=start.reference,
        callbacks=[reporter, probe],
        shares=Shares.of(context.spec.layout),
    )
    return train_and_sum_up(context, trainer, start, rows, reporter, probe) | {
        "preflight": looked,
        "desirable_rows": sum(row.desirable for row in trained),
        "desirable_weight": weight,
    }

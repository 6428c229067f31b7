"""Reward training by both sides: the same model, ids, loss and pairs a step."""

from pathlib import Path
from typing import Any

import datasets
import torch
from transformers import TrainingArguments, set_seed
from trl import RewardConfig
from trl import RewardTrainer as TRLTrainer

from benchmarks.preference_world.pairs import MAX_LENGTH
from benchmarks.preference_world.timing import BATCH, OURS, TRL, Look, arguments, look_every, timed
from workers.config import settings_for
from workers.models.loading import load_scorer, load_tokenizer
from workers.rewards.model import score_rows
from workers.rl.losses import bradley_terry_loss
from workers.trainers.reward_data import EncodedPair
from workers.trainers.reward_trainer import RewardTrainer, StepCollator

LEARNING_RATE = 1e-3
Pairs = list[EncodedPair]


def _look(base: Path, held: Pairs, steps: int) -> Look:
    tokenizer = load_tokenizer(base)
    both = [p.chosen for p in held] + [p.rejected for p in held]

    def loss(model: Any) -> float:
        scores = torch.tensor(score_rows(model, tokenizer, both, batch_size=32))
        return float(bradley_terry_loss(*scores.chunk(2)))

    return Look(loss, look_every(steps))


def trl_run(base: Path, train: Pairs, held: Pairs, *, steps: int, seed: int) -> dict[str, Any]:
    """TRL's trainer on the ids that ours gets."""
    tokenizer = load_tokenizer(base)
    set_seed(seed)
    look = _look(base, held, steps)
    rows = [{"chosen_ids": p.chosen.ids, "rejected_ids": p.rejected.ids} for p in train]
    trainer = TRLTrainer(
        model=load_scorer(base, tokenizer),
        args=RewardConfig(
            **arguments(base.parent / "trl", steps, seed, LEARNING_RATE)
            | {"remove_unused_columns": True},
            bf16=False,
            activation_checkpointing=False,
            max_length=MAX_LENGTH,
        ),
        train_dataset=datasets.Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=[look],
    )
    assert len(trainer.train_dataset) == len(train), "TRL left pairs out"
    return timed(trainer, look, TRL, steps=steps, seed=seed)


def our_run(base: Path, train: Pairs, held: Pairs, *, steps: int, seed: int) -> dict[str, Any]:
    """The trainer of `reward` runs, hard labels and equal weights: the same loss."""
    tokenizer = load_tokenizer(base)
    set_seed(seed)
    look = _look(base, held, steps)
    settings = settings_for("reward", {"batch_size": BATCH, "max_tokens_per_batch": 16_384})
    trainer = RewardTrainer(
        model=load_scorer(base, tokenizer),
        args=TrainingArguments(**arguments(base.parent / "ours", steps, seed, LEARNING_RATE)),
        train_dataset=train,
        processing_class=tokenizer,
        data_collator=StepCollator(settings, tokenizer.pad_token_id),
        callbacks=[look],
        settings=settings,
    )
    return timed(trainer, look, OURS, steps=steps, seed=seed)

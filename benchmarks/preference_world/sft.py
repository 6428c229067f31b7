"""SFT on the chosen answers by both sides: the same model, ids, loss and rows a step."""

from pathlib import Path
from typing import Any

import datasets
import torch
from transformers import set_seed
from trl import SFTConfig
from trl import SFTTrainer as TRLTrainer

from benchmarks.preference_world.pairs import MAX_LENGTH
from benchmarks.preference_world.timing import BATCH, OURS, TRL, Look, arguments, look_every, timed
from workers.config import settings_for
from workers.models.loading import load_causal, load_tokenizer
from workers.rollouts.answer_tokens import answer_tokens, batch_of
from workers.trainers.reward_data import EncodedPair
from workers.trainers.sft import DemonstrationTrainer

LEARNING_RATE = 1e-3
Pairs = list[EncodedPair]


def trl_run(base: Path, train: Pairs, held: Pairs, *, steps: int, seed: int) -> dict[str, Any]:
    tokenizer = load_tokenizer(base)
    set_seed(seed)
    look = _look(tokenizer.pad_token_id, held, steps)
    rows = [
        {
            "input_ids": pair.chosen.ids,
            "completion_mask": [
                int(i >= pair.chosen.prompt_length) for i in range(len(pair.chosen.ids))
            ],
        }
        for pair in train
    ]
    trainer = TRLTrainer(
        model=load_causal(base),
        args=_config(base.parent / "trl", steps, seed),
        train_dataset=datasets.Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=[look],
    )
    return timed(trainer, look, TRL, steps=steps, seed=seed)


def our_run(base: Path, train: Pairs, held: Pairs, *, steps: int, seed: int) -> dict[str, Any]:
    """The trainer of `sft` runs."""
    tokenizer = load_tokenizer(base)
    set_seed(seed)
    look = _look(tokenizer.pad_token_id, held, steps)
    trainer = DemonstrationTrainer(
        model=load_causal(base),
        args=_config(base.parent / "ours", steps, seed),
        settings=settings_for("sft", {"batch_size": BATCH, "max_tokens_per_batch": 16_384}),
        train_rows=[pair.chosen for pair in train],
        eval_rows=[pair.chosen for pair in held],
        tokenizer=tokenizer,
        callbacks=[look],
    )
    return timed(trainer, look, OURS, steps=steps, seed=seed)


def _config(folder: Path, steps: int, seed: int) -> SFTConfig:
    return SFTConfig(
        **arguments(folder, steps, seed, LEARNING_RATE) | {"remove_unused_columns": True},
        bf16=False,
        activation_checkpointing=False,
        completion_only_loss=True,
        max_length=MAX_LENGTH,
    )


def _look(pad_id: int, held: Pairs, steps: int) -> Look:
    batch, _ = batch_of([pair.chosen for pair in held], pad_id)

    @torch.no_grad()
    def loss(model: Any) -> float:
        tokens = answer_tokens(model, batch)
        return float(-tokens.log_probs.sum() / tokens.label_mask.sum())

    return Look(loss, look_every(steps))

"""Reward training in pairs per CPU second, against TRL's RewardTrainer at the same work.

The same small model and tokenizer, seeds, step size, pairs a step and token ids; real pairs of
arguments of very different lengths (data/comparisons), held out by debate. The two alternate in one
process on one core, and CPU time (not wall time) is counted, so other work on the machine matters
little. TRL runs without activation checkpointing and half precision, which would only slow it here.
The held-out loss is measured at the same steps by the same code, outside of what is timed.

Run: python -m benchmarks.preference_training [steps] [rounds]
"""

import os

# One core for both sides: set before numpy and torch are imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import gzip
import json
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import workers.recipes  # noqa: F401  (quiet, offline libraries)

# isort: split
import datasets
import numpy as np
import torch
from transformers import PrinterCallback, TrainerCallback, TrainingArguments, set_seed
from trl import RewardConfig
from trl import RewardTrainer as TRLTrainer

from benchmarks.report import print_report, versions
from workers.data.base_model import BaseShape, build_model, train_tokenizer
from workers.data.encoding import PairEncoder
from workers.data.snapshot import Preference
from workers.models import load_scorer, load_tokenizer, save_model
from workers.recipes.reward_data import EncodedPair
from workers.recipes.reward_trainer import RewardTrainer, StepCollator
from workers.recipes.settings import settings_for
from workers.rewards.model import score_rows
from workers.rl.losses import bradley_terry_loss

DATA = Path(__file__).parents[1] / "data"
STEPS, ROUNDS, BATCH, LOOKS, HELD_OUT = 84, 2, 16, 6, 150  # 84 steps are one pass
MAX_LENGTH = 512  # longer than every pair: TRL would leave longer ones out
SHAPE = BaseShape(vocabulary=4096, width=96, layers=3, heads=4, context=MAX_LENGTH)
LEARNING_RATE = 1e-3


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else STEPS
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS
    warnings.simplefilter("ignore")
    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as name:
        base = Path(name) / "base"
        train, held_out = encoded_pairs(base)
        rows = []
        for seed in range(1, rounds + 1):
            for side in (trl_run, our_run) if seed % 2 else (our_run, trl_run):
                rows.append(side(base, train, held_out, steps=steps, seed=seed))
    report(rows, train, steps)


def encoded_pairs(base: Path) -> tuple[list[EncodedPair], list[EncodedPair]]:
    """Builds the model in `base`; (training pairs, pairs of debates held out)."""
    raw = [row for row in _lines("comparisons") if row["gold"] in ("a", "b")]
    tokenizer = train_tokenizer(
        (row["response"] for row in _lines("demonstrations")),
        vocabulary=SHAPE.vocabulary,
        context=SHAPE.context,
    )
    save_model(build_model(tokenizer, SHAPE, seed=0), tokenizer, base)
    encoder = PairEncoder(load_tokenizer(base), max_length=MAX_LENGTH)
    pairs = []
    for row in raw:
        prompt = [{"role": "user", "content": row["prompt"]}]
        won, lost = ("a", "b") if row["gold"] == "a" else ("b", "a")
        chosen, rejected = row[f"response_{won}"], row[f"response_{lost}"]
        preference = Preference(prompt, chosen, rejected, group=row["debate"])
        pairs.append(EncodedPair(preference, encoder(prompt, chosen), encoder(prompt, rejected)))
    pairs = [pair for pair in pairs if not pair.cut]
    unseen = sorted({pair.row.group for pair in pairs})[-1]
    held_out = [pair for pair in pairs if pair.row.group == unseen]
    return [pair for pair in pairs if pair.row.group != unseen], held_out[:HELD_OUT]


def _lines(name: str) -> list[dict[str, Any]]:
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


class Look(TrainerCallback):
    """Held-out loss at a few steps, and the CPU seconds that looking took."""

    def __init__(self, base: Path, pairs: list[EncodedPair], every: int) -> None:
        self.tokenizer = load_tokenizer(base)
        self.pairs, self.every = pairs, every
        self.cpu, self.curve, self.training = 0.0, {}, {}

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % self.every == 0:
            self.curve[state.global_step] = self.loss(kwargs["model"])

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if logs and "loss" in logs:
            self.training[state.global_step] = logs["loss"]

    def loss(self, model: Any) -> float:
        started = time.process_time()
        model.eval()
        both = [p.chosen for p in self.pairs] + [p.rejected for p in self.pairs]
        chosen, rejected = torch.tensor(
            score_rows(model, self.tokenizer, both, batch_size=32)
        ).chunk(2)
        model.train()
        self.cpu += time.process_time() - started
        return float(bradley_terry_loss(chosen, rejected))


def _arguments(folder: Path, steps: int, seed: int) -> dict[str, Any]:
    return {
        "output_dir": str(folder),
        "per_device_train_batch_size": BATCH,
        "learning_rate": LEARNING_RATE,
        "max_steps": steps,
        "seed": seed,
        "use_cpu": True,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "logging_steps": max(1, steps // LOOKS),
        "remove_unused_columns": False,
    }


def _timed(trainer: Any, look: Look, side: str, *, steps: int, seed: int) -> dict[str, Any]:
    trainer.remove_callback(PrinterCallback)
    started = time.process_time()
    trainer.train()
    cpu = time.process_time() - started - look.cpu
    pairs = steps * BATCH
    return {
        "side": side,
        "seed": seed,
        "CPU s": cpu,
        "pairs/CPU s": pairs / cpu,
        "curve": look.curve,
        "training": look.training,
    }


def trl_run(
    base: Path, train: list[EncodedPair], held: list[EncodedPair], *, steps: int, seed: int
):
    """TRL's trainer on the ids that ours gets."""
    tokenizer = load_tokenizer(base)
    set_seed(seed)
    model = load_scorer(base, tokenizer)
    look = Look(base, held, max(1, steps // LOOKS))
    rows = [{"chosen_ids": p.chosen.ids, "rejected_ids": p.rejected.ids} for p in train]
    trainer = TRLTrainer(
        model=model,
        args=RewardConfig(
            **_arguments(base.parent / "trl", steps, seed) | {"remove_unused_columns": True},
            bf16=False,
            gradient_checkpointing=False,
            max_length=MAX_LENGTH,
        ),
        train_dataset=datasets.Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=[look],
    )
    assert len(trainer.train_dataset) == len(train), "TRL left pairs out"
    return _timed(trainer, look, "TRL RewardTrainer", steps=steps, seed=seed)


def our_run(
    base: Path, train: list[EncodedPair], held: list[EncodedPair], *, steps: int, seed: int
):
    """The trainer of `reward` runs, hard labels and equal weights: the same loss."""
    tokenizer = load_tokenizer(base)
    set_seed(seed)
    model = load_scorer(base, tokenizer)
    look = Look(base, held, max(1, steps // LOOKS))
    settings = settings_for("reward", {"batch_size": BATCH, "max_tokens_per_batch": 16_384})
    trainer = RewardTrainer(
        model=model,
        args=TrainingArguments(**_arguments(base.parent / "ours", steps, seed)),
        train_dataset=train,
        processing_class=tokenizer,
        data_collator=StepCollator(settings, tokenizer.pad_token_id),
        callbacks=[look],
        settings=settings,
    )
    return _timed(trainer, look, "ours", steps=steps, seed=seed)


def report(rows: list[dict[str, Any]], train: list[EncodedPair], steps: int) -> None:
    """The table: speed of each run, then the mean held-out loss of both sides by step."""
    sides = {side: [r for r in rows if r["side"] == side] for side in {r["side"] for r in rows}}
    ours = sides["ours"]
    speed = {side: float(np.mean([r["pairs/CPU s"] for r in of])) for side, of in sides.items()}
    ratio = speed["ours"] / speed["TRL RewardTrainer"]
    looks = sorted(ours[0]["curve"])
    curves = {
        side: np.array([[r["curve"][s] for s in looks] for r in of]) for side, of in sides.items()
    }
    difference = curves["ours"].mean(axis=0) - curves["TRL RewardTrainer"].mean(axis=0)
    noise = max(float(np.ptp(curve, axis=0).mean()) for curve in curves.values())
    table = [
        {k: r[k] for k in ("side", "seed", "CPU s", "pairs/CPU s")}
        | {"last held-out loss": r["curve"][looks[-1]]}
        for r in rows
    ]
    table += [
        {
            "side": f"held-out loss, step {step}: ours − TRL",
            "last held-out loss": float(gap),
        }
        for step, gap in zip(looks, difference, strict=True)
    ]
    lengths = np.array([n for pair in train for n in pair.lengths])
    print_report(
        f"Reward training, {steps} steps of {BATCH} pairs",
        table,
        {
            "pairs_per_cpu_s": round(speed["ours"], 2),
            "alternative": "TRL RewardTrainer",
            "alternative_pairs_per_cpu_s": round(speed["TRL RewardTrainer"], 2),
            "ratio": round(ratio, 2),
            "held_out_loss_difference_mean": round(float(difference.mean()), 4),
            "held_out_loss_difference_largest": round(float(np.abs(difference).max()), 4),
            "held_out_loss_range_between_seeds": round(noise, 4),
            "rounds": len(ours),
            "train_pairs": len(train),
            "tokens_median": float(np.median(lengths)),
            "tokens_95": float(np.quantile(lengths, 0.95)),
            "versions": versions("torch", "transformers", "trl"),
        },
    )


if __name__ == "__main__":
    main()

"""Reward training, DPO and SFT in rows per CPU second, against TRL's trainers at the same work.

The same small model and tokenizer, seeds, step size, pairs a step and token ids; real pairs of
arguments of very different lengths (data/comparisons), held out by debate, and then the same pairs
cut to one length, where sorting gains nothing. SFT imitates the chosen answers. The two sides
alternate in one process on one core, and CPU time (not wall time) is counted, so other work on the
machine matters little. TRL runs without activation checkpointing and half precision, which would
only slow it here. The held-out loss is measured at the same steps by the same code, outside of what
is timed.

Run: python -m benchmarks.preference_training [steps] [rounds] [reward|dpo|sft]
"""

import os

# One core for both sides: set before numpy and torch are imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import workers.recipes  # noqa: F401  (quiet, offline libraries)

# isort: split
import datasets
import numpy as np

from benchmarks.preference_world import dpo, reward, sft
from benchmarks.preference_world.pairs import ALIKE, alike, build_base, encoded_pairs
from benchmarks.preference_world.timing import BATCH, OURS, TRL
from benchmarks.report import print_report, versions
from workers.trainers.reward_data import EncodedPair

STEPS, ROUNDS = 84, 2  # 84 steps are one pass
TRAININGS = {"reward": reward, "dpo": dpo, "sft": sft}
Pairs = list[EncodedPair]


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else STEPS
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS
    chosen = sys.argv[3:] or list(TRAININGS)
    warnings.simplefilter("ignore")
    datasets.disable_progress_bars()
    table, summary = [], {}
    with tempfile.TemporaryDirectory() as name:
        base = Path(name) / "base"
        build_base(base)
        train, held_out = encoded_pairs(base)
        for kind in chosen:
            for case, pairs in (("varied", train), ("alike", alike(train))):
                few = steps if case == "varied" else max(1, steps // 3)
                rows = alternate(TRAININGS[kind], base, pairs, held_out, few, rounds)
                table += [{"training": kind, "lengths": case} | line for line in lines(rows)]
                summary[f"{kind}_{case}"] = figures(rows, pairs)
    print_report(
        f"Training on pairs, {steps} steps of {BATCH} (a third of them at {ALIKE} tokens each)",
        table,
        summary
        | {
            "alternatives": "TRL RewardTrainer, DPOTrainer, SFTTrainer",
            "rounds": rounds,
            "versions": versions("torch", "transformers", "trl"),
        },
    )


def alternate(
    training: Any, base: Path, train: Pairs, held: Pairs, steps: int, rounds: int
) -> list[dict[str, Any]]:
    """Runs of both sides with each seed, the first of them in turn."""
    found = []
    for seed in range(1, rounds + 1):
        sides = (training.trl_run, training.our_run)
        for run in sides if seed % 2 else sides[::-1]:
            found.append(run(base, train, held, steps=steps, seed=seed))
    return found


def _by_side(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    return {side: [row for row in rows if row["side"] == side] for side in (OURS, TRL)}


def _curves(rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Held-out losses [rounds, looks] by side."""
    return {
        side: np.array([list(row["curve"].values()) for row in of])
        for side, of in _by_side(rows).items()
    }


def lines(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Speed of each run, and at each look the two sides' difference."""
    shown = [
        {key: row[key] for key in ("side", "seed", "CPU s", "pairs/CPU s")}
        | {"last held-out loss": list(row["curve"].values())[-1]}
        for row in rows
    ]
    curves = _curves(rows)
    gaps = curves[OURS].mean(axis=0) - curves[TRL].mean(axis=0)
    return shown + [
        {"side": f"held-out loss, step {step}: ours − TRL", "last held-out loss": float(gap)}
        for step, gap in zip(rows[0]["curve"], gaps, strict=True)
    ]


def figures(rows: list[dict[str, Any]], train: Pairs) -> dict[str, Any]:
    """One training's figures of the summary."""
    speed = {
        side: float(np.mean([row["pairs/CPU s"] for row in of]))
        for side, of in _by_side(rows).items()
    }
    curves = _curves(rows)
    difference = curves[OURS].mean(axis=0) - curves[TRL].mean(axis=0)
    noise = max(float(np.ptp(curve, axis=0).mean()) for curve in curves.values())
    lengths = np.array([n for pair in train for n in pair.lengths])
    return {
        "pairs_per_cpu_s": round(speed[OURS], 2),
        "alternative_pairs_per_cpu_s": round(speed[TRL], 2),
        "ratio": round(speed[OURS] / speed[TRL], 2),
        "held_out_loss_first_and_last": [
            round(float(curves[OURS][:, i].mean()), 4) for i in (0, -1)
        ],
        "held_out_loss_difference_mean": round(float(difference.mean()), 4),
        "held_out_loss_difference_largest": round(float(np.abs(difference).max()), 4),
        "held_out_loss_range_between_seeds": round(noise, 4),
        "train_pairs": len(train),
        "tokens_median": float(np.median(lengths)),
        "tokens_95": float(np.quantile(lengths, 0.95)),
    }


if __name__ == "__main__":
    main()

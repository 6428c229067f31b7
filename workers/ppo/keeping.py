"""What a PPO run keeps: checkpoints, the newest answers, the best evaluation."""

import json
import shutil
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from workers.audit import write_lines
from workers.context import RunContext
from workers.ppo.setup import Models
from workers.ppo.state import TrainingState, save

ROLLOUTS_FILE = "rollouts.jsonl"


class Kept:
    """The newest answers of a run, with their scores, versions and seeds: `most` of them."""

    def __init__(self, most: int) -> None:
        self._records: deque[dict[str, Any]] = deque(maxlen=most)

    def add(self, records: Sequence[Mapping[str, Any]]) -> None:
        self._records.extend(dict(record) for record in records)

    def __len__(self) -> int:
        return len(self._records)

    def write(self, folder: Path) -> None:
        if self._records:
            write_lines(folder / ROLLOUTS_FILE, list(self._records))

    def load(self, folder: Path) -> None:
        """Those of a checkpoint; a resumed run goes on behind them."""
        path = folder / ROLLOUTS_FILE
        if path.is_file():
            with path.open(encoding="utf-8") as lines:
                self._records.extend(json.loads(line) for line in lines)

    def publish(self, context: RunContext) -> None:
        """As the artifact rollouts.jsonl."""
        if self._records:
            self.write(context.workdir)
            context.save_artifact(
                context.workdir / ROLLOUTS_FILE, media_type="application/x-ndjson"
            )


def save_checkpoint(
    context: RunContext,
    models: Models,
    optimizer: torch.optim.Optimizer,
    state: TrainingState,
    kept: Kept,
    tags: list[str],
    metrics: Mapping[str, float],
) -> None:
    """Everything to go on from, stored under the state's step; the local copy is removed."""
    folder = context.workdir / f"checkpoint-{state.step}"
    save(folder, models.actor_critic, models.tokenizer, optimizer, state)
    kept.write(folder)
    context.save_checkpoint(folder, step=state.step, tags=tags, metrics=metrics)
    shutil.rmtree(folder)


def note_evaluation(state: TrainingState, headline: float) -> bool:
    """Whether this evaluation is the best so far; counts those since that were not."""
    is_best = state.best is None or headline > state.best
    if is_best:
        state.best, state.best_step, state.not_better = headline, state.step, 0
    else:
        state.not_better += 1
    return is_best

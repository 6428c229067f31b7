"""What a PPO run keeps: checkpoints, the newest answers, the best evaluation."""

import json
import shutil
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from workers import ranks
from workers.audit import write_lines
from workers.context import RunContext
from workers.ppo.setup import Models
from workers.ppo.state import TrainingState, save
from workers.ppo.zero import Zero

ROLLOUTS_FILE = "rollouts.jsonl"
PAUSE_S = 20.0  # between two publications of a run that goes on
# How long one that is no longer the newest stays: a check may wait for its worker that long.
KEPT_S = 900.0


class Kept:
    """The newest answers of a run, with their scores, versions and seeds: `most` of them."""

    def __init__(self, most: int) -> None:
        self._records: deque[dict[str, Any]] = deque(maxlen=most)
        self._added = 0
        self._told_of = 0  # answers added when they were last published
        self._published: list[tuple[float, str]] = []  # when, where

    def add(self, records: Sequence[Mapping[str, Any]]) -> None:
        self._records.extend(dict(record) for record in records)
        self._added += len(records)

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

    def publish(self, context: RunContext, *, pause_s: float = 0.0) -> None:
        """As the artifact rollouts.jsonl, whose newest one counts; nothing where no answer was
        added since, or where the last was published less than `pause_s` ago. Each has a place of
        its own, so that what was named by its hash stays."""
        now = context.clock()
        if not ranks.is_first():
            return
        if not self._records or self._told_of == self._added:
            return
        if self._published and now - self._published[-1][0] < pause_s:
            return
        self.write(context.workdir)
        uri = context.save_artifact(
            context.workdir / ROLLOUTS_FILE,
            place=f"rollouts-{self._added}",
            media_type="application/x-ndjson",
        )
        self._told_of = self._added
        self._published.append((now, uri))
        while now - self._published[0][0] > KEPT_S:
            context.forget_artifact(self._published.pop(0)[1])


def save_checkpoint(
    context: RunContext,
    models: Models,
    optimizer: torch.optim.Optimizer | Zero,
    state: TrainingState,
    kept: Kept,
    tags: list[str],
    metrics: Mapping[str, float],
) -> None:
    """Everything to go on from, stored under the state's step; the local copy is removed. The
    newest answers are published beside it: people can look into a run that still goes on. Every
    rank must call; the first one writes."""
    folder = context.workdir / f"checkpoint-{state.step}"
    save(folder, models.actor_critic, models.tokenizer, optimizer, state, afresh=models.afresh)
    if not ranks.is_first():
        return
    kept.write(folder)
    context.save_checkpoint(folder, step=state.step, tags=tags, metrics=metrics)
    shutil.rmtree(folder)
    kept.publish(context, pause_s=PAUSE_S)


def note_evaluation(state: TrainingState, headline: float) -> bool:
    """Whether this evaluation is the best so far; counts those since that were not."""
    is_best = state.best is None or headline > state.best
    if is_best:
        state.best, state.best_step, state.not_better = headline, state.step, 0
    else:
        state.not_better += 1
    return is_best

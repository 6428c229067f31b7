"""Jobs one after another on the ranks of one start: importing costs more than tiny trainings.

`python -m torch.distributed.run … -m tests.workers.recipes.several FOLDER …`, a job.json in each.
"""

import contextlib
import dataclasses
import json
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from accelerate.state import AcceleratorState, GradientState, PartialState
from torch import distributed
from torch.distributed.tensor import DTensor
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

from workers import ranks
from workers.contract.jobs import ZERO3, Resume, spec_from_json
from workers.emitter import EVENTS_FILE, Emitter
from workers.layouts import arguments
from workers.train import StopSignal, train
from workers.trainers.guarded_trainer import GuardedTrainer

# Beside a job.json: the folder of the job whose first checkpoint it continues from, and a step that
# gives no loss on the last rank; and what was found: how the trained weights lay on the first rank.
RESUMES, BROKEN, LAY = "resumes", "broken", "lay"


def main() -> None:
    for folder in map(Path, sys.argv[1:]):
        with splitting_small_weights(folder.parent):
            run(folder)
        for state in (AcceleratorState, GradientState, PartialState):
            state._reset_state()
        unset_hf_deepspeed_config()
        for name in ("ACCELERATE_USE_DEEPSPEED", "ACCELERATE_USE_FSDP"):  # accelerate's own notes
            os.environ.pop(name, None)


def run(folder: Path) -> None:
    if distributed.is_initialized():
        distributed.barrier()
    spec = spec_from_json(json.loads((folder / "job.json").read_text()))
    if (folder / RESUMES).exists():
        lines = (Path((folder / RESUMES).read_text()) / EVENTS_FILE).read_text().splitlines()
        saved = next(e["event"] for e in map(json.loads, lines) if e["type"] == "CheckpointSaved")
        resume = Resume(saved["uri"], saved["sha256"], saved["step"])
        spec = dataclasses.replace(spec, resume=resume)
    writer = None
    if ranks.is_first():
        writer = Emitter(folder / EVENTS_FILE, run=spec.run, attempt=spec.attempt)
    broken = folder / BROKEN
    planted: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if broken.exists() and ranks.rank() == ranks.world() - 1:
        planted = broken_at(spec.kind, int(broken.read_text()))
    with planted, noting_how_weights_lie(folder / LAY):
        train(spec, folder, writer, StopSignal(folder))


@contextlib.contextmanager
def noting_how_weights_lie(note: Path) -> Iterator[None]:
    own = GuardedTrainer.begin_training

    def lies(weight: torch.Tensor) -> str:
        if isinstance(weight, DTensor):
            return "parted"
        return "away" if weight.numel() == 0 else "whole"

    def begin(self: Any) -> None:
        own(self)
        if ranks.is_first():
            found = {lies(weight) for weight in self.model.parameters() if weight.requires_grad}
            note.write_text(json.dumps(sorted(found)))

    with mock.patch.object(GuardedTrainer, "begin_training", begin):
        yield


@contextlib.contextmanager
def splitting_small_weights(folder: Path) -> Iterator[None]:
    """Inside, DeepSpeed splits weights of any size; all of ours are among those it would keep."""
    said = json.loads(arguments.deepspeed_config(ZERO3).read_text())
    said["zero_optimization"]["stage3_param_persistence_threshold"] = 0
    path = folder / f"zero3_of_{ranks.rank()}.json"
    path.write_text(json.dumps(said))
    given = arguments.deepspeed_config

    def config(layout: str) -> Path:
        return path if layout == ZERO3 else given(layout)

    with mock.patch.object(arguments, "deepspeed_config", config):
        yield


@contextlib.contextmanager
def broken_at(kind: str, step: int) -> Iterator[None]:
    """Inside, the loss of that step is no number."""
    from tests.workers.recipes.test_guarded_trainings import TRAINERS

    own = TRAINERS[kind].compute_loss

    def compute_loss(self: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        loss = own(self, model, *args, **kwargs)
        due = model.training and self.state.global_step + 1 == step
        return loss * math.nan if due else loss

    with mock.patch.object(TRAINERS[kind], "compute_loss", compute_loss):
        yield


if __name__ == "__main__":
    main()

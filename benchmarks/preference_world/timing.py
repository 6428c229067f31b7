"""Both sides' settings and clock: CPU seconds of training, less those of looking."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import PrinterCallback, TrainerCallback

BATCH, LOOKS = 16, 6
TRL = "TRL"
OURS = "ours"


class Look(TrainerCallback):
    """Held-out loss at a few steps, and the CPU seconds that looking took."""

    def __init__(self, loss: Callable[[Any], float], every: int) -> None:
        self.loss, self.every = loss, every
        self.cpu, self.curve = 0.0, {}

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % self.every == 0:
            started = time.process_time()
            kwargs["model"].eval()
            self.curve[state.global_step] = self.loss(kwargs["model"])
            kwargs["model"].train()
            self.cpu += time.process_time() - started


def look_every(steps: int) -> int:
    return max(1, steps // LOOKS)


def arguments(folder: Path, steps: int, seed: int, learning_rate: float) -> dict[str, Any]:
    return {
        "output_dir": str(folder),
        "per_device_train_batch_size": BATCH,
        "learning_rate": learning_rate,
        "max_steps": steps,
        "seed": seed,
        "use_cpu": True,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "logging_steps": look_every(steps),
        "remove_unused_columns": False,
    }


def timed(trainer: Any, look: Look, side: str, *, steps: int, seed: int) -> dict[str, Any]:
    """Trains, and says what it took."""
    trainer.remove_callback(PrinterCallback)
    started = time.process_time()
    trainer.train()
    cpu = time.process_time() - started - look.cpu
    return {
        "side": side,
        "seed": seed,
        "CPU s": cpu,
        "pairs/CPU s": steps * BATCH / cpu,
        "curve": look.curve,
    }

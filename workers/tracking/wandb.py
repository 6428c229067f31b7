"""Weights & Biases, by its own variables (`WANDB_API_KEY`, `WANDB_MODE`, `WANDB_BASE_URL` …).

Without a key it writes offline runs below `TRACKING_DIR`, for `wandb sync`. Every attempt is a run
of its own; the attempts of a run are one group.
"""

import os
from collections.abc import Mapping
from typing import Any

import wandb

from workers.contract.events import Histogram
from workers.contract.jobs import JobSpec
from workers.tracking.tool import described, folder_of

WAIT_S = 10.0  # for the server at the beginning
STEP = "step"  # metrics of one step come in several parts and not in order


class WeightsAndBiases:
    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec

    def begin(self) -> None:
        spec = self.spec
        folder = os.environ.get("WANDB_DIR") or folder_of("wandb")
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - either may be a plain text
        has_key = bool(os.environ.get("WANDB_API_KEY"))
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or spec.project,
            name=f"{spec.run} #{spec.attempt}",
            id=f"{spec.run}-{spec.attempt}",
            group=spec.run,
            job_type=spec.kind,
            dir=str(folder),
            config=described(spec),
            mode=os.environ.get("WANDB_MODE") or ("online" if has_key else "offline"),
            settings=wandb.Settings(silent=True, console="off", init_timeout=WAIT_S),
        )
        self.run.define_metric(STEP)
        self.run.define_metric("*", step_metric=STEP)

    def metrics(self, step: int, at: float, values: Mapping[str, float]) -> None:
        self.run.log({**values, STEP: step})

    def histogram(self, event: Histogram) -> None:
        drawn = wandb.Histogram(np_histogram=(event.counts, event.edges))
        self.run.log({f"histogram/{event.name}": drawn, STEP: event.step})

    def end(self, outcome: str, summary: Mapping[str, Any]) -> None:
        self.run.summary.update({"outcome": outcome, **summary})
        self.run.finish(exit_code=0 if outcome == "finished" else 1)


def make(spec: JobSpec) -> WeightsAndBiases:
    return WeightsAndBiases(spec)

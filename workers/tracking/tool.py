"""What a tracking tool must be able to do, and the names of those there are."""

import importlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from workers.contract.events import Histogram
from workers.contract.jobs import JobSpec

TOOLS = {
    "tensorboard": "workers.tracking.tensorboard",
    "mlflow": "workers.tracking.mlflow",
    "wandb": "workers.tracking.wandb",
}
OUTCOMES = {"Finished": "finished", "Failed": "failed", "Cancelled": "cancelled"}


class Tool(Protocol):
    """One run in one tool. Made on the main thread, where its package is imported; everything else
    is called from one other thread, in this order, and may take its time or raise."""

    def begin(self) -> None: ...

    def metrics(self, step: int, at: float, values: Mapping[str, float]) -> None: ...

    def histogram(self, event: Histogram) -> None: ...

    def end(self, outcome: str, summary: Mapping[str, Any]) -> None: ...


def make_tool(name: str, spec: JobSpec) -> Tool:
    """Raises `ImportError` where its package is not installed."""
    tool: Tool = importlib.import_module(TOOLS[name]).make(spec)
    return tool


def folder_of(tool: str) -> Path:
    """Where a tool that writes files does so: `TRACKING_DIR`, or `tracking` in `VAR_DIR`."""
    root = os.environ.get("TRACKING_DIR") or Path(os.environ.get("VAR_DIR") or "var") / "tracking"
    return Path(root).resolve() / tool


def described(spec: JobSpec) -> dict[str, Any]:
    """The configuration as one flat object: the recipe's own fields, and what the run is."""
    inputs = {f"input.{ref.role}": f"{ref.kind} {ref.id} {ref.sha256[:12]}" for ref in spec.inputs}
    return {
        **spec.config,
        **inputs,
        "kind": spec.kind,
        "project": spec.project,
        "run": spec.run,
        "attempt": spec.attempt,
        "seed": spec.seed,
        "code_version": spec.code_version,
    }


def worded(value: Any) -> str:
    """A setting or figure as text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def number_of(value: float | str | None) -> float | None:
    """A figure of an event, whose NaN and infinities are words; None where it is undefined."""
    return None if value is None else float(value)


def finite(values: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if math.isfinite(value)}

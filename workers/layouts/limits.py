"""What does not go with a layout, said before anything is trained."""

from typing import Any

from workers.contract.events import (
    Fault,
    RecipeError,
)
from workers.contract.jobs import JobSpec
from workers.contract.layouts import ZERO3


def check_layout(spec: JobSpec, settings: Any) -> None:
    """Raises `RecipeError` (bad_config) naming the fields that do not go together."""
    problem = _problem(spec, settings)
    if problem is not None:
        raise RecipeError("bad_config", Fault.CONFIGURATION, problem)


def cannot_recompute(spec: JobSpec, settings: Any) -> bool:
    """Whether activations must be kept. TRL 1.16 forces another kind of checkpointing on adapters
    under ZeRO 3: huggingface/trl issue 2514."""
    by_trl = spec.kind != "ppo"
    return by_trl and spec.layout == ZERO3 and bool(getattr(settings, "lora_rank", 0))


def _problem(spec: JobSpec, settings: Any) -> str | None:
    recomputes = getattr(settings, "gradient_checkpointing", False) in (True, "on")
    if recomputes and cannot_recompute(spec, settings):
        return (
            "gradient_checkpointing: adapters (lora_rank) under the layout 'zero3' cannot be "
            "recomputed; use the layout 'fsdp', or switch one of the two off"
        )
    return None

"""What does not go with a layout, said before anything is trained."""

from typing import Any

from workers.context import RecipeError
from workers.contract.events import Fault
from workers.contract.jobs import JobSpec
from workers.contract.layouts import DATA, ONE, ZERO3


def check_layout(spec: JobSpec, settings: Any) -> None:
    """Raises `RecipeError` (bad_config) naming the fields that do not go together."""
    problem = _problem(spec, settings)
    if problem is not None:
        raise RecipeError("bad_config", Fault.CONFIGURATION, problem)


def _problem(spec: JobSpec, settings: Any) -> str | None:
    if spec.kind == "grpo" and spec.layout not in (ONE, DATA):
        return (
            "layout: 'grpo' runs draw from the whole policy at every step and cannot be split by "
            f"'{spec.layout}'; use the layout 'data', with lora_rank where memory is short"
        )
    recomputes = getattr(settings, "gradient_checkpointing", False)
    if spec.layout == ZERO3 and getattr(settings, "lora_rank", 0) and recomputes is True:
        # TRL 1.16 forces another kind of checkpointing here: huggingface/trl issue 2514.
        return (
            "gradient_checkpointing: adapters (lora_rank) under the layout 'zero3' cannot be "
            "recomputed; use the layout 'fsdp', or switch one of the two off"
        )
    return None

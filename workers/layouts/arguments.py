"""What a layout is in the words of the library's trainer.

The recipes pass these themselves, so that `torchrun` alone starts any layout, and what `accelerate
launch` is told beside them (the shipped configurations of this folder) is the same.
"""

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workers.contract.events import Fault, RecipeError
from workers.contract.jobs import FSDP, ONE, WHOLE_WEIGHTS, ZERO2, ZERO3, JobSpec

if TYPE_CHECKING:
    from workers.config.precision import PrecisionSettings

# The shipped configurations: `<layout>.yaml` is what `accelerate launch --config_file` reads,
# `<layout>.json` is DeepSpeed's own configuration, which the YAML names. So a run that `torchrun`
# starts and one that `accelerate launch` starts are the same run.

FOLDER = Path(__file__).resolve().parent


def accelerate_config(layout: str) -> Path:
    """The file for `accelerate launch --config_file`; relative names in it are relative to the
    folder that holds `workers/`, in which trainers are started."""
    return FOLDER / f"{layout}.yaml"


def deepspeed_config(layout: str) -> Path:
    """DeepSpeed's configuration of the layouts zero2 and zero3."""
    return FOLDER / f"{layout}.json"


def layout_arguments(spec: JobSpec) -> dict[str, Any]:
    """Keyword arguments of `TrainingArguments` for the layout of `spec`; none for one process."""
    if spec.layout == ONE:
        return {}
    if spec.layout == FSDP:
        return {"fsdp": True, "fsdp_config": {"version": 2, "state_dict_type": "FULL_STATE_DICT"}}
    if spec.layout in (ZERO2, ZERO3):
        without_compiling()
        return {"deepspeed": json.loads(deepspeed_config(spec.layout).read_text())}
    # Buffers are constants here, and ranks may call the model unequally often.
    return {"ddp_broadcast_buffers": False, "ddp_find_unused_parameters": False}


def weights_in_float32(arguments: dict[str, Any]) -> dict[str, Any]:
    """`arguments` (of `TrainingArguments`) with which DeepSpeed leaves the weights as they are, and
    computes passes in bfloat16 where they said so. Its own half precision would round them, and a
    policy would no longer be the reference that it begins as."""
    if "deepspeed" not in arguments:
        return arguments
    passes = {
        "enabled": bool(arguments.get("bf16")),
        "dtype": "bfloat16",
        "lower_precision_safe_modules": [],  # gradients travel as they are
    }
    told = arguments["deepspeed"] | {"bf16": {"enabled": False}, "torch_autocast": passes}
    return arguments | {"bf16": False, "deepspeed": told}


def splitting(wanted: bool) -> None:
    """Before accelerate is made: with `wanted` it splits weights by fully_shard on processors too.
    It does so for accelerators alone: ranks that meet over gloo would train with whole copies and
    say nothing."""
    from accelerate.state import PartialState
    from accelerate.utils import DistributedType

    state = PartialState()
    if wanted and state.distributed_type == DistributedType.MULTI_CPU:
        state.distributed_type = DistributedType.MULTI_GPU


def without_compiling() -> None:
    """Where processes talk by gloo, DeepSpeed would compile a faster way with the machine's C++
    compiler when it starts: most of a minute, on machines that are for trials only."""
    import deepspeed.ops

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


# What does not go with a layout, or with this machine, said before anything is trained.


def check_layout(spec: JobSpec, settings: Any) -> None:
    """Raises `RecipeError` (bad_config) naming the fields that do not go together, or that need
    what this machine lacks."""
    problem = _problem(spec, settings)
    if problem is None and hasattr(settings, "frozen_weights"):
        problem = _precision_problem(spec, settings)
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


def _precision_problem(spec: JobSpec, settings: "PrecisionSettings") -> str | None:
    splits = spec.layout not in WHOLE_WEIGHTS
    apart = f"the layout '{spec.layout}' splits weights; use the layout 'one' or 'data'"
    if splits and settings.frozen_weights == "bfloat16":
        return f"frozen_weights: all must be of one format, for {apart}"
    for name in ("base_4bit", "optimizer"):
        if getattr(settings, name) in (False, "adamw"):
            continue
        if splits:
            return f"{name}: {apart}"
        if not _installed("bitsandbytes"):
            return f"{name}: needs bitsandbytes on the worker; install the extra `quant` there"
    if settings.liger and not _installed("liger_kernel"):
        return "liger: needs the package 'liger-kernel' on the worker, and a GPU"
    if settings.attention == "flash_attention_2" and not _installed("flash_attn"):
        return "attention: flash_attention_2 needs the package 'flash-attn' on the worker"
    return None


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None

"""The training state beside a model folder: safetensors and JSON, nothing pickled.

model folder (config.json, model.safetensors, tokenizer …)   any program can load it
training_state.safetensors                                   optimizer moments
training_state.json                                          counters, controller, scales
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from workers import ranks
from workers.contract.events import (
    Fault,
    RecipeError,
)
from workers.models.loading import laid_like, whole

TENSORS = "training_state.safetensors"
SCALARS = "training_state.json"


def save_training_state(
    folder: Path,
    moments: Iterable[tuple[torch.nn.Parameter, Mapping[str, Any]]],
    names: Mapping[torch.nn.Parameter, str],
    scalars: Mapping[str, Any],
) -> None:
    """Write `moments`, of an optimizer by parameter, under their names, and `scalars` as JSON.

    The first rank of a job writes; every rank must call, for moments may be split over them. What
    is written is whole, so that any number of ranks can go on from it.
    """
    tensors = {}
    for parameter, state in moments:
        for key, value in state.items():
            of_all = whole(torch.as_tensor(value))
            if ranks.is_first():
                name = f"{names[parameter]}.{key}"
                tensors[name] = of_all.detach().cpu().contiguous().clone()
    if not ranks.is_first():
        return
    save_file(tensors, folder / TENSORS)
    (folder / SCALARS).write_text(json.dumps(dict(scalars), indent=1))


def load_training_state(
    folder: Path,
    optimizer: torch.optim.Optimizer,
    names: Mapping[torch.nn.Parameter, str],
) -> dict[str, Any]:
    """Put the optimizer back as it was and return the scalars.

    Raises `RecipeError` (damaged_checkpoint) when the files are missing or of another model.
    """
    try:
        tensors = load_file(folder / TENSORS)
        scalars = json.loads((folder / SCALARS).read_text())
    except OSError as error:
        raise RecipeError(
            "damaged_checkpoint", Fault.DATA, f"the checkpoint holds no training state: {error}"
        ) from error
    by_name = {name: parameter for parameter, name in names.items()}
    for full_name, value in tensors.items():
        name, key = full_name.rsplit(".", 1)
        parameter = by_name.get(name)
        if parameter is None or (value.dim() and value.shape != parameter.shape):
            raise RecipeError(
                "damaged_checkpoint",
                Fault.DATA,
                f"the training state of '{name}' does not fit this model",
            )
        # The step counter stays on the CPU, as the optimizer keeps it.
        optimizer.state[parameter][key] = laid_like(parameter, value) if value.dim() else value
    return scalars

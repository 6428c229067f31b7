"""Low-rank adapters on a model: train few weights, save a folder that any program can load.

A checkpoint holds the merged weights as a normal model folder, so nobody who reads it needs the
base model or knows that adapters were trained; beside them `adapter/` keeps the adapters as they
are, to resume from, because merging rounds.

Source: Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models"; peft.
"""

import contextlib
import copy
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import torch
from peft import (
    LoraConfig,
    PeftModel,
    TaskType,
    get_peft_model,
    get_peft_model_state_dict,
    set_peft_model_state_dict,
)
from peft.utils import load_peft_weights
from torch import nn
from transformers import PreTrainedModel

from workers.artifacts import ADAPTER, CARD
from workers.layouts.gathered import whole_of
from workers.models.loading import is_quantised, state_sha256


@contextlib.contextmanager
def _known_warnings() -> Iterator[None]:
    """Without what peft says of things that are as they should be: linear layers that GPT-2 stores
    transposed, a base model without a hub page, and its use of an older name of the library's."""
    with warnings.catch_warnings():
        for text in (".*fan_in_fan_out.*", ".*config file.*", ".*is_gradient_checkpointing.*"):
            warnings.filterwarnings("ignore", message=text)
        yield


def attach_lora(
    model: PreTrainedModel, *, rank: int, alpha: float, dropout: float = 0.0
) -> PeftModel:
    """Adapters on every linear layer of the body; whatever is outside of it (the score head, and
    the pooler of encoders that have one) is new, and trains whole."""
    heads = [
        name
        for name, child in model.named_children()
        if name != model.base_model_prefix and any(True for _ in child.parameters())
    ]
    poolers = {name.rpartition(".")[2] for name, _ in model.named_modules()} & {"pooler"}
    config = LoraConfig(
        task_type=TaskType.SEQ_CLS,
        r=rank,
        lora_alpha=cast("int", alpha),  # peft multiplies by any number
        lora_dropout=dropout,
        target_modules="all-linear",
        modules_to_save=[*heads, *poolers],
    )
    with _known_warnings():
        return get_peft_model(model, config)


def attach_policy_lora(
    model: PreTrainedModel, *, rank: int, alpha: float, dropout: float = 0.0
) -> PeftModel:
    """Adapters on every linear layer of a causal model's body. They begin at zero, so the model is
    its own reference until the first step; switched off, they leave the reference."""
    config = LoraConfig(
        task_type=TaskType.CAUSAL_LM,
        r=rank,
        lora_alpha=cast("int", alpha),  # peft multiplies by any number
        lora_dropout=dropout,
        target_modules="all-linear",
    )
    with _known_warnings():
        return get_peft_model(model, config)


def body_of(model: nn.Module) -> PreTrainedModel:
    """The model below adapters, or itself. Adapters sit in its layers, so it answers with them."""
    body = model.get_base_model() if isinstance(model, PeftModel) else model
    return cast("PreTrainedModel", body)


def base_sha256(model: PeftModel) -> str:
    """Identity of the weights below the adapters, by content: names, shapes and bytes."""
    state = model.get_base_model().state_dict(keep_vars=True)
    return state_sha256({name: whole_of(own) for name, own in state.items() if "lora_" not in name})


def merged(model: PeftModel) -> PreTrainedModel:
    """A copy in float32 with the adapters added into the weights; the model itself is left as it
    is. Of layers in 4 bits the copy has what they stand for."""
    with _known_warnings():
        alone = copy.deepcopy(model)
        if is_quantised(body_of(alone)):
            # The library adds adapters to 4-bit layers and rounds the sum to 4 bits again.
            adapters = get_peft_model_state_dict(alone)
            wide = cast("PreTrainedModel", alone.unload()).dequantize()
            alone = cast("PeftModel", get_peft_model(wide, model.peft_config["default"]))
            set_peft_model_state_dict(alone, adapters)
        return cast("PreTrainedModel", alone.float().merge_and_unload())


def save_adapter(model: PeftModel, folder: Path) -> None:
    """As peft does, without the folder of this machine that the base was read from."""
    with _known_warnings():
        model.save_pretrained(str(folder / ADAPTER), save_embedding_layers=False)
    (folder / ADAPTER / CARD).unlink(missing_ok=True)  # peft's own says nothing else
    path = folder / ADAPTER / "adapter_config.json"
    config = json.loads(path.read_text())
    if Path(config["base_model_name_or_path"] or "").is_dir():
        path.write_text(json.dumps(config | {"base_model_name_or_path": None}, indent=2))


@torch.no_grad()
def load_adapter(model: PeftModel, folder: Path) -> None:
    """Put the adapters and the head back as they were saved."""
    weights = load_peft_weights(str(folder / ADAPTER), device="cpu")
    set_peft_model_state_dict(model, weights)


# Adapters that were trained elsewhere lie in a folder as peft saves them.

_PREFIX = "base_model.model."


def adapter_heads(folder: Path) -> set[str]:
    """The weights of the model that the adapters of `folder` bring whole, by name."""
    return {name.removeprefix(_PREFIX) for name in load_peft_weights(str(folder), device="cpu")}


def merged_with(model: PreTrainedModel, folder: Path) -> PreTrainedModel:
    """`model` with the adapters of `folder` added into its weights, in its own precision. Raises
    ValueError or RuntimeError for adapters of another model."""
    dtype = model.dtype
    with _known_warnings():
        warnings.filterwarnings("ignore", message="Found missing adapter keys")  # said below
        adapted = PeftModel.from_pretrained(model, str(folder))
        held = set(load_peft_weights(str(folder), device="cpu"))
        apart = {n for n in held ^ set(get_peft_model_state_dict(adapted)) if "lora_" in n}
        if apart:
            raise ValueError(f"the adapter is of another model: {min(apart)} has no counterpart")
        return cast("PreTrainedModel", adapted.merge_and_unload(safe_merge=True).to(dtype))

"""A training step that comes in parts, and checkpoints of models with adapters: for every trainer.

A collator hands a step over as a list of parts (`workers.data.token_budget`); `compute_loss` gives
a part's share of the step's loss, so the gradient is the step's however it was split.
"""

import contextlib
import math
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor
from transformers import PreTrainedModel

from workers import ranks
from workers.models.lora import load_adapter, merged, save_adapter


class PartedSteps:
    """Mixed into a trainer class, before it and after `GuardedTrainer`."""

    def training_step(
        self, model: torch.nn.Module, inputs: list[Any], num_items_in_batch: Any = None
    ) -> Tensor:
        """Loss of the step, times the ranks: the library takes the mean over them, of losses and
        of gradients, where ours add up, as they do over the parts."""
        model.train()
        parts, world = self._prepare_input(inputs), self.accelerator.num_processes  # type: ignore[attr-defined]
        loss = torch.zeros((), device=self.args.device)  # type: ignore[attr-defined]
        for number, part in enumerate(parts, start=1):
            last = number == len(parts)
            together = contextlib.nullcontext() if last else self.accelerator.no_sync(model)  # type: ignore[attr-defined]
            if self._steps_inside:  # type: ignore[attr-defined]
                # Where `no_sync` says nothing, and the step is taken after the last part.
                self.accelerator.gradient_state._set_sync_gradients(last)  # type: ignore[attr-defined]
            with together:
                with self.compute_loss_context_manager():  # type: ignore[attr-defined]
                    share = self.compute_loss(model, part) * (part["taken"] * world)  # type: ignore[attr-defined]
                if last and self._steps_inside:  # type: ignore[attr-defined]
                    share = _or_nothing(share, loss)
                self.accelerator.backward(share)  # type: ignore[attr-defined]
            loss += share.detach()
        return loss

    def _prepare_input(self, data: Any) -> Any:
        """On the device, in the precision it has: DeepSpeed's would round weights and targets."""
        return moved(data, self.args.device)  # type: ignore[attr-defined]

    def floating_point_ops(self, inputs: Any) -> int:
        return 0  # nobody reads it, and the library counts the tokens of one rectangle

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """A normal model folder; with adapters the merged weights, and the adapters beside."""
        folder = Path(output_dir or self.args.output_dir)  # type: ignore[attr-defined]
        if not isinstance(self.model, PeftModel):  # type: ignore[attr-defined]
            super()._save(str(folder), state_dict)  # type: ignore[misc]
        elif self.args.should_save:  # type: ignore[attr-defined]
            whole: PreTrainedModel = merged(self.model)  # type: ignore[attr-defined]
            whole.save_pretrained(folder)
            self.processing_class.save_pretrained(folder)  # type: ignore[attr-defined]
            save_adapter(self.model, folder)  # type: ignore[attr-defined]

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        if isinstance(self.model, PeftModel):  # type: ignore[attr-defined]
            load_adapter(self.model, Path(resume_from_checkpoint))
        else:
            super()._load_from_checkpoint(resume_from_checkpoint, model)  # type: ignore[misc]


def _or_nothing(share: Tensor, loss: Tensor) -> Tensor:
    """The last part's `share`; NaN where the step's loss so far, or this, is no number on any rank:
    then the gradient is none either, and the step inside the backward pass is not taken."""
    return share * math.nan if ranks.any_of(not bool(torch.isfinite(loss + share))) else share


def moved(data: Any, device: torch.device) -> Any:
    """Tensors of nested lists, tuples and dictionaries on `device`."""
    if isinstance(data, Tensor):
        return data.to(device)
    if isinstance(data, dict):
        return {name: moved(value, device) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return type(data)(moved(value, device) for value in data)
    return data

"""A training step that comes in parts, and checkpoints of models with adapters: for every trainer.

A collator hands a step over as a list of parts (`workers.data.token_budget`); `compute_loss` gives
a part's share of the step's loss, so the gradient is the step's however it was split.
"""

import contextlib
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor
from transformers import PreTrainedModel

from workers.lora import load_adapter, merged, save_adapter


class PartedSteps:
    """Mixed into a trainer class, before it and after `GuardedTrainer`."""

    def training_step(
        self, model: torch.nn.Module, inputs: list[Any], num_items_in_batch: Any = None
    ) -> Tensor:
        """Loss of the step. Gradients add up over its parts."""
        model.train()
        parts = self._prepare_input(inputs)  # type: ignore[attr-defined]
        loss = torch.zeros((), device=self.args.device)  # type: ignore[attr-defined]
        for number, part in enumerate(parts, start=1):
            last = number == len(parts)
            together = contextlib.nullcontext() if last else self.accelerator.no_sync(model)  # type: ignore[attr-defined]
            with together:
                with self.compute_loss_context_manager():  # type: ignore[attr-defined]
                    share = self.compute_loss(model, part)  # type: ignore[attr-defined]
                self.accelerator.backward(share)  # type: ignore[attr-defined]
            loss += share.detach()
        return loss

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

"""Trainings whose weights or optimizer are split over ranks (FSDP2, DeepSpeed ZeRO 2 and 3).

What is written is what one process would write: a model folder that any program loads, and the
optimizer's whole state. The first rank keeps a copy of the model in main memory for that, which is
filled from the ranks' parts when the model is saved or asked for answers.
"""

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from workers import ranks
from workers.layouts.arguments import splitting
from workers.layouts.optimizer_state import Groups, put_state, whole_state
from workers.layouts.whole import put_whole, whole_of
from workers.layouts.whole_weights import whole_weights
from workers.models.lora import body_of

OPTIMIZER, SCHEDULER = "optimizer.pt", "scheduler.pt"  # the library's names


class SplitWeights:
    """Mixed into a trainer class, before it. Where nothing is split it changes nothing."""

    _apart = False  # whether the weights were split
    _copy: nn.Module | None = None  # the model as one, on the first rank
    _groups: Groups = ()

    @property
    def splits(self) -> bool:
        return self.is_fsdp_enabled or self.is_deepspeed_enabled  # type: ignore[attr-defined]

    @property
    def _steps_inside(self) -> bool:
        """Whether the step is taken inside the backward pass, as DeepSpeed does."""
        return self.is_deepspeed_enabled  # type: ignore[attr-defined]

    @contextmanager
    def whole(self) -> Iterator[Any]:
        """The model as one, to be asked: itself where every rank has all of it; else a copy on the
        first rank, and None on the others. Every rank must enter."""
        if not self._apart:
            yield self.model  # type: ignore[attr-defined]
            return
        self._gather()
        if self._copy is None:
            yield None
            return
        self._copy.to(self.args.device).eval()  # type: ignore[attr-defined]
        try:
            yield self._copy
        finally:
            self._copy.cpu()

    @contextmanager
    def whole_everywhere(self) -> Iterator[None]:
        """Inside, every rank holds all weights of `model` and may ask it without the others, and
        nothing is learnt. Every rank must enter."""
        with whole_weights(*([self.model_wrapped] if self._apart else [])):  # type: ignore[attr-defined]
            yield

    @torch.no_grad()
    def _gather(self) -> None:
        kept = dict(self._copy.named_parameters()) if self._copy is not None else {}
        for name, parameter in self.model.named_parameters():  # type: ignore[attr-defined]
            value = whole_of(parameter)
            if name in kept:
                kept[name].copy_(value)

    # --- setting up ---

    def create_accelerator_and_postprocess(self) -> None:
        wanted = self.args.fsdp_plugin_args is not None  # type: ignore[attr-defined]
        with splitting(wanted):
            super().create_accelerator_and_postprocess()  # type: ignore[misc]
        if wanted and getattr(self.accelerator.state, "fsdp_plugin", None) is None:  # type: ignore[attr-defined]
            raise RuntimeError("accelerate was asked to split the weights and did not")

    def create_optimizer(self, model: Any = None) -> Any:
        made = super().create_optimizer(model)  # type: ignore[misc]
        self._groups = [list(group["params"]) for group in self.optimizer.param_groups]  # type: ignore[attr-defined]
        return made

    def _prepare_for_training(self, max_steps: int, loader: Any, resume: str | None) -> Any:
        with warnings.catch_warnings():
            # accelerate's, of torch's newer name for what we switch off
            warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
            if not self.splits:
                return super()._prepare_for_training(max_steps, loader, resume)  # type: ignore[misc]
            if resume is not None:
                self._load_from_checkpoint(resume)  # type: ignore[attr-defined]
            if ranks.is_first():
                self._copy = copy.deepcopy(self.model).cpu()  # type: ignore[attr-defined]
                # TRL's fused output layer would go on calling the model that is copied.
                body_of(self._copy).__dict__.pop("forward", None)
            prepared = super()._prepare_for_training(max_steps, loader, None)  # type: ignore[misc]
        self._apart = True
        self._load_optimizer_and_scheduler(resume)
        return prepared

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """Before the weights are split, as in one process."""
        kept = self.is_fsdp_enabled  # type: ignore[has-type]
        self.is_fsdp_enabled = False
        try:
            super()._load_from_checkpoint(resume_from_checkpoint, model)  # type: ignore[misc]
        finally:
            self.is_fsdp_enabled = kept

    def take_weights(self, folder: Path) -> None:
        """Those of a model folder, after the training; every rank must call."""
        if not self._apart:
            self._load_from_checkpoint(str(folder))
            return
        told: dict[str, Any] = {}
        if self._copy is not None:
            split, self.model = self.model, self._copy  # type: ignore[has-type]
            try:
                self._load_from_checkpoint(str(folder))
            finally:
                self.model = split
            told = dict(self._copy.named_parameters())
        for name, parameter in self.model.named_parameters():  # type: ignore[attr-defined]
            put_whole(parameter, told.get(name))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if not self._apart:
            super()._load_optimizer_and_scheduler(checkpoint)  # type: ignore[misc]
        elif checkpoint is not None:
            state = torch.load(Path(checkpoint) / OPTIMIZER, map_location="cpu", weights_only=True)
            put_state(self._own_optimizer, self._groups, state)
            known = torch.load(Path(checkpoint) / SCHEDULER, weights_only=True)
            self.lr_scheduler.load_state_dict(known)  # type: ignore[attr-defined]

    @property
    def _own_optimizer(self) -> Any:
        """Without accelerate's wrapper."""
        return getattr(self.optimizer, "optimizer", self.optimizer)  # type: ignore[attr-defined]

    # --- saving ---

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Every rank must call."""
        if not self._apart:
            if not self.splits:
                super().save_model(output_dir, _internal_call)  # type: ignore[misc]
            elif self.args.should_save:  # type: ignore[attr-defined]
                self._save(output_dir)  # type: ignore[attr-defined]  # before the first step
            return
        self._gather()
        if self._copy is not None:
            split, self.model = self.model, self._copy  # type: ignore[has-type]
            try:
                self._save(output_dir)  # type: ignore[attr-defined]
            finally:
                self.model = split

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if not self._apart:
            super()._save_optimizer_and_scheduler(output_dir)  # type: ignore[misc]
            return
        state = whole_state(self._own_optimizer, self._groups)
        if self.args.should_save:  # type: ignore[attr-defined]
            torch.save(state, Path(output_dir) / OPTIMIZER)
            torch.save(self.lr_scheduler.state_dict(), Path(output_dir) / SCHEDULER)  # type: ignore[attr-defined]

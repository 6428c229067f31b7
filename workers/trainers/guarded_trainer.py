"""The library's trainers, unable to learn from a number that is none.

With the library's defaults a model that went NaN logs a loss of zero and trains to its end: a NaN
loss is replaced by an average of the losses before it (`logging_nan_inf_filter`), and a NaN
gradient goes into the weights. Here the first such step is skipped whole: the gradients are dropped
(None, not zero, for AdamW would move on by momentum), so weights and moments stay bit for bit what
they were. The next one in a row stops the run (`workers.rules.engine`).
"""

import copy
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from accelerate.data_loader import BatchSamplerShard
from torch import Tensor, nn

from workers import ranks
from workers.data.batches import LengthGroupedSampler
from workers.guardrails import GuardStop
from workers.layouts.arguments import splitting
from workers.layouts.gathered import (
    Groups,
    own,
    put_state,
    put_whole,
    whole_of,
    whole_state,
    whole_weights,
)
from workers.models.lora import body_of

# Trainings whose weights or optimizer are split over ranks (FSDP2, DeepSpeed ZeRO 2 and 3).
#
# What is written is what one process would write: a model folder that any program loads, and the
# optimizer's whole state. The first rank keeps a copy of the model in main memory for that, which
# is
# filled from the ranks' parts when the model is saved or asked for answers.

OPTIMIZER, SCHEDULER = "optimizer.pt", "scheduler.pt"  # the library's names


class SplitWeights:
    """Mixed into a trainer class, before it. Where nothing is split it changes nothing."""

    model: Any
    _apart = False  # whether the weights were split
    _copy: nn.Module | None = None  # the model as one, on the first rank
    _groups: Groups = ()

    @property
    def splits(self) -> bool:
        return self.is_fsdp_enabled or self.is_deepspeed_enabled

    @property
    def _steps_inside(self) -> bool:
        """Whether the step is taken inside the backward pass, as DeepSpeed does."""
        return self.is_deepspeed_enabled

    @contextmanager
    def whole(self) -> Iterator[Any]:
        """The model as one, to be asked: itself where every rank has all of it; else a copy on the
        first rank, and None on the others. Every rank must enter."""
        if not self._apart:
            yield self.model
            return
        self._gather()
        if self._copy is None:
            yield None
            return
        self._copy.to(self.args.device).eval()
        try:
            yield self._copy
        finally:
            self._copy.cpu()

    @contextmanager
    def whole_everywhere(self) -> Iterator[None]:
        """Inside, every rank holds all weights of `model` and may ask it without the others, and
        nothing is learnt. Every rank must enter."""
        with whole_weights(*([self.model_wrapped] if self._apart else [])):
            yield

    @torch.no_grad()
    def _gather(self) -> None:
        kept = dict(self._copy.named_parameters()) if self._copy is not None else {}
        for name, parameter in self.model.named_parameters():
            value = whole_of(parameter)
            if name in kept:
                kept[name].copy_(value)

    # --- setting up ---

    def create_accelerator_and_postprocess(self) -> None:
        wanted = self.args.fsdp_plugin_args is not None
        with splitting(wanted):
            super().create_accelerator_and_postprocess()
        if wanted and getattr(self.accelerator.state, "fsdp_plugin", None) is None:
            raise RuntimeError("accelerate was asked to split the weights and did not")

    def create_optimizer(self, model: Any = None) -> Any:
        made = super().create_optimizer(model)
        self._groups = [list(group["params"]) for group in self.optimizer.param_groups]
        return made

    def _prepare_for_training(self, max_steps: int, loader: Any, resume: str | None) -> Any:
        with warnings.catch_warnings():
            # accelerate's, of torch's newer name for what we switch off
            warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
            if not self.splits:
                return super()._prepare_for_training(max_steps, loader, resume)
            if resume is not None:
                self._load_from_checkpoint(resume)
            if ranks.is_first():
                self._copy = copy.deepcopy(self.model).cpu()
                # TRL's fused output layer would go on calling the model that is copied.
                body_of(self._copy).__dict__.pop("forward", None)
            prepared = super()._prepare_for_training(max_steps, loader, None)
        self._apart = True
        self._load_optimizer_and_scheduler(resume)
        return prepared

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """Before the weights are split, as in one process."""
        kept = self.is_fsdp_enabled
        self.is_fsdp_enabled = False
        try:
            super()._load_from_checkpoint(resume_from_checkpoint, model)
        finally:
            self.is_fsdp_enabled = kept

    def take_weights(self, folder: Path) -> None:
        """Those of a model folder, after the training; every rank must call."""
        if not self._apart:
            self._load_from_checkpoint(str(folder))
            return
        told: dict[str, Any] = {}
        if self._copy is not None:
            split, self.model = self.model, self._copy
            try:
                self._load_from_checkpoint(str(folder))
            finally:
                self.model = split
            told = dict(self._copy.named_parameters())
        for name, parameter in self.model.named_parameters():
            put_whole(parameter, told.get(name))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if not self._apart:
            super()._load_optimizer_and_scheduler(checkpoint)
        elif checkpoint is not None:
            state = torch.load(Path(checkpoint) / OPTIMIZER, map_location="cpu", weights_only=True)
            put_state(self._own_optimizer, self._groups, state)
            known = torch.load(Path(checkpoint) / SCHEDULER, weights_only=True)
            self.lr_scheduler.load_state_dict(known)

    @property
    def _own_optimizer(self) -> Any:
        """Without accelerate's wrapper."""
        return getattr(self.optimizer, "optimizer", self.optimizer)

    # --- saving ---

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Every rank must call."""
        if not self._apart:
            if not self.splits:
                super().save_model(output_dir, _internal_call)
            elif self.args.should_save:
                self._save(output_dir)  # before the first step
            return
        self._gather()
        if self._copy is not None:
            split, self.model = self.model, self._copy
            try:
                self._save(output_dir)
            finally:
                self.model = split

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if not self._apart:
            super()._save_optimizer_and_scheduler(output_dir)
            return
        state = whole_state(self._own_optimizer, self._groups)
        if self.args.should_save:
            torch.save(state, Path(output_dir) / OPTIMIZER)
            torch.save(self.lr_scheduler.state_dict(), Path(output_dir) / SCHEDULER)


FOUND = ("", "the loss", "the gradient")


class Guard(Protocol):
    """Who decides about a step that gave no numbers; `trainer_bridge.Reporter`."""

    def not_finite(self, step: int, what: str, *, again: bool = False) -> None:
        """Report it; raises `GuardStop` when the run must end."""


class GuardedTrainer(SplitWeights):
    """Mixed into a trainer class, before it: finite numbers only, batches of similar length."""

    row_lengths: Sequence[int] | None = None  # tokens per training row, in dataset order
    guard: Guard | None = None

    _found = 0  # what is not finite in the step under way, an index of FOUND
    _loss_before: Tensor | None = None  # sum of losses since the last point, before this step
    _skipped = 0  # steps since the last point
    _since_point = 1  # steps of the point that is being logged, skipped ones included
    _keeps_failed = False

    # --- a step ---

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        loss = super().training_step(*args, **kwargs)
        if self._loss_before is None:
            self._loss_before = self._tr_loss.clone()
        if not torch.isfinite(loss):
            self._found = 1
        return loss

    def _clip_grad_norm(self, model: torch.nn.Module) -> Tensor:
        norm = super()._clip_grad_norm(model)
        if hasattr(norm, "full_tensor"):
            norm = norm.full_tensor()
        if self._steps_inside and self._own_optimizer.overflow:
            norm = math.nan
        found = self._found or 2 * (not torch.isfinite(torch.as_tensor(norm)))
        before, self._found, self._loss_before = self._loss_before, 0, None
        if found := self._on_any_rank(found):
            step = self.state.global_step + 1
            self._skip(model)
            if before is not None:
                self._tr_loss.copy_(before)
            self._skipped += 1
            self._tell(step, FOUND[found])
        return norm

    def _skip(self, model: torch.nn.Module) -> None:
        """Weights and moments stay as they are."""
        if not self._steps_inside:
            model.zero_grad(set_to_none=True)
            return
        # DeepSpeed steps inside the backward pass, and drops what is no number by itself; the
        # schedule continues all the same, as it does without it.
        self._own_optimizer.overflow = False

    def _pass_over(self) -> None:
        """A step inside the backward pass was made none on purpose, and nothing is wrong."""
        self._own_optimizer.overflow = False
        self._loss_before = None

    def _on_any_rank(self, found: int) -> int:
        """Ranks must skip together, or their weights part."""
        return ranks.highest(found)

    def _tell(self, step: int, what: str, *, again: bool = False) -> None:
        if self.guard is not None:
            self.guard.not_finite(step, what, again=again)

    # --- the loss that is logged ---

    def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> None:
        logged_at = self._globalstep_last_logged
        self._since_point = self.state.global_step - logged_at
        super()._maybe_log_save_evaluate(*args, **kwargs)

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """The library divides by all steps since the last point; skipped ones have no loss. A
        point without any loss says NaN, never zero."""
        if "loss" in logs and self._skipped:
            learned = self._since_point - self._skipped
            logs["loss"] = logs["loss"] * self._since_point / learned if learned > 0 else math.nan
            self._skipped = 0
        super().log(logs, *args, **kwargs)

    # --- checkpoints ---

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        """Weights that are no numbers never become the last or best checkpoint."""
        if not self._keeps_failed:
            self.check_weights()
        super()._save_checkpoint(*args, **kwargs)
        self.accelerator.wait_for_everyone()  # each rank adds a file

    def check_weights(self) -> None:
        """Raises `GuardStop` (through the guard) when a weight is NaN or infinite."""
        model: torch.nn.Module = self.model
        broken = not all(bool(torch.isfinite(own(p)).all()) for p in model.parameters())
        if ranks.any_of(broken):
            self._tell(self.state.global_step, "a weight", again=True)

    def save_failed(self) -> str:
        """The whole state as it is, to look at or to go on from; its folder."""
        folder = f"{self.args.output_dir}/checkpoint-{self.state.global_step}"
        if self.optimizer is None:
            self.save_model(folder)
            return folder
        self._keeps_failed = True
        try:
            self._save_checkpoint(self.model, None)
        finally:
            self._keeps_failed = False
        return folder

    # --- evaluation and order ---

    def get_train_dataloader(self) -> Any:
        """Every rank reads the rows of the whole step, and its collator takes the rank's share
        (`workers.layouts.shards`): so each knows what the step's loss is divided by."""
        loader = super().get_train_dataloader()
        shard = getattr(loader, "batch_sampler", None)
        if isinstance(shard, BatchSamplerShard):
            shard.num_processes, shard.process_index, shard.even_batches = 1, 0, False
        return loader

    def prediction_step(
        self, model: torch.nn.Module, inputs: Any, prediction_loss_only: bool, *_: Any, **__: Any
    ) -> tuple[Tensor, None, None]:
        """Held-out loss by the same `compute_loss`; predictions are kept nowhere."""
        with torch.no_grad(), self.compute_loss_context_manager():
            return self.compute_loss(model, self._prepare_inputs(inputs)), None, None

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        if self.row_lengths is None:
            return super()._get_train_sampler(train_dataset)
        batch = self.args.train_batch_size * self.args.gradient_accumulation_steps
        return LengthGroupedSampler(self.row_lengths, batch, seed=self.args.seed)


__all__ = ["Guard", "GuardStop", "GuardedTrainer"]

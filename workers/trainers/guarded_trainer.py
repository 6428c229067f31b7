"""The library's trainers, unable to learn from a number that is none.

With the library's defaults a model that went NaN logs a loss of zero and trains to its end: a NaN
loss is replaced by an average of the losses before it (`logging_nan_inf_filter`), and a NaN
gradient goes into the weights. Here the first such step is skipped whole: the gradients are dropped
(None, not zero, for AdamW would move on by momentum), so weights and moments stay bit for bit what
they were. The next one in a row stops the run (`workers.guardrails.finite`).
"""

import math
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from accelerate.data_loader import BatchSamplerShard
from torch import Tensor

from workers import ranks
from workers.data.batching import LengthGroupedSampler
from workers.guardrails.watch import GuardStop
from workers.layouts.whole import own
from workers.trainers.split_weights import SplitWeights

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
        loss = super().training_step(*args, **kwargs)  # type: ignore[misc]
        if self._loss_before is None:
            self._loss_before = self._tr_loss.clone()  # type: ignore[attr-defined]
        if not torch.isfinite(loss):
            self._found = 1
        return loss

    def _clip_grad_norm(self, model: torch.nn.Module) -> Tensor:
        norm = super()._clip_grad_norm(model)  # type: ignore[misc]
        if hasattr(norm, "full_tensor"):
            norm = norm.full_tensor()
        if self._steps_inside and self._own_optimizer.overflow:
            norm = math.nan
        found = self._found or 2 * (not torch.isfinite(torch.as_tensor(norm)))
        before, self._found, self._loss_before = self._loss_before, 0, None
        if found := self._on_any_rank(found):
            step = self.state.global_step + 1  # type: ignore[attr-defined]
            self._skip(model)
            if before is not None:
                self._tr_loss.copy_(before)  # type: ignore[attr-defined]
            self._skipped += 1
            self._tell(step, FOUND[found])
        return norm

    def _skip(self, model: torch.nn.Module) -> None:
        """Weights and moments stay as they are."""
        if not self._steps_inside:
            model.zero_grad(set_to_none=True)
            return
        # DeepSpeed steps inside the backward pass, and drops what is no number by itself; the
        # schedule goes on all the same, as it does without it.
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
        logged_at = self._globalstep_last_logged  # type: ignore[attr-defined]
        self._since_point = self.state.global_step - logged_at  # type: ignore[attr-defined]
        super()._maybe_log_save_evaluate(*args, **kwargs)  # type: ignore[misc]

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """The library divides by all steps since the last point; skipped ones have no loss. A
        point without any loss says NaN, never zero."""
        if "loss" in logs and self._skipped:
            learned = self._since_point - self._skipped
            logs["loss"] = logs["loss"] * self._since_point / learned if learned > 0 else math.nan
            self._skipped = 0
        super().log(logs, *args, **kwargs)  # type: ignore[misc]

    # --- checkpoints ---

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        """Weights that are no numbers never become the last or best checkpoint."""
        if not self._keeps_failed:
            self.check_weights()
        super()._save_checkpoint(*args, **kwargs)  # type: ignore[misc]
        self.accelerator.wait_for_everyone()  # type: ignore[attr-defined]  # each rank adds a file

    def check_weights(self) -> None:
        """Raises `GuardStop` (through the guard) when a weight is NaN or infinite."""
        model: torch.nn.Module = self.model  # type: ignore[attr-defined]
        broken = not all(bool(torch.isfinite(own(p)).all()) for p in model.parameters())
        if ranks.any_of(broken):
            self._tell(self.state.global_step, "a weight", again=True)  # type: ignore[attr-defined]

    def save_failed(self) -> str:
        """The whole state as it is, to look at or to go on from; its folder."""
        folder = f"{self.args.output_dir}/checkpoint-{self.state.global_step}"  # type: ignore[attr-defined]
        if self.optimizer is None:  # type: ignore[attr-defined]
            self.save_model(folder)  # type: ignore[attr-defined]
            return folder
        self._keeps_failed = True
        try:
            self._save_checkpoint(self.model, None)  # type: ignore[attr-defined]
        finally:
            self._keeps_failed = False
        return folder

    # --- evaluation and order ---

    def get_train_dataloader(self) -> Any:
        """Every rank reads the rows of the whole step, and its collator takes the rank's share
        (`workers.layouts.shares`): so each knows what the step's loss is divided by."""
        loader = super().get_train_dataloader()  # type: ignore[misc]
        shard = getattr(loader, "batch_sampler", None)
        if isinstance(shard, BatchSamplerShard):
            shard.num_processes, shard.process_index, shard.even_batches = 1, 0, False
        return loader

    def prediction_step(
        self, model: torch.nn.Module, inputs: Any, prediction_loss_only: bool, *_: Any, **__: Any
    ) -> tuple[Tensor, None, None]:
        """Held-out loss by the same `compute_loss`; predictions are kept nowhere."""
        with torch.no_grad(), self.compute_loss_context_manager():  # type: ignore[attr-defined]
            return self.compute_loss(model, self._prepare_inputs(inputs)), None, None  # type: ignore[attr-defined]

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        if self.row_lengths is None:
            return super()._get_train_sampler(train_dataset)  # type: ignore[misc]
        batch = self.args.train_batch_size * self.args.gradient_accumulation_steps  # type: ignore[attr-defined]
        return LengthGroupedSampler(self.row_lengths, batch, seed=self.args.seed)  # type: ignore[attr-defined]


__all__ = ["Guard", "GuardStop", "GuardedTrainer"]

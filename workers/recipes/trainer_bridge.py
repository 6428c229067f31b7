"""What `sft`, `reward` and `dpo` share: one of the library's trainers, reporting to our context.

The library's own defaults are closed where they hide trouble: a NaN loss is not replaced by an
average (`logging_nan_inf_filter`), and a non-finite loss or gradient stops the run before the
weights are touched.
"""

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import (
    PrinterCallback,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from workers.context import RecipeError, RunContext
from workers.contract.events import Fault
from workers.data.batching import LengthGroupedSampler
from workers.data.snapshot import TRAIN
from workers.recipes.settings.common import TrainingSettings

# What the library reports about its own speed, and a counter that a resumed run begins anew.
_UNREPORTED = (
    "runtime",
    "per_second",
    "total_flos",
    "train_loss",
    "model_preparation_time",
    "num_tokens",
)


class NonFinite(Exception):
    """A loss or gradient that is NaN or infinite; the weights are still those before it."""


class GuardedTrainer:
    """Mixed into a trainer class, before it: finite numbers only, batches of similar length."""

    row_lengths: Sequence[int] | None = None  # tokens per training row, in dataset order

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        loss = super().training_step(*args, **kwargs)  # type: ignore[misc]
        if not torch.isfinite(loss):
            raise NonFinite(f"the loss is {loss.item()} at step {self.state.global_step + 1}")
        return loss

    def _clip_grad_norm(self, model: torch.nn.Module) -> torch.Tensor:
        norm = super()._clip_grad_norm(model)  # type: ignore[misc]
        if norm is not None and not torch.isfinite(torch.as_tensor(norm)):
            raise NonFinite(f"the gradient is not finite at step {self.state.global_step + 1}")
        return norm

    def prediction_step(
        self, model: torch.nn.Module, inputs: Any, prediction_loss_only: bool, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, None, None]:
        """Held-out loss by the same `compute_loss`; predictions are kept nowhere."""
        with torch.no_grad(), self.compute_loss_context_manager():
            return self.compute_loss(model, self._prepare_inputs(inputs)), None, None

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        if self.row_lengths is None:
            return super()._get_train_sampler(train_dataset)  # type: ignore[misc]
        batch = self.args.train_batch_size * self.args.gradient_accumulation_steps
        return LengthGroupedSampler(self.row_lengths, batch, seed=self.args.seed)


class Reporter(TrainerCallback):
    """Turns the trainer's callbacks into events, and people's wishes into its control flags."""

    def __init__(
        self,
        context: RunContext,
        settings: TrainingSettings,
        *,
        offset: int = 0,
        total_steps: int | None = None,
        max_seconds: float | None = None,
    ) -> None:
        """A run that trains several models counts on: `offset` steps are behind this one, and
        `total_steps` and `max_seconds` are those of the run and of this model's share."""
        self.context = context
        self.settings = settings
        self.offset = offset
        self.total_steps = total_steps
        self.max_seconds = settings.max_seconds if max_seconds is None else max_seconds
        self.timed_out = False
        self.started = time.monotonic()
        self.first_step = 0
        self.best = math.inf
        self.evaluated: dict[str, float] = {}
        self.evaluated_at = -1
        self.losses: list[tuple[int, float]] = []  # (step, held-out loss) of this attempt

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.started = time.monotonic()
        self.first_step = state.global_step
        past = [entry["eval_loss"] for entry in state.log_history if "eval_loss" in entry]
        self.best = min([self.best, *past])
        self._progress(state)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        elapsed = time.monotonic() - self.started
        self.timed_out = self.max_seconds is not None and elapsed > self.max_seconds
        self._progress(state, elapsed)
        wish = self.context.should_stop()
        if wish or self.timed_out:
            control.should_training_stop = True
            control.should_save = True
            control.should_evaluate = wish != "cancel"
        if control.should_save:
            control.should_log = True  # a resumed run continues the curve without a gap
        return control

    def _progress(self, state: TrainerState, elapsed: float | None = None) -> None:
        """Where the run is; with the seconds this model took so far also when it will end."""
        step = self.offset + state.global_step
        total = self.total_steps or self.offset + state.max_steps
        left = None
        if elapsed is not None:
            pace = elapsed / max(1, state.global_step - self.first_step)
            here = (state.max_steps - state.global_step) * pace
            if self.max_seconds is not None:
                here = min(here, self.max_seconds - elapsed)
            later = (total - self.offset - state.max_steps) * pace
            left = max(0.0, here) + max(0.0, later)
        self.context.progress(step, total, "training", left)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        values = reported(logs or {})
        if set(values) - {"epoch"}:
            self.context.metrics(self.offset + state.global_step, values)

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        self.evaluated = reported(metrics or {})
        self.evaluated_at = state.global_step
        self.losses.append((state.global_step, self.evaluated.get("eval/loss", math.nan)))

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        tags = ["last"]
        figures = self.evaluated if self.evaluated_at == state.global_step else {}
        if figures.get("eval/loss", math.inf) < self.best:
            self.best = figures["eval/loss"]
            tags.append("best")
        if control.should_training_stop and self.context.stopped != "cancel":
            tags.append("final")
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        (folder / "training_args.bin").unlink(missing_ok=True)  # a pickle that nobody reads
        self.context.save_checkpoint(folder, step=state.global_step, tags=tags, metrics=figures)


def reported(logs: Mapping[str, Any]) -> dict[str, float]:
    """The library's flat names under our prefixes (eval_loss → eval/loss), numbers only."""
    held_out = any(name.startswith("eval_") for name in logs)
    return {
        "eval/" + name.removeprefix("eval_") if name.startswith("eval_") else name: float(value)
        for name, value in logs.items()
        if isinstance(value, int | float)
        and not name.endswith(_UNREPORTED)
        and not (held_out and name == "epoch")
    }


def trainer_arguments(context: RunContext, settings: TrainingSettings) -> dict[str, Any]:
    """Keyword arguments every trainer configuration is made with."""
    on_gpu = torch.cuda.is_available()
    return {
        "output_dir": str(context.workdir / "trainer"),
        "per_device_train_batch_size": settings.batch_size // settings.gradient_accumulation,
        "per_device_eval_batch_size": settings.batch_size // settings.gradient_accumulation,
        "gradient_accumulation_steps": settings.gradient_accumulation,
        "learning_rate": settings.learning_rate,
        "lr_scheduler_type": (
            "constant_with_warmup" if settings.lr_schedule == "constant" else settings.lr_schedule
        ),
        "warmup_steps": settings.warmup_share,  # a share, while under 1
        "weight_decay": settings.weight_decay,
        "max_grad_norm": settings.max_grad_norm,
        "num_train_epochs": settings.epochs,
        "max_steps": settings.max_steps or -1,
        "logging_strategy": "steps",
        "logging_steps": settings.log_every,
        "logging_first_step": True,
        "logging_nan_inf_filter": False,
        "eval_strategy": "steps",
        "eval_steps": settings.eval_every,
        "save_strategy": "steps",
        "save_steps": settings.save_every,
        "save_total_limit": 1,
        "report_to": "none",
        "disable_tqdm": True,
        "seed": context.spec.seed,
        "data_seed": context.spec.seed,
        "use_cpu": not on_gpu,
        "bf16": on_gpu and torch.cuda.is_bf16_supported(),
        "activation_checkpointing": False,
        "dataloader_pin_memory": on_gpu,
        "remove_unused_columns": False,  # our collators know what they read
    }


def train(context: RunContext, trainer: Any) -> None:
    """Train to the end, or until someone stops it; resume where the job says.

    A non-finite loss saves the weights before it as the `failed` checkpoint, then raises
    `RecipeError` (non_finite).
    """
    train_from(context, trainer, context.resume_path())


def train_from(context: RunContext, trainer: Any, resume: Path | None, *, offset: int = 0) -> None:
    """`train` of one model of several: `offset` steps of the run are behind it."""
    trainer.remove_callback(PrinterCallback)  # figures go out as metrics, not to the log
    if resume is None and trainer.eval_dataset is not None:
        trainer.evaluate()  # the curve starts before the first step
    try:
        trainer.train(resume_from_checkpoint=str(resume) if resume else None)
    except NonFinite as error:
        folder = context.workdir / "failed"
        trainer.save_model(str(folder))
        (folder / "training_args.bin").unlink(missing_ok=True)
        step = offset + trainer.state.global_step
        context.save_checkpoint(folder, step=step, tags=["failed"], metrics={})
        raise RecipeError("non_finite", Fault.GUARD, str(error)) from error


def check_batches(settings: TrainingSettings, rows: int) -> None:
    """Raises `RecipeError` when the batch cannot be split, or there is nothing to train on."""
    if settings.batch_size % settings.gradient_accumulation:
        raise RecipeError(
            "bad_config",
            Fault.CONFIGURATION,
            "batch_size: must be a multiple of gradient_accumulation",
        )
    if rows == 0:
        raise RecipeError(
            "no_rows", Fault.DATA, "no training row is left: all are longer than max_length"
        )


def validation_split(splits: Mapping[str, Sequence[Any]]) -> str:
    """The split that is watched while training: `dev` where there is one, else the first.

    Raises `RecipeError` (no_held_out_rows) when no evaluation file has rows.
    """
    others = [split for split in sorted(splits) if split != TRAIN and splits[split]]
    if not others:
        raise RecipeError(
            "no_held_out_rows", Fault.DATA, "the snapshot has no evaluation file with rows"
        )
    return "dev" if "dev" in others else others[0]

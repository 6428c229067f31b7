"""What the recipes over the library's trainers share: events, guardrails, checkpoints.

Every figure a trainer logs is looked at by the guardrails of the run's kind. A warning is an event;
an adjustment changes the learning rate; a stop has the library save the whole state, which becomes
the checkpoint `failed` beside `best` and `last`, and ends the run after `train` has returned.
"""

import contextlib
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers import (
    PrinterCallback,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from workers import ranks
from workers.artifacts import state_in, state_of
from workers.behaviour import Histograms
from workers.config.training import TrainingSettings
from workers.context import RunContext
from workers.contract.events import Fault, RecipeError
from workers.data.snapshot import TRAIN
from workers.layouts.arguments import layout_arguments
from workers.models.loading import on_half_gpu
from workers.models.lora import body_of
from workers.rules.engine import Violation, first_stop, live_engine, report, stop_error
from workers.trainers.guarded_trainer import GuardedTrainer, tokens_seen

if TYPE_CHECKING:
    from workers.config.grpo import GRPOSettings

# Beside the trainer's state in a checkpoint.
GUARDS_FILE, HISTOGRAMS_FILE = "guards.json", "histograms.json"

# What the library reports about its own speed, and TRL's counter, which a resumed run begins again;
# ours of that name is in the trainer's state.
_UNREPORTED = (
    "runtime",
    "per_second",
    "total_flos",
    "train_loss",
    "model_preparation_time",
    "num_tokens",
)


class Reporter(TrainerCallback):
    """Turns the trainer's callbacks into events, and people's commands into its control flags."""

    def __init__(
        self,
        context: RunContext,
        settings: "TrainingSettings | GRPOSettings",
        *,
        offset: int = 0,
        tokens_before: int | None = 0,
        total_steps: int | None = None,
        max_seconds: float | None = None,
        rows: Mapping[str, float] | None = None,
    ) -> None:
        """A run that trains several models counts on: `offset` steps and `tokens_before` tokens
        are behind this one (None where those were not counted), and `total_steps` and `max_seconds`
        are those of the run and of this model's share. `rows`: what is known of the training rows
        before the first step."""
        self.context = context
        self.settings = settings
        self.offset = offset
        self.tokens_before = tokens_before
        self.total_steps = total_steps
        self.max_seconds = settings.max_seconds if max_seconds is None else max_seconds
        self.timed_out = False
        self.started = time.monotonic()
        self.first_step = 0
        self.best = math.inf
        self.evaluated: dict[str, float] = {}
        self.evaluated_at = -1
        self.losses: list[tuple[int, float]] = []  # (step, held-out loss) of this attempt
        self.stop: Violation | None = None  # what ends the run
        self.has_failed_checkpoint = False
        self.trainer: Any = None  # whose callbacks these are
        self.rows = dict(rows or {})
        self.histograms = Histograms()
        self.rules = live_engine(context.spec, settings)

    # --- guardrails ---

    def look(
        self, step: int, metrics: Mapping[str, float | None], control: TrainerControl, **parts: Any
    ) -> None:
        """Guard the metrics of a step of this model. `parts` are the trainer's, as callbacks get
        them. Tells the library to save and stop when a rule ends the run. All ranks judge by the
        first one's metrics, which may be rounded otherwise than theirs."""
        if self.stop is not None:
            return
        violations = self.rules.check(self.offset + step, ranks.from_first(dict(metrics)))
        report(self.context.emit, violations)
        for violation in violations:
            for change in violation.adjustment:
                if change.setting == "learning_rate":
                    scale_learning_rate(parts["optimizer"], parts["lr_scheduler"], change.times)
        self.stop = self.stop or first_stop(violations)
        self.stop_where_due(control)

    def stop_where_due(self, control: TrainerControl) -> None:
        """The flags of a run that a rule ends: its state is saved, and nothing else is done."""
        if self.stop is not None:
            control.should_training_stop = True
            control.should_save = not self.has_failed_checkpoint
            control.should_evaluate = False

    def not_finite(self, step: int, what: str, *, again: bool = False) -> None:
        """A step gave no numbers: told as skipped, or the end of the run, when its step ends."""
        violation = self.rules.finite.skip_or_stop(self.offset + step, what, again=again)
        report(self.context.emit, [violation])
        if violation.action == "stop":
            self.stop = self.stop or violation
            self.stop_where_due(self.trainer.control)

    def finish_folder(self, folder: Path) -> None:
        """Adds to a checkpoint what the library's trainer does not know of; the first rank."""
        if self.context.writer is not None:
            (state_in(folder) / GUARDS_FILE).write_text(json.dumps(self.rules.state()))
            (state_in(folder) / HISTOGRAMS_FILE).write_text(json.dumps(self.histograms.state()))

    def save_checkpoint(
        self, folder: Path, step: int, tags: list[str], metrics: dict[str, float]
    ) -> None:
        """The folder as a checkpoint of the run; of a run that a rule ends only as `failed`."""
        self.finish_folder(folder)
        if self.stop is not None:
            tags, metrics, self.has_failed_checkpoint = ["failed"], {}, True
        self.context.save_checkpoint(folder, step=self.offset + step, tags=tags, metrics=metrics)

    # --- the trainer's callbacks ---

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
        over = self.max_seconds is not None and elapsed > self.max_seconds
        self.timed_out = ranks.any_of(over)  # clocks differ
        self._progress(state, elapsed)
        command = self.context.should_stop()
        if command or self.timed_out:
            control.should_training_stop = True
            control.should_save = True
            control.should_evaluate = command != "cancel"
        self.stop_where_due(control)
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
            values |= self.places(state)
            if state.global_step == 0:
                values |= self.rows
            self.context.metrics(self.offset + state.global_step, values)
            self.look(state.global_step, values, control, **kwargs)

    def places(self, state: TrainerState) -> dict[str, float]:
        """Where a point lies besides its step, as far as the run knows."""
        found = {} if state.epoch is None else {"epoch": float(state.epoch)}
        tokens = tokens_seen(state)
        if tokens is not None and self.tokens_before is not None:
            found["num_tokens"] = float(self.tokens_before + tokens)
        return found

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> TrainerControl:
        self.evaluated = ranks.from_first(reported(metrics or {}))
        self.evaluated_at = state.global_step
        self.losses.append((state.global_step, self.evaluated.get("eval/loss", math.nan)))
        return control

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """What the library left out is added, then the folder is sent. Weights that are no numbers
        never become the last or best checkpoint: they end the run."""
        folder = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
        self.trainer.check_weights()
        self.trainer.save_state(folder)
        control.should_save = False  # also where the weights have just ended the run
        metrics = self.evaluated if self.evaluated_at == state.global_step else {}
        tags = ["last"]
        if metrics and self.takes_best(metrics):
            tags.append("best")
        if control.should_training_stop and self.takes_final():
            tags.append("final")
        self.save_checkpoint(folder, state.global_step, tags, metrics)

    def takes_best(self, metrics: Mapping[str, float]) -> bool:
        """Whether the checkpoint of this evaluation is the best so far."""
        before, self.best = self.best, min(self.best, metrics.get("eval/loss", math.inf))
        return self.best < before

    def takes_final(self) -> bool:
        """Whether the checkpoint at the end is what the run leaves."""
        return self.context.stopped != "cancel"


def planned(trainer: Any) -> dict[str, float]:
    """How often a training is to pass over its rows, and its learning rate over the root mean
    square of the weights that it trains: vectors, such as norms and biases, are not counted."""
    args, rows = trainer.args, len(trainer.train_dataset)
    a_pass = max(1, rows / args.train_batch_size)  # a step's rows, of all processes together
    passes = args.max_steps / a_pass if args.max_steps > 0 else args.num_train_epochs
    found = {"data/passes": float(passes)}
    weights = [p.detach() for p in trainer.model.parameters() if p.requires_grad and p.dim() > 1]
    weights = [p.to_local() if isinstance(p, DTensor) else p for p in weights]
    squares = sum(float(p.float().square().sum()) for p in weights)
    if squares > 0:
        size = math.sqrt(squares / sum(p.numel() for p in weights))
        found["learning_rate/to_weights"] = args.learning_rate / size
    return found


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


def trainer_arguments(
    context: RunContext, settings: "TrainingSettings | GRPOSettings"
) -> dict[str, Any]:
    """Keyword arguments every trainer configuration is made with."""
    on_gpu = torch.cuda.is_available()
    return {
        "output_dir": str(context.workdir / "trainer"),
        "per_device_train_batch_size": settings.batch_size,
        "per_device_eval_batch_size": settings.batch_size,
        "gradient_accumulation_steps": 1,  # our own steps come in parts
        "optim": "adamw_bnb_8bit" if settings.optimizer == "adamw_8bit" else "adamw_torch_fused",
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
        "save_only_model": True,  # the rest is ours: `GuardedTrainer.save_state`
        "report_to": "none",
        "disable_tqdm": True,
        "seed": context.spec.seed,
        "data_seed": context.spec.seed,
        "use_cpu": not on_gpu,
        "bf16": on_half_gpu(),
        "activation_checkpointing": False,
        "dataloader_pin_memory": on_gpu,
        "remove_unused_columns": False,  # our collators know what they read
    } | layout_arguments(context.spec)


def scale_learning_rate(optimizer: Any, scheduler: Any, factor: float) -> None:
    """Multiplies the step size, now and for the rest of its schedule; rides in checkpoints."""
    scheduler = getattr(scheduler, "scheduler", scheduler)  # accelerate's wrapper
    scheduler.base_lrs = [rate * factor for rate in scheduler.base_lrs]
    for group in optimizer.param_groups:
        group["lr"] *= factor
        if "initial_lr" in group:
            group["initial_lr"] *= factor


def train(context: RunContext, trainer: Any) -> None:
    """Train to the end, or until someone stops it; resume where the job says.

    A guardrail that stops saves the state as the `failed` checkpoint, then raises `RecipeError`
    (guard_<rule>, or non_finite).
    """
    train_from(context, trainer, context.resume_path())


def train_from(context: RunContext, trainer: Any, resume: Path | None, *, offset: int = 0) -> None:
    """`train` of one model of several: `offset` steps of the run are behind it."""
    trainer.remove_callback(PrinterCallback)  # metrics go out as metrics, not to the log
    reporter = next(c for c in trainer.callback_handler.callbacks if isinstance(c, Reporter))
    trainer.guard, reporter.trainer = reporter, trainer
    if resume is not None:
        trainer.resume_from(resume)
        if (guards := state_of(resume) / GUARDS_FILE).is_file():
            reporter.rules.restore(json.loads(guards.read_text()))
        if (bins := state_of(resume) / HISTOGRAMS_FILE).is_file():
            reporter.histograms.restore(json.loads(bins.read_text()))
    elif trainer.eval_dataset is not None:
        if reporter.rows:
            reporter.rows |= planned(trainer)
        trainer.evaluate()  # the curve starts before the first step
    if reporter.stop is None:
        trainer.train()
    if reporter.stop is None:
        trainer.check_weights()
    if reporter.stop is None:
        return
    if not reporter.has_failed_checkpoint:  # outside of the training: the weights alone
        folder = Path(trainer.args.output_dir) / "failed"
        trainer.save_model(str(folder))
        reporter.save_checkpoint(folder, trainer.state.global_step, [], {})
    raise stop_error(reporter.stop)


# A trainer of TRL: its loss and metrics through public methods only.


class BelowTRL(transformers.Trainer):
    """The last base of a trainer over TRL's: what that logs passes here on its way to the
    library, or ends here while its metrics are asked for."""

    caught: dict[str, float] | None = None

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if self.caught is None:
            super().log(logs, start_time)
        else:
            self.caught.update(logs)


class OverTRL(GuardedTrainer):
    """The first base of a trainer over TRL's; the last is `BelowTRL`."""

    def use_own_forward(self) -> None:
        """TRL put its fused output layer on the model, which would be copied with it and go on
        calling the first; our forward passes ask for none. Once, after the constructor."""
        vars(body_of(self.model)).pop("forward", None)
        self.aux_loss_enabled = False  # of whole batches of experts, which are not computed here

    caught: dict[str, float] | None

    def trl_metrics(self) -> dict[str, float]:
        """What TRL has noted since it was last asked, by its names; it tells in `log` only."""
        found: dict[str, float] = {}
        self.caught = found
        try:
            super().log({})
        finally:
            self.caught = None
        return {name.removeprefix("eval_"): value for name, value in found.items()}

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """TRL's says nothing of the run."""


class Alone:
    """An accelerator as TRL would find it in a process of its own: nothing is gathered. Ranks may
    have as many parts as their rows need, or all hold the same rows."""

    num_processes, process_index = 1, 0

    def __init__(self, accelerator: Any) -> None:
        self.accelerator = accelerator

    def __getattr__(self, name: str) -> Any:
        return getattr(self.accelerator, name)

    def gather(self, tensor: Tensor, **_: Any) -> Tensor:
        return tensor

    gather_for_metrics = gather

    def reduce(self, tensor: Tensor, reduction: str = "sum") -> Tensor:
        return tensor


@contextlib.contextmanager
def alone(trainer: Any) -> Iterator[None]:
    """Inside, TRL computes as one process would."""
    accelerator = trainer.accelerator
    trainer.accelerator = Alone(accelerator)
    try:
        yield
    finally:
        trainer.accelerator = accelerator


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

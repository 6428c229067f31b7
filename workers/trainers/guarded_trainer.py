"""What our trainers share over the library's `Trainer`, reached through its public hooks only.

A step comes in parts, and the gradient is the step's however it was split. A step whose loss or
gradient is NaN or infinite is skipped whole: the gradients are dropped (None, not zero, for AdamW
would move on by momentum), so weights and moments stay bit for bit what they were. With the
library's defaults a model that went NaN logs a loss of zero and trains to its end.

Checkpoints are those of one process whatever layout wrote them (`workers.layouts.gathered`): the
library writes the model and its own state (`save_only_model`); the optimizer, the schedule and the
random generators are written and read here. Why nothing private of the library is used, and what
that costs: docs/adr/0017.
"""

import contextlib
import copy
import math
import random
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import transformers
from peft import PeftModel
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.utils import get_total_norm
from torch.utils.data import DataLoader, Sampler
from transformers import TrainerCallback, TrainerState

from workers import ranks
from workers.artifacts import state_in, state_of
from workers.contract.events import Fault, RecipeError
from workers.data.batches import OrderSampler, StepBatches
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
from workers.models.loading import EXACT, save_exact, save_model
from workers.models.lora import load_adapter, merged, save_adapter

OPTIMIZER, SCHEDULER, STATE = "optimizer.pt", "scheduler.pt", "trainer_state.json"
FOUND = ("", "the loss", "the gradient")


class Guard(Protocol):
    """Who decides about a step that gave no numbers; `trainer_bridge.Reporter`."""

    def not_finite(self, step: int, what: str, *, again: bool = False) -> None:
        """Report it, and have the training stopped where it must be."""


class StepHooks(TrainerCallback):
    """Calls our methods at the library's points of a training, before all other callbacks."""

    def __init__(self, trainer: "GuardedTrainer") -> None:
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.trainer.begin_training()

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.trainer.restore_randomness()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.trainer.before_update()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        state.epoch = self.trainer.passes(state.global_step)
        # None stay none: a run that began without a count has no count (`tokens_seen`).
        if state.global_step == 1 or state.num_input_tokens_seen:
            state.num_input_tokens_seen += self.trainer.step_tokens(state.global_step - 1)


class GuardedTrainer(transformers.Trainer):
    """The library's trainer, or the first base of one that derives from it."""

    model: Any
    optimizer: Any
    lr_scheduler: Any
    args: Any
    train_dataset: Any
    data_collator: Any
    processing_class: Any
    guard: Guard | None = None

    apart = False  # whether the weights or the optimizer were split over ranks
    whole_copy: nn.Module | None = None  # the model as one, on the first rank
    groups: Groups = ()  # the optimizer's, before they were split
    resumed: Path | None = None  # the checkpoint this training continues from
    randomness: Path | None = None  # where the generators' states lie, until the first step

    steps_per_epoch = 1
    epoch_orders: Mapping[int, list[int]] = {}  # of the last two epochs read

    step_loss: Tensor | None = None  # of the step under way
    silent = False  # whether that step is to leave the weights as they are
    loss_sum = 0.0  # of the steps since the last point that gave numbers
    learned = 0  # how many those are
    steps_since = 0  # and how many all are
    rate: float | None = None  # the step size of the last step
    dropped_norm: float | None = None  # its gradient's norm, where the step was dropped

    def __init__(self, *, callbacks: list[Any] | None = None, **kwargs: Any) -> None:
        super().__init__(callbacks=[StepHooks(self), *(callbacks or [])], **kwargs)

    # --- order ---

    def train_order(self) -> Sampler[int]:
        """The rows of an epoch in the order they are trained in; of `set_epoch` and seed alone."""
        rows = len(self.train_dataset)
        return OrderSampler(
            lambda generator: torch.randperm(rows, generator=generator).tolist(),
            rows,
            seed=self.args.seed,
        )

    def rows_of_step(self, step: int) -> list[int]:
        """Which rows a step (from 0) trains on: known by position, so resumed runs continue."""
        epoch, place = divmod(step, self.steps_per_epoch)
        if epoch not in self.epoch_orders:
            order: Any = self.train_order()
            order.set_epoch(epoch)
            # The loader reads ahead: the epoch before is still asked about.
            before = {n: rows for n, rows in self.epoch_orders.items() if n == epoch - 1}
            self.epoch_orders = before | {epoch: list(order)}
        size = self.args.per_device_train_batch_size
        return self.epoch_orders[epoch][place * size : (place + 1) * size]

    def passes(self, step: int) -> float:
        """Passes over the training rows when `step` steps are done."""
        return step / self.steps_per_epoch

    def row_tokens(self, row: Any) -> int:
        """Tokens of all texts of a row that are learnt from, their prompts included."""
        raise NotImplementedError

    def step_tokens(self, step: int) -> int:
        """Tokens that a step (from 0) trains on, over all ranks. Counted by its rows: padding is
        none of them, and however a step was split they are as many."""
        return sum(self.row_tokens(self.train_dataset[i]) for i in self.rows_of_step(step))

    def get_train_dataloader(self) -> Any:
        """All steps that are left, in one pass. Every rank reads the rows of the whole step, and
        its collator takes the rank's share (`workers.layouts.shards`): so each knows what the
        step's loss is divided by."""
        self.steps_per_epoch, self.args.max_steps = planned_steps(
            self.args, len(self.train_dataset)
        )
        first = 0 if self.resumed is None else saved_state(self.resumed).global_step
        return DataLoader(
            self.train_dataset,
            batch_sampler=StepBatches(self.rows_of_step, first, self.args.max_steps),
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory,
            generator=torch.Generator(),  # not the one that dropout draws from
        )

    # --- a step ---

    def parts_of(self, inputs: Any) -> list[Any]:
        """The parts of a step on the device, in the precision they have: DeepSpeed's would round
        weights and targets."""
        return moved(inputs, self.args.device)

    def training_step(
        self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None
    ) -> Tensor:
        """Loss of the step, times the ranks: the library takes the mean over them, of losses and
        of gradients, where ours add up, as they do over the parts."""
        model.train()
        parts, world = self.parts_of(inputs), self.accelerator.num_processes
        loss = torch.zeros((), device=self.args.device)
        for number, part in enumerate(parts, start=1):
            last = number == len(parts)
            together = contextlib.nullcontext() if last else self.accelerator.no_sync(model)
            if self.steps_inside:
                # Where `no_sync` says nothing, and the step is taken after the last part.
                self.accelerator.sync_gradients = last
            with together:
                with self.compute_loss_context_manager():
                    share = self.compute_loss(model, part) * (part["taken"] * world)
                loss += share.detach()
                if last:
                    self.silent = self.is_silent()
                    if self.steps_inside and self.must_not_step(loss):
                        share = share * math.nan
                self.accelerator.backward(share)
        self.step_loss = loss
        return loss

    def is_silent(self) -> bool:
        """Whether the step that was computed is to leave the weights as they are, on all ranks."""
        return False

    def must_not_step(self, loss: Tensor) -> bool:
        """Where the step is taken inside the backward pass it can only be prevented by a gradient
        that is no number: then DeepSpeed leaves weights and moments as they are."""
        return self.silent or ranks.any_of(not bool(torch.isfinite(loss)))

    def before_update(self) -> None:
        """The gradients are there and clipped: is this a step? Ranks decide together, or their
        weights part."""
        loss, self.step_loss = self.step_loss, None
        if loss is None:  # nothing was computed: the run ends
            return
        found = 2 * self.has_broken_gradient()
        found = ranks.highest(1 if not torch.isfinite(loss) else found)
        self.steps_since += 1
        self.rate = self.optimizer.param_groups[0]["lr"]
        if found or self.silent:
            if self.steps_inside:
                # DeepSpeed has left the weights; the schedule continues, as it does without it.
                self.own_optimizer.overflow = False
            else:
                self.model.zero_grad(set_to_none=True)
        dropped = found or (self.silent and self.steps_inside)
        self.dropped_norm = (math.nan if found else 0.0) if dropped else None
        if not found:
            self.loss_sum += float(loss)
            self.learned += 1
        elif self.guard is not None:
            self.guard.not_finite(self.state.global_step + 1, FOUND[found])

    def has_broken_gradient(self) -> bool:
        """Whether a gradient on this rank is NaN or infinite."""
        if self.steps_inside:
            return bool(self.own_optimizer.overflow) and not self.silent
        gradients = [own(p.grad) for p in self.model.parameters() if p.grad is not None]
        return bool(gradients) and not bool(torch.isfinite(get_total_norm(gradients)))

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """The loss is the mean over the steps since the last point that have one: NaN, never zero,
        where none has."""
        if "loss" in logs:
            total = float(ranks.summed(torch.tensor(self.loss_sum, dtype=torch.float64)))
            steps = self.learned * self.accelerator.num_processes
            logs["loss"] = total / steps if steps else math.nan
            if self.rate is not None:
                logs["learning_rate"] = self.rate
            if self.dropped_norm is not None:
                logs["grad_norm"] = self.dropped_norm
            self.loss_sum, self.learned, self.steps_since = 0.0, 0, 0
        super().log(logs, *args, **kwargs)

    def floating_point_ops(self, inputs: Any) -> int:
        return 0  # nobody reads it, and the library counts the tokens of one rectangle

    # --- weights that are split over ranks (FSDP2, DeepSpeed ZeRO 2 and 3) ---
    #
    # What is written is what one process would write: a model folder that any program loads, and
    # the optimizer's whole state. The first rank keeps a copy of the model in main memory for
    # that, which is filled from the ranks' parts when the model is saved or asked for answers.

    @property
    def splits(self) -> bool:
        return self.is_fsdp_enabled or self.is_deepspeed_enabled

    @property
    def steps_inside(self) -> bool:
        """Whether the step is taken inside the backward pass, as DeepSpeed does."""
        return self.is_deepspeed_enabled

    @property
    def own_optimizer(self) -> Any:
        """Without accelerate's wrapper."""
        return getattr(self.optimizer, "optimizer", self.optimizer)

    @contextlib.contextmanager
    def whole(self) -> Iterator[Any]:
        """The model as one, to be asked: itself where every rank has all of it; else a copy on the
        first rank, and None on the others. Every rank must enter."""
        if not self.apart:
            yield self.model
            return
        self.gather()
        if self.whole_copy is None:
            yield None
            return
        self.whole_copy.to(self.args.device).eval()
        try:
            yield self.whole_copy
        finally:
            self.whole_copy.cpu()

    @contextlib.contextmanager
    def whole_everywhere(self) -> Iterator[None]:
        """Inside, every rank holds all weights of `model` and may ask it without the others, and
        nothing is learnt. Every rank must enter."""
        with whole_weights(*([self.model_wrapped] if self.apart else [])):
            yield

    @torch.no_grad()
    def gather(self) -> None:
        kept = dict(self.whole_copy.named_parameters()) if self.whole_copy is not None else {}
        for name, parameter in self.model.named_parameters():
            value = whole_of(parameter)
            if name in kept:
                kept[name].copy_(value)

    def create_accelerator_and_postprocess(self) -> None:
        wanted = self.args.fsdp_plugin_args is not None
        splitting(wanted)
        super().create_accelerator_and_postprocess()
        if wanted and getattr(self.accelerator.state, "fsdp_plugin", None) is None:
            raise RuntimeError("accelerate was asked to split the weights and did not")

    def create_optimizer(self, model: Any = None) -> Any:
        made = super().create_optimizer(model)
        self.groups = [list(group["params"]) for group in self.optimizer.param_groups]
        return made

    def train(self, *args: Any, **kwargs: Any) -> Any:
        if self.splits and ranks.is_first():
            self.whole_copy = copy.deepcopy(self.model).cpu()
        with warnings.catch_warnings():
            # accelerate's, of torch's newer name for what we switch off
            warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
            return super().train(*args, **kwargs)

    # --- checkpoints ---

    def resume_from(self, folder: Path) -> None:
        """Continue from a checkpoint: the weights now, before they are split, and the rest when
        the training begins."""
        load_weights(self.model, folder)
        self.resumed = folder

    def begin_training(self) -> None:
        """The library has prepared everything and has not begun."""
        self.apart = self.splits
        if self.resumed is None:
            return
        saved = saved_state(self.resumed)
        self.state.global_step, self.state.log_history = saved.global_step, saved.log_history
        self.state.num_input_tokens_seen = saved.num_input_tokens_seen
        place = state_of(self.resumed)
        known = torch.load(place / OPTIMIZER, map_location="cpu", weights_only=True)
        if self.apart:
            put_state(self.own_optimizer, self.groups, known)
        else:
            self.optimizer.load_state_dict(known)
        self.lr_scheduler.load_state_dict(torch.load(place / SCHEDULER, weights_only=True))
        self.randomness = place / randomness_file()

    def save_state(self, folder: Path) -> None:
        """Adds to a checkpoint what the library leaves out; every rank must call."""
        optimizer = (
            whole_state(self.own_optimizer, self.groups)
            if self.apart
            else self.optimizer.state_dict()
        )
        place = state_in(folder)
        if self.args.should_save:
            torch.save(optimizer, place / OPTIMIZER)
            torch.save(self.lr_scheduler.state_dict(), place / SCHEDULER)
            (folder / STATE).replace(place / STATE)
            model = self.whole_copy if self.apart else self.model
            if model is not None and not isinstance(model, PeftModel):
                save_exact(model, place)
        torch.save(present_randomness(), place / randomness_file())
        self.accelerator.wait_for_everyone()

    def restore_randomness(self) -> None:
        """Before the first step of a resumed run, as after the last one before it."""
        path, self.randomness = self.randomness, None
        if path is not None and path.is_file():
            put_randomness(torch.load(path, weights_only=True))

    def save_model(self, output_dir: str | None = None, *args: Any, **kwargs: Any) -> None:
        """A normal model folder; with adapters the merged weights, and the adapters beside. Every
        rank must call."""
        if self.apart:
            self.gather()
        model = self.whole_copy if self.apart else self.model
        if model is None or not self.args.should_save:
            return
        folder = Path(output_dir or self.args.output_dir)
        whole: Any = merged(model) if isinstance(model, PeftModel) else model
        save_model(whole, self.processing_class, folder)
        if isinstance(model, PeftModel):
            save_adapter(model, folder)

    def take_weights(self, folder: Path) -> None:
        """Those of a model folder, after the training; every rank must call."""
        if not self.apart:
            load_weights(self.model, folder)
            return
        told: dict[str, Any] = {}
        if self.whole_copy is not None:
            load_weights(self.whole_copy, folder)
            told = dict(self.whole_copy.named_parameters())
        for name, parameter in self.model.named_parameters():
            put_whole(parameter, told.get(name))

    def check_weights(self) -> None:
        """Tells the guard when a weight is NaN or infinite; every rank must call."""
        broken = not all(bool(torch.isfinite(own(p)).all()) for p in self.model.parameters())
        if ranks.any_of(broken) and self.guard is not None:
            self.guard.not_finite(self.state.global_step, "a weight", again=True)


def planned_steps(args: Any, rows: int) -> tuple[int, int]:
    """(steps of an epoch, steps of the training) by the library's arguments."""
    each = max(1, -(-rows // args.per_device_train_batch_size))
    return each, args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs * each)


def saved_state(folder: Path) -> TrainerState:
    """The library's own record of a checkpoint: its step, and what was logged."""
    return TrainerState.load_from_json(str(state_of(folder) / STATE))


def tokens_seen(state: TrainerState) -> int | None:
    """Tokens trained on so far; None where the run's first steps were not counted."""
    counted = state.num_input_tokens_seen or not state.global_step
    return state.num_input_tokens_seen if counted else None


def moved(data: Any, device: torch.device) -> Any:
    """Tensors of nested lists, tuples and dictionaries on `device`."""
    if isinstance(data, Tensor):
        return data.to(device)
    if isinstance(data, dict):
        return {name: moved(value, device) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return type(data)(moved(value, device) for value in data)
    return data


def load_weights(model: nn.Module, folder: Path) -> None:
    """Put the weights of a checkpoint of this very model into it, or its adapters' back."""
    if isinstance(model, PeftModel):
        load_adapter(model, folder)
        return
    exact = list(state_of(folder).glob(EXACT))
    paths = exact or folder.glob("model*.safetensors")
    saved = {name: weight for path in paths for name, weight in load_file(path).items()}
    missing, unknown = model.load_state_dict(saved, strict=False)
    weights = model.state_dict(keep_vars=True)
    known = {id(weights[name]) for name in saved if name in weights}
    lost = [name for name in missing if id(weights[name]) not in known]  # tied ones are not
    if lost or unknown:
        raise RecipeError(
            "damaged_checkpoint",
            Fault.DATA,
            f"the checkpoint's weights are not this model's: {', '.join([*lost, *unknown][:3])}",
        )


# torch's generators of every device of this process, numpy's and Python's.


def randomness_file() -> str:
    return f"randomness_{ranks.rank()}.pt"


def present_randomness() -> dict[str, Any]:
    state: Any = np.random.get_state()
    name, keys, *rest = state
    return {
        "python": random.getstate(),
        "numpy": (name, torch.from_numpy(keys.astype(np.int64)), *rest),
        "cpu": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def put_randomness(saved: dict[str, Any]) -> None:
    random.setstate(saved["python"])
    name, keys, *rest = saved["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(saved["cpu"])
    if saved["cuda"] and len(saved["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(saved["cuda"])

"""What our trainers over TRL's share: its losses and metrics, our rows, batches and forward passes.

TRL's trainers compute a loss from what their fused output layer says of every token. They are
handed the same (`workers.rollouts.answer_tokens`), computed in rectangles of similar length, where
they would call the model. Their metrics, of one part each, are joined here by what they are means
over; TRL would count a part of two rows as much as one of thirty.
"""

import contextlib
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import PeftModel
from torch import Tensor
from transformers import PreTrainedModel

from workers import ranks
from workers.contract.events import Fault, RecipeError
from workers.models.lora import load_adapter, merged, save_adapter

# A training step that comes in parts, and checkpoints of models with adapters: for every trainer.
#
# A collator hands a step over as a list of parts (`workers.data.batches`); `compute_loss` gives
# a part's share of the step's loss, so the gradient is the step's however it was split.


class PartedSteps:
    """Mixed into a trainer class, before it and after `GuardedTrainer`."""

    def training_step(
        self, model: torch.nn.Module, inputs: list[Any], num_items_in_batch: Any = None
    ) -> Tensor:
        """Loss of the step, times the ranks: the library takes the mean over them, of losses and
        of gradients, where ours add up, as they do over the parts."""
        model.train()
        parts, world = self._prepare_input(inputs), self.accelerator.num_processes
        loss = torch.zeros((), device=self.args.device)
        for number, part in enumerate(parts, start=1):
            last = number == len(parts)
            together = contextlib.nullcontext() if last else self.accelerator.no_sync(model)
            if self._steps_inside:
                # Where `no_sync` says nothing, and the step is taken after the last part.
                self.accelerator.gradient_state._set_sync_gradients(last)
            with together:
                with self.compute_loss_context_manager():
                    share = self.compute_loss(model, part) * (part["taken"] * world)
                if last and self._steps_inside:
                    share = _or_nothing(share, loss)
                self.accelerator.backward(share)
            loss += share.detach()
        return loss

    def _prepare_input(self, data: Any) -> Any:
        """On the device, in the precision it has: DeepSpeed's would round weights and targets."""
        return moved(data, self.args.device)

    def floating_point_ops(self, inputs: Any) -> int:
        return 0  # nobody reads it, and the library counts the tokens of one rectangle

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """A normal model folder; with adapters the merged weights, and the adapters beside."""
        folder = Path(output_dir or self.args.output_dir)
        if not isinstance(self.model, PeftModel):
            super()._save(str(folder), state_dict)
        elif self.args.should_save:
            whole: PreTrainedModel = merged(self.model)
            whole.save_pretrained(folder)
            self.processing_class.save_pretrained(folder)
            save_adapter(self.model, folder)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        if isinstance(self.model, PeftModel):
            load_adapter(self.model, Path(resume_from_checkpoint))
        else:
            super()._load_from_checkpoint(resume_from_checkpoint, model)


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


def placeholder_rows() -> Dataset:
    """TRL's constructors take their own kind of rows only; ours are set afterwards."""
    return Dataset.from_list([{"prompt_ids": [0]}])


class PartedTRL(PartedSteps):
    """Mixed into a trainer of TRL, before it and after `GuardedTrainer`."""

    train_dataset: Any
    eval_dataset: Any
    row_lengths: Sequence[int] | None
    fused: bool  # whether the output layer is TRL's fused one
    weighted: dict[str, dict[str, list[tuple[float, float]]]]  # by mode and figure: value, weight

    def row_length(self, row: Any) -> int:
        """Tokens of the longest text of a row."""
        raise NotImplementedError

    def row_weight(self, row: Any) -> float:
        """How much a row counts in the held-out loss."""
        raise NotImplementedError

    def take_rows(self, train: Sequence[Any], held_out: Sequence[Any]) -> None:
        """The rows to learn from and to measure on; once, after the constructor. Raises
        `RecipeError` (no_held_out_rows) where none is left to measure on."""
        if not held_out:
            raise RecipeError(
                "no_held_out_rows",
                Fault.DATA,
                "no held-out row is left: all are longer than max_length",
            )
        self.train_dataset, self.eval_dataset = list(train), list(held_out)
        self.row_lengths = [self.row_length(row) for row in train]
        self.aux_loss_enabled = False  # of whole batches of experts, which are not computed here
        self.fused = self.args.device.type != "cpu"
        self.weighted = {mode: defaultdict(list) for mode in ("train", "eval")}

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """TRL's says nothing of the run."""

    # --- metrics ---

    @property
    def mode(self) -> str:
        return "train" if self.model.training else "eval"

    @contextlib.contextmanager
    def weighing(self, weight_of: Callable[[str], float]) -> Iterator[None]:
        """Inside, TRL notes the metrics of one part; each counts by its weight."""
        noted: dict[str, list[float]] = defaultdict(list)
        mode = self.mode
        self._metrics[mode] = noted
        with _asking_nobody(self.accelerator):
            yield
        for name, values in noted.items():
            self.weighted[mode][name].append((values[-1], weight_of(name)))

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """TRL's metrics over the rows since the last point, however they were split."""
        taken = {
            name: [point for point in points if point[1]]
            for name, points in sorted(self.weighted[self.mode].items())
        }
        sums = [
            [sum(v * w for v, w in points), sum(w for _, w in points)] for points in taken.values()
        ]
        joined = ranks.summed(torch.tensor(sums, dtype=torch.float64)).tolist()
        self._metrics[self.mode] = {
            name: [total / weight] for name, (total, weight) in zip(taken, joined, strict=True)
        }
        self.weighted[self.mode].clear()
        super().log(logs, *args, **kwargs)

    @torch.no_grad()
    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Over the held-out rows, those of similar length together."""
        rows = sorted(
            self.eval_dataset if eval_dataset is None else eval_dataset,
            key=self.row_length,
            reverse=True,
        )
        self.model.eval()
        at_once: int = self.args.eval_batch_size
        loss, total = 0.0, sum(map(self.row_weight, rows))
        for start in range(0, len(rows), at_once):
            batch = rows[start : start + at_once]
            share = sum(map(self.row_weight, batch)) / total
            for part in self._prepare_input(self.data_collator(batch)):
                with self.compute_loss_context_manager():
                    loss += float(self.compute_loss(self.model, part)) * part["taken"] * share
        loss = float(ranks.summed(torch.tensor(loss, dtype=torch.float64)))
        metrics = {f"{metric_key_prefix}_loss": loss}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(
            self.args,
            self.state,
            self.control,
            metrics,
        )
        return metrics


@contextlib.contextmanager
def _asking_nobody(accelerator: Any) -> Iterator[None]:
    """Inside, what TRL gathers of all ranks is what this one has: ranks may have as many parts as
    their rows need, and the metrics are joined when they are logged."""
    kept = {name: getattr(accelerator, name) for name in ("gather", "gather_for_metrics")}
    try:
        for name in kept:
            setattr(accelerator, name, _same)
        yield
    finally:
        for name in kept:
            delattr(accelerator, name)


def _same(tensor: Any, *_: Any, **__: Any) -> Any:
    return tensor

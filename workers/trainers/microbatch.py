"""What our trainers over TRL's share: its losses and metrics, our rows, batches and forward passes.

TRL's trainers compute a loss from what a model says of every token. They are handed the same
(`workers.rollouts.answer_tokens`), computed in rectangles of similar length, where they would call
the model. Their metrics, of one part each, are joined here by what they are means over; TRL would
count a part of two rows as much as one of thirty.
"""

import contextlib
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from workers import ranks
from workers.contract.events import Fault, RecipeError
from workers.models.forward import LOGITS_CHUNK
from workers.rollouts.answer_tokens import (
    IGNORED,
    AnswerTokens,
    Batch,
    answer_tokens,
    with_output_layer,
)
from workers.trainers.trainer_bridge import OverTRL, alone

NO_MARGIN = 1e-4  # of the implicit reward: what rounding makes of none


class PartedTRL(OverTRL):
    """Rows of texts whose answers are learnt, in parts: SFT, DPO and KTO."""

    train_dataset: Any
    eval_dataset: Any
    weighted: dict[str, dict[str, list[tuple[float, float]]]]  # by mode and figure: value, weight
    masked: tuple[torch.Tensor, int]  # tokens under the loss since the last point, and of answers

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
        self.use_own_forward()
        self.train_dataset, self.eval_dataset = list(train), list(held_out)
        self.weighted = {mode: defaultdict(list) for mode in ("train", "eval")}
        self.masked = (torch.zeros(()), 0)

    def answer_tokens(self, model: Any, batch: Batch) -> AnswerTokens:
        """What the policy says of the batch, in the precision of the run; on accelerators with few
        logits at once."""
        chunk = None if self.args.device.type == "cpu" else LOGITS_CHUNK
        with self.accelerator.autocast():
            return answer_tokens(with_output_layer(model), batch, chunk=chunk)

    # --- metrics ---

    def count_mask(self, part: dict[str, Any]) -> None:
        """Counts the tokens under the loss of a part beside its `answers`, the tokens that its
        answers have by their texts: learned are the answers and nothing else."""
        if self.model.training:
            under = sum((labels[:, 1:] != IGNORED).sum() for _, labels in part["rectangles"])
            found, answers = self.masked
            self.masked = (found.to(self.args.device) + under, answers + part["answers"])

    @property
    def mode(self) -> str:
        return "train" if self.model.training else "eval"

    @contextlib.contextmanager
    def weighing(self, weight_of: Callable[[str], float]) -> Iterator[None]:
        """Inside, TRL notes the metrics of one part; each counts by its weight."""
        with alone(self):
            yield
        for name, value in self.trl_metrics().items():
            self.weighted[self.mode][name].append((value, weight_of(name)))

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """TRL's metrics over the rows since the last point, however they were split."""
        mode = self.mode
        taken = {
            name: [point for point in points if point[1]]
            for name, points in sorted(self.weighted[mode].items())
        }
        sums = [
            [sum(v * w for v, w in points), sum(w for _, w in points)] for points in taken.values()
        ]
        joined = ranks.summed(torch.tensor(sums, dtype=torch.float64)).tolist()
        prefix = "" if mode == "train" else "eval_"
        for name, (total, weight) in zip(taken, joined, strict=True):
            if weight:
                logs[prefix + name] = total / weight
        self.weighted[mode].clear()
        found, answers = self.masked
        if mode == "train" and "loss" in logs:
            counted = ranks.summed(torch.tensor([float(found), answers], dtype=torch.float64))
            if counted[1]:
                logs["masks/answer_share"] = float(counted[0] / counted[1])
            self.masked = (torch.zeros(()), 0)
        chosen, rejected = (logs.get(f"{prefix}rewards/{of}") for of in ("chosen", "rejected"))
        if chosen is not None and rejected is not None:
            logs[f"{prefix}rewards/margins"] = chosen - rejected
        # A policy that still is its reference prefers neither answer: that is no accuracy of 0,
        # from which a curve could rise.
        margin = logs.get("eval_rewards/margins", math.inf)
        if not self.state.global_step and abs(margin) < NO_MARGIN:
            logs.pop("eval_rewards/accuracies", None)
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
        at_once: int = self.args.per_device_eval_batch_size
        loss, total = 0.0, sum(map(self.row_weight, rows))
        for start in range(0, len(rows), at_once):
            batch = rows[start : start + at_once]
            share = sum(map(self.row_weight, batch)) / total
            for part in self.parts_of(self.data_collator(batch)):
                with self.compute_loss_context_manager():
                    found: Any = self.compute_loss(self.model, part)
                loss += float(found) * part["taken"] * share
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

"""TRL's SFTTrainer with our forward passes: its loss and figures, our rows and batches.

Left to itself it projects prompts and padding on the vocabulary too (on processors), which costs
more than twice the time (docs/sft.md), and pads every row of a step to the longest.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase
from trl import SFTConfig, SFTTrainer

from workers.config.training import SFTSettings
from workers.data.encoding import Encoded
from workers.layouts.shares import ALONE, Shares
from workers.rollouts.answer_tokens import (
    Batch,
    answer_start,
    answer_tokens,
    batch_of,
    with_output_layer,
)
from workers.trainers.parted_trl import PartedTRL, placeholder_rows
from workers.trainers.trainer_bridge import GuardedTrainer


def answer_length(row: Encoded) -> int:
    """Tokens that the loss is on."""
    return len(row.ids) - answer_start(row)


class StepCollator:
    """This rank's rows of one step as parts of at most the budget's tokens; `total` counts the
    answer tokens of the whole step."""

    def __init__(self, settings: SFTSettings, pad_id: int, shares: Shares = ALONE) -> None:
        self.settings = settings
        self.pad_id = pad_id
        self.shares = shares

    def __call__(self, rows: Sequence[Encoded]) -> list[dict[str, Any]]:
        parts = self.shares.parts(
            [(len(row.ids),) for row in rows],
            budget=self.settings.max_tokens_per_batch,
            at_least=self.settings.gradient_accumulation,
        )
        total = torch.tensor(sum(map(answer_length, rows)))
        built = []
        for part in parts:
            batch, _ = batch_of([rows[i] for i in part.rows], self.pad_id, self.shares.rectangles)
            built.append(
                {
                    "rectangles": batch.rectangles,
                    "counts": batch.counts,
                    "total": total,
                    "taken": float(part.counts),
                }
            )
        return built


class DemonstrationTrainer(GuardedTrainer, PartedTRL, SFTTrainer):
    """Cross-entropy on the tokens of the answers, every token counting the same."""

    def __init__(
        self,
        *,
        model: Any,
        args: SFTConfig,
        settings: SFTSettings,
        train_rows: Sequence[Encoded],
        eval_rows: Sequence[Encoded],
        tokenizer: PreTrainedTokenizerBase,
        callbacks: list[Any] | None = None,
        shares: Shares = ALONE,
    ) -> None:
        args.dataset_kwargs = {"skip_prepare_dataset": True}
        args.average_tokens_across_devices = False  # our collator counts those of all ranks
        super().__init__(
            model=model,
            args=args,
            train_dataset=placeholder_rows(),
            eval_dataset=placeholder_rows(),
            processing_class=tokenizer,
            data_collator=StepCollator(settings, tokenizer.pad_token_id, shares),
            callbacks=callbacks,
        )
        self.take_rows(train_rows, eval_rows)
        # Steps of rows alike in length would weigh a short answer's tokens above a long one's, for
        # the loss is a mean over the step's tokens. Rectangles inside a step save the padding too.
        self.row_lengths = None

    def row_length(self, row: Encoded) -> int:
        return len(row.ids)

    def row_weight(self, row: Encoded) -> float:
        return float(answer_length(row))

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Tensor:
        """A part's share of the step's loss, by TRL's formula."""
        batch = Batch(inputs["rectangles"], inputs["counts"])
        tokens = answer_tokens(with_output_layer(model), batch, fused=self.fused)
        read = {"attention_mask": tokens.label_mask.long()}
        with self.weighing(lambda name: inputs["taken"] * float(batch.counts.sum())):
            return super().compute_loss(
                lambda **_: tokens, read, num_items_in_batch=inputs["total"]
            )

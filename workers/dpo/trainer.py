"""TRL's DPOTrainer with our forward passes: its losses and figures, our batches and reference.

The losses, their weights and the figures are TRL's `_compute_loss`, unchanged: it is handed the
log-probabilities of the answers' tokens where it would call the model itself. Left to itself it
projects prompts and padding on the vocabulary too (on processors), pads every pair of a step to the
longest, and takes as the reference what it finds at the path in the policy's configuration, or a
copy of the adapters as they are when it is built: trained ones, for who goes on from saved ones.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor
from transformers import PreTrainedTokenizerBase
from trl import DPOConfig, DPOTrainer
from trl.trainer.utils import add_fused_lm_head

from workers.config.training import DPOSettings
from workers.dpo.pairs import Pair, StepCollator
from workers.dpo.reference import Precomputed, sequence_logprobs
from workers.layouts.shares import ALONE, Shares
from workers.models.reference import Reference
from workers.rollouts.answer_tokens import (
    AnswerTokens,
    Batch,
    answer_tokens,
    with_output_layer,
)
from workers.trainers.parted_trl import PartedTRL, placeholder_rows
from workers.trainers.trainer_bridge import GuardedTrainer

# Figures that are means over tokens; the others are means over pairs.
_CHOSEN, _REJECTED = ("logits/chosen", "mean_token_accuracy"), ("logits/rejected",)


def loss_arguments(settings: DPOSettings) -> dict[str, Any]:
    """Which of TRL's losses, and how they are added up."""
    also = ["sft"] if settings.sft_weight else []
    return {
        "loss_type": [settings.loss_type, *also],
        "loss_weights": [1.0, settings.sft_weight] if also else None,
        "beta": settings.beta,
        "label_smoothing": settings.label_smoothing,
        "discopop_tau": settings.discopop_tau,
    }


class PairTrainer(GuardedTrainer, PartedTRL, DPOTrainer):
    """Pairs by length, steps in parts, the reference that it is given and no other."""

    reference: Reference | None = None
    precomputed: Precomputed | None = None
    _built = False
    _fsdp = False

    def __init__(
        self,
        *,
        model: Any,
        args: DPOConfig,
        settings: DPOSettings,
        train_pairs: Sequence[Pair],
        eval_pairs: Sequence[Pair],
        tokenizer: PreTrainedTokenizerBase,
        callbacks: list[Any] | None = None,
        reference: Reference | None = None,
        precomputed: Precomputed | None = None,
        shares: Shares = ALONE,
    ) -> None:
        """`reference` is asked along the way; with `precomputed` the pairs have its values."""
        args.precompute_ref_log_probs = True  # so that it neither loads nor keeps a reference
        super().__init__(
            model=model,
            args=args,
            train_dataset=placeholder_rows(),
            eval_dataset=placeholder_rows(),
            processing_class=tokenizer,
            data_collator=StepCollator(settings, tokenizer.pad_token_id, shares),
            callbacks=callbacks,
        )
        if isinstance(self.model, PeftModel):
            self.model.delete_adapter("ref")  # a copy of adapters is not our reference
        self._built = True
        self.take_rows(train_pairs, eval_pairs)
        self.reference, self.precomputed = reference, precomputed
        if self.fused and reference is not None and reference.adapted is None:
            add_fused_lm_head(reference.model)

    @property
    def is_fsdp_enabled(self) -> bool:
        """Not told while TRL builds: it would load a reference of its own for FSDP."""
        return self._fsdp and self._built

    @is_fsdp_enabled.setter
    def is_fsdp_enabled(self, value: bool) -> None:
        self._fsdp = value

    def _prepare_dataset(self, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        return dataset

    def _precompute_ref_logps(self, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        return dataset

    def row_length(self, row: Pair) -> int:
        return row.longest

    def row_weight(self, row: Pair) -> float:
        return 1.0

    # --- loss ---

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Tensor:
        """A part's share of the step's loss, by TRL's formulas."""
        batch, places = Batch(inputs["rectangles"], inputs["counts"]), inputs["places"]
        tokens = answer_tokens(with_output_layer(model), batch, fused=self.fused).rows(places)
        reference = inputs["reference"]
        if reference is None:
            if self.reference is None:
                raise RuntimeError("neither a reference nor its values are at hand")
            reference = sequence_logprobs(self.reference, batch, fused=self.fused)[places]
            reference = reference.view(2, -1)
        # TRL drops each row's first column, for nothing tells a text's first token.
        answers = torch.nn.functional.pad(tokens.label_mask.long(), (1, 0))
        read = {
            "input_ids": answers,
            "attention_mask": answers,
            "completion_mask": answers,
            "ref_chosen_logps": reference[0],
            "ref_rejected_logps": reference[1],
        }
        return inputs["pair_share"] * self._trl_loss(tokens, read, inputs)

    def _trl_loss(self, tokens: AnswerTokens, read: dict[str, Tensor], part: dict[str, Any]) -> Any:
        """TRL's loss of the part alone. Its mean over tokens (`sft`) weighs as many tokens as the
        part has of the step's, the means over pairs as many pairs."""
        weights = self.loss_weights
        by_token = part["token_share"] / part["pair_share"]
        self.loss_weights = [
            weight * (by_token if kind == "sft" else 1.0)
            for kind, weight in zip(self.loss_types, weights, strict=True)
        ]
        chosen, rejected = (float(mask.sum()) for mask in tokens.label_mask.chunk(2))
        over_tokens = dict.fromkeys(_CHOSEN, chosen) | dict.fromkeys(_REJECTED, rejected)
        over_tokens["entropy"] = chosen + rejected
        pairs = len(tokens.label_mask) / 2
        try:
            with self.weighing(lambda name: part["taken"] * over_tokens.get(name, pairs)):
                return self._compute_loss(lambda **_: tokens, read, return_outputs=False)
        finally:
            self.loss_weights = weights

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        super()._save(output_dir, state_dict)
        if self.precomputed is not None and self.args.should_save:
            self.precomputed.save(Path(output_dir or self.args.output_dir))

"""TRL's DPOTrainer with our forward passes: its losses and figures, our batches and reference.

The losses, their weights and the figures are TRL's `_compute_loss`, unchanged: it is handed the
log-probabilities of the answers' tokens where it would call the model itself. Left to itself it
projects prompts and padding on the vocabulary too (on processors), pads every pair of a step to the
longest, and takes as the reference what it finds at the path in the policy's configuration, or a
copy of the adapters as they are on a resumed run.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import PeftModel
from torch import Tensor
from transformers import PreTrainedTokenizerBase
from trl import DPOConfig, DPOTrainer
from trl.trainer.utils import add_fused_lm_head

from workers.dpo.pairs import Pair, StepCollator
from workers.dpo.reference import Precomputed, sequence_logprobs
from workers.recipes.parted_steps import PartedSteps
from workers.recipes.settings.preference import DPOSettings
from workers.recipes.trainer_bridge import GuardedTrainer
from workers.reference import Reference
from workers.rollouts.answer_tokens import AnswerTokens, Batch, answer_tokens

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


class PairTrainer(GuardedTrainer, PartedSteps, DPOTrainer):
    """Pairs by length, steps in parts, the reference that it is given and no other."""

    reference: Reference | None = None
    precomputed: Precomputed | None = None

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
    ) -> None:
        """`reference` is asked along the way; with `precomputed` the pairs have its values."""
        nothing = Dataset.from_list([{"prompt_ids": [0]}])  # TRL takes its own kind of rows only
        args.precompute_ref_log_probs = True  # so that it neither loads nor keeps a reference
        super().__init__(
            model=model,
            args=args,
            train_dataset=nothing,
            eval_dataset=nothing,
            processing_class=tokenizer,
            data_collator=StepCollator(settings, tokenizer.pad_token_id),
            callbacks=callbacks,
        )
        if isinstance(self.model, PeftModel):
            self.model.delete_adapter("ref")  # a copy of adapters is not our reference
        self.aux_loss_enabled = False  # its figure is of whole batches, which are not computed here
        self.train_dataset, self.eval_dataset = list(train_pairs), list(eval_pairs)
        self.row_lengths = [pair.longest for pair in train_pairs]
        self.reference, self.precomputed = reference, precomputed
        self.fused = self.args.device.type != "cpu"
        if self.fused and reference is not None and reference.adapted is None:
            add_fused_lm_head(reference.model)
        self.weighted: dict[str, dict[str, list[tuple[float, float]]]] = {
            mode: defaultdict(list) for mode in ("train", "eval")
        }

    def _prepare_dataset(self, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        return dataset

    def _precompute_ref_logps(self, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        return dataset

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """TRL's says nothing of the run."""

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
        tokens = answer_tokens(_with_head(model), batch, fused=self.fused).rows(places)
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
        mode = "train" if self.model.training else "eval"
        weights, self._metrics[mode] = self.loss_weights, defaultdict(list)
        by_token = part["token_share"] / part["pair_share"]
        self.loss_weights = [
            weight * (by_token if kind == "sft" else 1.0)
            for kind, weight in zip(self.loss_types, weights, strict=True)
        ]
        try:
            loss = self._compute_loss(lambda **_: tokens, read, return_outputs=False)
        finally:
            self.loss_weights = weights
        chosen, rejected = (mask.sum().item() for mask in tokens.label_mask.chunk(2))
        for name, values in self._metrics[mode].items():
            weight = float(len(tokens.label_mask) // 2)
            if name == "entropy":
                weight = chosen + rejected
            elif name in _CHOSEN + _REJECTED:
                weight = chosen if name in _CHOSEN else rejected
            self.weighted[mode][name].append((values[-1], weight))
        return loss

    # --- figures ---

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """TRL's figures over the pairs or tokens since the last point, however they were split."""
        mode = "train" if self.model.training else "eval"
        self._metrics[mode] = {
            name: [sum(v * w for v, w in points) / sum(w for _, w in points)]
            for name, points in self.weighted[mode].items()
        }
        self.weighted[mode].clear()
        super().log(logs, start_time)

    @torch.no_grad()
    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Over the held-out pairs, those of similar length together."""
        pairs: Sequence[Pair] = self.eval_dataset if eval_dataset is None else eval_dataset
        self.model.eval()
        order = sorted(range(len(pairs)), key=lambda i: -pairs[i].longest)
        rows, loss = self.args.eval_batch_size, 0.0
        for start in range(0, len(order), rows):
            batch = [pairs[i] for i in order[start : start + rows]]
            for part in self._prepare_input(self.data_collator(batch)):
                with self.compute_loss_context_manager():
                    loss += float(self.compute_loss(self.model, part)) * len(batch) / len(pairs)
        figures = {f"{metric_key_prefix}_loss": loss}
        self.log(figures)
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, figures
        )
        return figures

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        super()._save(output_dir, state_dict)
        if self.precomputed is not None and self.args.should_save:
            self.precomputed.save(Path(output_dir or self.args.output_dir))


def _with_head(model: torch.nn.Module) -> torch.nn.Module:
    """The model as the trainer passes it, or what distributed training has wrapped: the wrapper
    must be called, but only the model inside knows its output layer."""
    if not hasattr(model, "get_output_embeddings"):
        model.get_output_embeddings = model.module.get_output_embeddings  # type: ignore[union-attr]
    return model

"""TRL's KTOTrainer with our forward passes: its losses and metrics, our batches and reference.

As `workers.trainers.dpo` does for pairs. KTO measures an answer from z₀, the policy's mean
divergence from its reference, estimated on the answers of a step behind prompts that they do not
belong to. TRL takes the mean over what is computed at once; here it is the step's, whatever parts
or ranks the step is split into, so splitting changes nothing.

Source: Ethayarajh et al. 2024 (KTO), equations 7 and 8.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from datasets import Dataset, IterableDataset
from torch import Tensor
from transformers import PreTrainedTokenizerBase
from trl import KTOConfig, KTOTrainer

from workers import ranks
from workers.config.training import KTOSettings
from workers.data.batches import Encoded, LengthGroupedSampler, PairEncoder
from workers.data.snapshot import JudgedAnswer
from workers.layouts.shards import ALONE, Shares
from workers.models.forward import Reference
from workers.rollouts.answer_tokens import (
    AnswerTokens,
    Batch,
    answer_length,
    batch_of,
    tokens_of_answers,
)
from workers.trainers.dpo import no_reference, sequence_logprobs
from workers.trainers.guarded_trainer import planned_steps
from workers.trainers.microbatch import PartedTRL
from workers.trainers.trainer_bridge import BelowTRL

KL = "kto/kl"  # TRL's `kl`, which elsewhere is the divergence of the policy's own answers
# What the metrics of a label are means over: its answers, or their tokens.
_OF_LABEL = {"chosen": True, "rejected": False}
_PER_ANSWER, _PER_TOKEN = ("rewards/", "logps/"), ("logits/",)


@dataclass(frozen=True, slots=True)
class Judged:
    """The conversation of a row as token ids, and whether its answer is desirable."""

    text: Encoded
    desirable: bool

    @property
    def prompt(self) -> list[int]:
        return self.text.ids[: self.text.prompt_length]


def encode_answers(
    tokenizer: PreTrainedTokenizerBase, rows: Sequence[JudgedAnswer], max_length: int
) -> list[Judged]:
    """Rows cut at the end to `max_length`; left out are those with no token of an answer left."""
    encode = PairEncoder(tokenizer, max_length=max_length)
    texts = [(encode(row.prompt, row.response), row.desirable) for row in rows]
    return [Judged(text, good) for text, good in texts if answer_length(text) > 0]


def balanced_weight(rows: Sequence[Judged], settings: KTOSettings) -> float:
    """The weight of desirable answers that is set, or the one with which both labels count the same
    in sum: the lower end of the range of the paper's equation 8 (1 to 4/3)."""
    if settings.desirable_weight is not None:
        return settings.desirable_weight
    desirable = sum(row.desirable for row in rows)
    return settings.undesirable_weight * (len(rows) - desirable) / max(1, desirable) or 1.0


def mismatched(rows: Sequence[Judged], max_length: int) -> list[tuple[Encoded, bool]]:
    """Behind each row's prompt the answer of the row before it, as TRL pairs them, passing over
    answers to the same prompt, which are no mismatch; and whether there is such an answer."""
    found = []
    for i, row in enumerate(rows):
        others = (rows[i - back] for back in range(1, len(rows)))
        other = next((one for one in others if one.prompt != row.prompt), None)
        told = row.text.ids if other is None else row.prompt + other.text.ids[len(other.prompt) :]
        text = Encoded(told[:max_length], row.text.prompt_length)
        found.append((text, other is not None and answer_length(text) > 0))
    return [(text if known else rows[i].text, known) for i, (text, known) in enumerate(found)]


class AnswerCollator:
    """This rank's answers of one step as parts of at most the budget's tokens. A part holds the
    `rectangles` and `counts` of its n texts and their `places` [n], the same of the mismatched
    texts under `other`, with `known` [n] where there is one; `label` [n]; and the part's share of
    the step's answers."""

    def __init__(
        self, settings: KTOSettings, max_length: int, pad_id: int, shares: Shares = ALONE
    ) -> None:
        self.settings = settings
        self.max_length = max_length
        self.pad_id = pad_id
        self.shares = shares

    def __call__(self, rows: Sequence[Judged]) -> list[dict[str, Any]]:
        others = mismatched(rows, self.max_length)
        parts = self.shares.parts(
            [
                (max(len(row.text.ids), len(text.ids)),)
                for row, (text, _) in zip(rows, others, strict=True)
            ],
            budget=self.settings.max_tokens_per_batch,
            at_least=self.settings.gradient_accumulation,
        )
        return [
            self._part([rows[i] for i in part.rows], [others[i] for i in part.rows])
            | {"taken": float(part.counts), "share": len(part.rows) / len(rows)}
            for part in parts
        ]

    def _part(
        self, rows: Sequence[Judged], others: Sequence[tuple[Encoded, bool]]
    ) -> dict[str, Any]:
        own = self._batch([row.text for row in rows])
        return own | {
            "label": torch.tensor([row.desirable for row in rows]),
            "other": self._batch([text for text, _ in others]),
            "known": torch.tensor([float(known) for _, known in others]),
        }

    def _batch(self, texts: Sequence[Encoded]) -> dict[str, Any]:
        batch, places = batch_of(texts, self.pad_id, self.shares.rectangles)
        return {
            "rectangles": batch.rectangles,
            "counts": batch.counts,
            "answers": tokens_of_answers(texts),
            "places": torch.tensor(places),
        }


class AnswerTrainer(PartedTRL, KTOTrainer, BelowTRL):
    """Answers by length, steps in parts, the reference that it is given and no other."""

    def __init__(
        self,
        *,
        model: Any,
        args: KTOConfig,
        settings: KTOSettings,
        train_answers: Sequence[Judged],
        eval_answers: Sequence[Judged],
        tokenizer: PreTrainedTokenizerBase,
        reference: Reference,
        callbacks: list[Any] | None = None,
        shares: Shares = ALONE,
    ) -> None:
        _, args.max_steps = planned_steps(args, len(train_answers))
        # Gives a step's parts, where the library's own give one batch.
        collator: Any = AnswerCollator(
            settings, int(args.max_length or 0), tokenizer.pad_token_id, shares
        )
        super().__init__(
            model=model,
            ref_model=no_reference(),
            args=args,
            train_dataset=_no_answers(),
            eval_dataset=_no_answers(),
            processing_class=tokenizer,
            data_collator=collator,
            callbacks=callbacks,
        )
        self.ref_model, self.precompute_ref_logps = None, True  # its values come with the rows
        self.take_rows(train_answers, eval_answers)
        self.reference = reference

    def train_order(self) -> LengthGroupedSampler:
        lengths = [self.row_length(row) for row in self.train_dataset]
        size = self.args.per_device_train_batch_size
        return LengthGroupedSampler(lengths, size, seed=self.args.seed)

    def row_length(self, row: Judged) -> int:
        return len(row.text.ids)

    def row_tokens(self, row: Judged) -> int:
        return len(row.text.ids)

    def row_weight(self, row: Judged) -> float:
        return 1.0

    # --- loss ---

    def parts_of(self, inputs: Any) -> list[dict[str, Any]]:
        """The parts of a step, each with the step's z₀."""
        parts = super().parts_of(inputs)
        divergence = self.divergence(parts) if self.calculate_KL else None
        return [part | {"divergence": divergence} for part in parts]

    @torch.no_grad()
    def divergence(self, parts: Sequence[dict[str, Any]]) -> Tensor:
        """z₀ of a step before it is cut at 0: mean of log π − log π_ref over its mismatched
        answers, nats per sequence, []; 0 where it has none. Every rank must ask."""
        total = torch.zeros(2, device=self.args.device)
        for part in parts:
            batch, places = _batch_in(part["other"])
            with self.compute_loss_context_manager():
                tokens = self.answer_tokens(self.model, batch)
                ratio = tokens.log_probs.sum(1) - sequence_logprobs(self.reference, batch)
            known = part["known"] * part["taken"]
            total += torch.stack([(ratio[places] * known).sum(), known.sum()])
        nats, answers = ranks.summed(total)
        return nats / answers.clamp(min=1.0)

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Tensor:
        """A part's share of the step's loss, by TRL's formulas."""
        batch, places = _batch_in(inputs)
        self.count_mask(inputs)
        tokens = self.answer_tokens(model, batch).rows(places)
        # TRL drops each row's first column, for nothing tells a text's first token.
        answers = torch.nn.functional.pad(tokens.label_mask.long(), (1, 0))
        read = {
            "input_ids": answers,
            "attention_mask": answers,
            "completion_mask": answers,
            "label": inputs["label"],
            "ref_logps": sequence_logprobs(self.reference, batch)[places],
        }
        divergence = inputs["divergence"]
        if divergence is not None:
            # One mismatched answer of one token, for which the policy and the reference differ by
            # the step's z₀. Its first id is 1, which tells it from `answers`, whose first are 0.
            one = answers.new_ones(1, 2)
            read |= {"KL_input_ids": one, "KL_attention_mask": one, "KL_completion_mask": one}
            read["ref_KL_logps"] = torch.zeros_like(divergence).view(1)

        def says(input_ids: Tensor, **_: Any) -> Any:
            if int(input_ids[0, 0]) == 0:
                return tokens
            assert divergence is not None  # noqa: S101 — TRL asks for nothing else
            return SimpleNamespace(log_probs=divergence.view(1, 1))

        weights = _weights(tokens, inputs["label"])
        if divergence is None:
            del weights[KL]
        for name in weights:  # all ranks and parts note the same metrics
            self.weighted[self.mode][name].append((0.0, 0.0))
        with self.weighing(lambda name: inputs["taken"] * weights.get(name, 0.0)):
            loss: Any = super().compute_loss(says, read)
        return inputs["share"] * loss

    def trl_metrics(self) -> dict[str, float]:
        found = super().trl_metrics()
        return {KL if name == "kl" else name: value for name, value in found.items()}


def _weights(tokens: AnswerTokens, label: Tensor) -> dict[str, float]:
    """How much a part counts in each of TRL's metrics: by the answers or tokens that they are means
    over. The margin of a part counts nothing: a step's is the difference of two of its means, which
    are there though a part, or a rank, has one label alone."""
    found = {"entropy": float(tokens.label_mask.sum()), KL: float(len(label))}
    found["rewards/margins"] = 0.0
    for name, desirable in _OF_LABEL.items():
        own = label == desirable
        found |= {f"{kind}{name}": float(own.sum()) for kind in _PER_ANSWER}
        found |= {f"{kind}{name}": float(tokens.label_mask[own].sum()) for kind in _PER_TOKEN}
    return found


def _batch_in(part: dict[str, Any]) -> tuple[Batch, Tensor]:
    return Batch(part["rectangles"], part["counts"]), part["places"]


def _no_answers() -> IterableDataset:
    """For TRL's constructor, which would encode rows in its own way; ours are set afterwards."""
    words = [{"role": "user", "content": ""}]
    row = {"prompt": words, "completion": words, "label": True}
    return Dataset.from_list([row]).to_iterable_dataset()

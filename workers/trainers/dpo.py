"""TRL's DPOTrainer with our forward passes: its losses and metrics, our batches and reference.

The losses, their weights and the metrics are those of TRL's `compute_loss`: it is handed the
log-probabilities of the answers' tokens where it would call the model itself. Left to itself it
projects prompts and padding on the vocabulary too (on processors), pads every pair of a step to the
longest, and takes as the reference what it finds at the path in the policy's configuration, or a
copy of the adapters as they are when it is built: trained ones, for who continues from saved ones.
"""

import contextlib
import hashlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from datasets import Dataset, IterableDataset
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from trl import DPOConfig, DPOTrainer

from workers.artifacts import state_in, state_of
from workers.config.training import REFERENCE_FREE, DPOSettings
from workers.data.batches import Encoded, LengthGroupedSampler, PairEncoder
from workers.data.snapshot import Preference
from workers.layouts.shards import ALONE, Shares
from workers.models.forward import LOGITS_CHUNK, Reference
from workers.rollouts.answer_tokens import (
    AnswerTokens,
    Batch,
    answer_length,
    answer_tokens,
    batch_of,
    tokens_of_answers,
)
from workers.trainers.guarded_trainer import planned_steps
from workers.trainers.microbatch import PartedTRL
from workers.trainers.trainer_bridge import BelowTRL

# The pairs of a DPO run as token ids, and a step of them as parts.


@dataclass(frozen=True, slots=True)
class Pair:
    """Both conversations of a row; `reference` holds log π_ref of both answers, nats per sequence,
    chosen first, where it was computed beforehand."""

    chosen: Encoded
    rejected: Encoded
    reference: tuple[float, float] | None = None

    @property
    def lengths(self) -> tuple[int, int]:
        return len(self.chosen.ids), len(self.rejected.ids)

    @property
    def longest(self) -> int:
        return max(self.lengths)


def encode_pairs(
    tokenizer: PreTrainedTokenizerBase, rows: Sequence[Preference], max_length: int
) -> list[Pair]:
    """Rows cut at the end to `max_length`; left out are those with no token of an answer left.

    Both answers begin at the same token, as in TRL: where a token merges across the end of the
    prompt in one of them, that end is compared in both.
    """
    encode = PairEncoder(tokenizer, max_length=max_length)
    pairs = []
    for row in rows:
        chosen, rejected = encode(row.prompt, row.chosen), encode(row.prompt, row.rejected)
        border = min(chosen.prompt_length, rejected.prompt_length)
        both = replace(chosen, prompt_length=border), replace(rejected, prompt_length=border)
        if all(answer_length(side) > 0 for side in both):
            pairs.append(Pair(*both))
    return pairs


class StepCollator:
    """This rank's pairs of one step as parts of at most the budget's tokens. A part holds the
    `batch` of its distinct texts, the `places` [2n] of the chosen then the rejected answers among
    its rows, the part's share of the step's pairs and of its chosen answers' tokens, and [2, n]
    `reference` log-probabilities where all pairs have them."""

    def __init__(self, settings: DPOSettings, pad_id: int, shares: Shares = ALONE) -> None:
        self.settings = settings
        self.pad_id = pad_id
        self.shares = shares

    def __call__(self, pairs: Sequence[Pair]) -> list[dict[str, Any]]:
        parts = self.shares.parts(
            [pair.lengths for pair in pairs],
            budget=self.settings.max_tokens_per_batch,
            at_least=self.settings.gradient_accumulation,
        )
        tokens = _chosen_tokens(pairs)
        return [
            self._part([pairs[i] for i in part.rows], len(pairs), tokens, taken=float(part.counts))
            for part in parts
        ]

    def _part(
        self, pairs: Sequence[Pair], total: int, tokens: int, *, taken: float
    ) -> dict[str, Any]:
        texts = [pair.chosen for pair in pairs] + [pair.rejected for pair in pairs]
        keys = [(tuple(text.ids), text.prompt_length) for text in texts]
        distinct = dict(zip(keys, texts, strict=True))
        batch, rows = batch_of(list(distinct.values()), self.pad_id, self.shares.rectangles)
        row_of = dict(zip(distinct, rows, strict=True))
        known = [pair.reference for pair in pairs if pair.reference is not None]
        return {
            "rectangles": batch.rectangles,
            "counts": batch.counts,
            "answers": tokens_of_answers(list(distinct.values())),
            "places": torch.tensor([row_of[key] for key in keys]),
            "taken": taken,
            "pair_share": len(pairs) / total,
            "token_share": _chosen_tokens(pairs) / tokens,
            "reference": torch.tensor(known).T if len(known) == len(pairs) else None,
        }


def _chosen_tokens(pairs: Sequence[Pair]) -> int:
    return sum(answer_length(pair.chosen) for pair in pairs)


# What the reference thinks of the pairs: asked along the way, or once for all of them.
#
# Computed beforehand, the values belong to one reference and one set of pairs. They ride in every
# checkpoint under a key made of both, so a resumed run reads them back instead of computing them
# again, and never mixes those of another reference or of other data.

FILE = "reference_logprobs.safetensors"
TOKENS_AT_ONCE = 16_384  # without a budget of the run's own


@torch.no_grad()
def sequence_logprobs(reference: Reference, batch: Batch) -> Tensor:
    """log π_ref of every answer of the batch: [N], nats per sequence."""
    chunk = None if batch.counts.device.type == "cpu" else LOGITS_CHUNK
    with reference.weights() as model:
        return answer_tokens(model, batch, chunk=chunk).log_probs.sum(1)


def reference_key(
    reference: Reference, splits: Mapping[str, Sequence[Pair]], precision: str
) -> str:
    """Identity of the values: the reference's weights, every token of every pair in order, and the
    precision they are computed in."""
    digest = hashlib.sha256(f"{reference.sha256} {precision}".encode())
    for name, pairs in sorted(splits.items()):
        digest.update(f"{name} {len(pairs)}".encode())
        for pair in pairs:
            for side in (pair.chosen, pair.rejected):
                digest.update(f"{side.prompt_length}:{side.ids}".encode())
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Precomputed:
    """log π_ref by split: [n, 2] nats per sequence, chosen first; `key` says of what."""

    key: str
    values: dict[str, Tensor]

    def save(self, folder: Path) -> None:
        save_file(self.values, folder / FILE, metadata={"key": self.key})

    @classmethod
    def load(cls, folder: Path, key: str) -> "Precomputed | None":
        """Those of a checkpoint, if they are of this very reference and of these very pairs."""
        path = state_of(folder) / FILE
        if not path.is_file():
            return None
        with safe_open(path, framework="pt") as file:
            if (file.metadata() or {}).get("key") != key:
                return None
            return cls(key, {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118

    def joined(self, splits: Mapping[str, Sequence[Pair]]) -> dict[str, list[Pair]]:
        """The pairs with their values."""
        return {
            name: [
                replace(pair, reference=(chosen, rejected))
                for pair, (chosen, rejected) in zip(pairs, self.values[name].tolist(), strict=True)
            ]
            for name, pairs in splits.items()
        }


def precompute(
    reference: Reference,
    splits: Mapping[str, Sequence[Pair]],
    key: str,
    *,
    pad_id: int,
    device: torch.device,
    budget: int | None,
    autocast: contextlib.AbstractContextManager[None],
) -> Precomputed:
    """One forward pass over every distinct text."""
    with autocast:
        values = logprobs_of(
            lambda batch: sequence_logprobs(reference, batch),
            splits,
            pad_id=pad_id,
            device=device,
            budget=budget,
        )
    return Precomputed(key, values)


def logprobs_of(
    ask: Callable[[Batch], Tensor],
    splits: Mapping[str, Sequence[Pair]],
    *,
    pad_id: int,
    device: torch.device,
    budget: int | None,
) -> dict[str, Tensor]:
    """By split [n, 2], chosen first, of what `ask` says of the texts of a batch: every distinct
    text once, those of similar length together."""
    texts = {
        (tuple(side.ids), side.prompt_length): side
        for pairs in splits.values()
        for pair in pairs
        for side in (pair.chosen, pair.rejected)
    }
    keys = sorted(texts, key=lambda k: (-len(k[0]), k))
    found: dict[tuple[tuple[int, ...], int], float] = {}
    for group in _groups(keys, budget or TOKENS_AT_ONCE):
        batch, places = batch_of([texts[k] for k in group], pad_id)
        values = ask(batch.to(device))
        found.update(zip(group, values[places].tolist(), strict=True))
    return {
        name: torch.tensor(
            [
                [found[tuple(side.ids), side.prompt_length] for side in (p.chosen, p.rejected)]
                for p in pairs
            ]
        ).reshape(-1, 2)
        for name, pairs in splits.items()
    }


def _groups(
    keys: Sequence[tuple[tuple[int, ...], int]], budget: int
) -> Iterator[list[tuple[tuple[int, ...], int]]]:
    """Longest first, each group of at most `budget` tokens, padding included."""
    start = 0
    while start < len(keys):
        rows = max(1, budget // len(keys[start][0]))
        yield list(keys[start : start + rows])
        start += rows


@contextlib.contextmanager
def on_device(reference: Reference, device: torch.device) -> Iterator[Reference]:
    """A reference that rests in main memory, on the accelerator for as long as it is asked."""
    home = reference.model.device
    if home == device:
        yield reference
        return
    model: torch.nn.Module = reference.model
    model.to(device)
    try:
        yield reference
    finally:
        model.to(home)


# Metrics that are means over tokens; the others are means over pairs.
_CHOSEN, _REJECTED = ("logits/chosen", "mean_token_accuracy"), ("logits/rejected",)


def loss_arguments(settings: DPOSettings) -> dict[str, Any]:
    """Which of TRL's losses, and how they are added up. Those without a reference are added to the
    chosen answers' own loss, which ORPO has and SimPO can have."""
    if settings.loss_type in REFERENCE_FREE:
        own = 1.0 if settings.loss_type == "orpo" else settings.sft_weight
        return {"loss_type": ["sft"], "loss_weights": [own], "beta": settings.beta}
    also = ["sft"] if settings.sft_weight else []
    return {
        "loss_type": [settings.loss_type, *also],
        "loss_weights": [1.0, settings.sft_weight] if also else None,
        "beta": settings.beta,
        "label_smoothing": settings.label_smoothing,
        "discopop_tau": settings.discopop_tau,
    }


GAMMA = 0.5  # of SimPO where none is set


def reference_free_loss(settings: DPOSettings) -> Callable[[Tensor, Tensor], Tensor] | None:
    """The losses [n] of mean log π per token of chosen and of rejected answers [n], by the formula
    of TRL's experimental CPO and ORPO trainers; None for losses with a reference.

    Sources: Meng et al. 2024 (SimPO), equation 6; Hong et al. 2024 (ORPO), equations 6 and 7.
    """
    if settings.loss_type not in REFERENCE_FREE:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that these may change; the form says so
        from trl.experimental.cpo import CPOTrainer
        from trl.experimental.orpo import ORPOTrainer
    gamma = GAMMA if settings.simpo_gamma is None else settings.simpo_gamma

    def loss(chosen: Any, rejected: Any) -> Tensor:
        read: Any = SimpleNamespace(
            accelerator=SimpleNamespace(device=chosen.device),
            beta=settings.beta,
            loss_type="simpo",
            simpo_gamma=gamma,
            label_smoothing=0.0,
            alpha=0.0,
        )
        if settings.loss_type == "simpo":
            losses: Tensor = CPOTrainer.cpo_loss(read, chosen, rejected)[0]
            return losses
        log_odds: Tensor = ORPOTrainer.odds_ratio_loss(read, chosen, rejected)[0]
        return -log_odds

    return loss


class PairTrainer(PartedTRL, DPOTrainer, BelowTRL):
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
        shares: Shares = ALONE,
    ) -> None:
        """`reference` is asked along the way; with `precomputed` the pairs have its values."""
        _, args.max_steps = planned_steps(args, len(train_pairs))
        # Gives a step's parts, where the library's own give one batch.
        collator: Any = StepCollator(settings, tokenizer.pad_token_id, shares)
        super().__init__(
            model=model,
            ref_model=no_reference(),
            args=args,
            train_dataset=_no_pairs(),
            eval_dataset=_no_pairs(),
            processing_class=tokenizer,
            data_collator=collator,
            callbacks=callbacks,
        )
        self.ref_model, self.precompute_ref_logps = None, True  # its values come with the rows
        self.take_rows(train_pairs, eval_pairs)
        self.reference, self.precomputed = reference, precomputed
        self.without_reference = reference_free_loss(settings)

    def train_order(self) -> LengthGroupedSampler:
        lengths = [pair.longest for pair in self.train_dataset]
        size = self.args.per_device_train_batch_size
        return LengthGroupedSampler(lengths, size, seed=self.args.seed)

    def row_length(self, row: Pair) -> int:
        return row.longest

    def row_tokens(self, row: Pair) -> int:
        return sum(row.lengths)

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
        self.count_mask(inputs)
        tokens = self.answer_tokens(model, batch).rows(places)
        if self.without_reference is not None:
            return self.loss_without_reference(tokens, inputs)
        reference = inputs["reference"]
        if reference is None:
            if self.reference is None:
                raise RuntimeError("neither a reference nor its values are at hand")
            reference = sequence_logprobs(self.reference, batch)[places]
            reference = reference.view(2, -1)
        return inputs["pair_share"] * self.trl_loss(tokens, reference, inputs)

    def loss_without_reference(self, tokens: AnswerTokens, inputs: dict[str, Any]) -> Tensor:
        """SimPO's or ORPO's of a part. In place of a reference stands what makes TRL's implicit
        rewards those of these losses: β times the mean log π of an answer's tokens."""
        sums = tokens.log_probs.sum(1)
        means = sums / tokens.label_mask.sum(1).clamp(min=1)
        chosen_loss = self.trl_loss(tokens, (sums - means).detach().view(2, -1), inputs)
        assert self.without_reference is not None  # noqa: S101 — the caller saw to it
        losses = self.without_reference(*means.chunk(2))
        loss: Tensor = inputs["pair_share"] * (chosen_loss + losses.mean())
        return loss

    def trl_loss(self, tokens: AnswerTokens, reference: Tensor, part: dict[str, Any]) -> Any:
        """TRL's loss of the part alone; log π_ref [2, n] of its pairs. Its mean over tokens (`sft`)
        weighs as many tokens as the part has of the step's, the means over pairs as many pairs."""
        # TRL drops each row's first column, for nothing tells a text's first token.
        answers = torch.nn.functional.pad(tokens.label_mask.long(), (1, 0))
        read = {
            "input_ids": answers,
            "attention_mask": answers,
            "completion_mask": answers,
            "ref_chosen_logps": reference[0],
            "ref_rejected_logps": reference[1],
        }
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
                return super().compute_loss(lambda **_: tokens, read)
        finally:
            self.loss_weights = weights

    def save_state(self, folder: Path) -> None:
        if self.precomputed is not None and self.args.should_save:
            self.precomputed.save(state_in(folder))
        super().save_state(folder)


def no_reference() -> PreTrainedModel:
    """For TRL's constructor, which would load a reference of its own; ours is asked by us."""
    config = LlamaConfig(
        vocab_size=8,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
    )
    return LlamaForCausalLM(config)


def _no_pairs() -> IterableDataset:
    """For TRL's constructor, which would encode rows in its own way; ours are set afterwards."""
    words = [{"role": "user", "content": ""}]
    row = {"prompt": words, "chosen": words, "rejected": words}
    return Dataset.from_list([row]).to_iterable_dataset()

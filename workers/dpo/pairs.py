"""The pairs of a DPO run as token ids, and a step of them as parts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from workers.config.training import DPOSettings
from workers.data.encoding import Encoded, PairEncoder
from workers.data.snapshot import Preference
from workers.layouts.shares import ALONE, Shares
from workers.rollouts.answer_tokens import answer_start, batch_of


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
        both = [replace(side, prompt_length=border) for side in (chosen, rejected)]
        if all(len(side.ids) > answer_start(side) for side in both):
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
            "places": torch.tensor([row_of[key] for key in keys]),
            "taken": taken,
            "pair_share": len(pairs) / total,
            "token_share": _chosen_tokens(pairs) / tokens,
            "reference": torch.tensor(known).T if len(known) == len(pairs) else None,
        }


def _chosen_tokens(pairs: Sequence[Pair]) -> int:
    return sum(len(pair.chosen.ids) - answer_start(pair.chosen) for pair in pairs)

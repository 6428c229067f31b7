"""A reward model as a source of rewards, with its own tokenizer."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from workers.data.encoding import Encoded, encode_pair
from workers.data.padding import pad_right
from workers.data.snapshot import Messages
from workers.models.loading import freeze, load_scorer, load_tokenizer, readable_length
from workers.rewards.precision import FLOAT32, lower
from workers.rewards.source import Scores


class ModelReward:
    """Scores text with a sequence classifier of one label, in batches of similar length."""

    def __init__(
        self,
        folder: Path,
        *,
        name: str = "model",
        batch_size: int = 64,
        max_length: int | None = None,
        precision: str = FLOAT32,
    ) -> None:
        self.tokenizer = load_tokenizer(folder)
        self.model = lower(freeze(load_scorer(folder, self.tokenizer)), precision)
        self.max_length = max_length or readable_length(self.model, self.tokenizer)
        self._name = name
        self._batch_size = batch_size

    def score(self, prompts: Sequence[Messages], responses: Sequence[str]) -> Scores:
        return self.score_rows(self.encode(prompts, responses))

    def encode(
        self, prompts: Sequence[Messages], responses: Sequence[str]
    ) -> list[tuple[Encoded, ...]]:
        """Per text its ids: a row per distinct tokenizer, of which one model has one."""
        rows = encode_all(self.tokenizer, prompts, responses, max_length=self.max_length)
        return [(row,) for row in rows]

    def score_rows(self, texts: Sequence[tuple[Encoded, ...]]) -> Scores:
        """Scores of texts as `encode` left them."""
        rows = [row for (row,) in texts]
        cut = [row.truncated for row in rows]
        values = score_rows(self.model, self.tokenizer, rows, batch_size=self._batch_size)
        return Scores(values, {self._name: values}, sum(cut), cut=cut)

    @property
    def tokenizers(self) -> list[PreTrainedTokenizerBase]:
        """In the order of the rows of `encode`."""
        return [self.tokenizer]


def encode_all(
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Messages],
    responses: Sequence[str],
    *,
    max_length: int,
) -> list[Encoded]:
    return [
        encode_pair(tokenizer, prompt, response, max_length=max_length)
        for prompt, response in zip(prompts, responses, strict=True)
    ]


def score_rows(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[Encoded],
    *,
    batch_size: int,
) -> list[float]:
    """One raw score per row, in order. Rows with equal tokens are read once."""
    return score_together([model], tokenizer, rows, batch_size=batch_size)[0]


@torch.no_grad()
def score_together(
    models: Sequence[PreTrainedModel],
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[Encoded],
    *,
    batch_size: int,
) -> list[list[float]]:
    """M × n raw scores: each batch is padded once and read by every model. Rows with equal tokens
    are read once.

    On a CPU a row is padded to a length that depends on its own alone, since sums over other
    lengths round differently: its score is then the same bit by bit whatever is scored beside it,
    so what a cache remembers, or another order of batches gives, is what scoring it again gives.
    """
    distinct = sorted({tuple(row.ids) for row in rows}, key=lambda ids: (len(ids), ids))
    scores: list[dict[tuple[int, ...], float]] = [{} for _ in models]
    alone = all(model.device.type == "cpu" for model in models)
    most = min(readable_length(model, tokenizer) for model in models) if alone else 0
    for batch, length in batches_of(distinct, batch_size=batch_size, most=most):
        ids, mask = pad_right(batch, tokenizer.pad_token_id, length)
        for model, seen in zip(models, scores, strict=True):
            output = model(input_ids=ids.to(model.device), attention_mask=mask.to(model.device))
            seen.update(zip(batch, output.logits.squeeze(-1).float().tolist(), strict=True))
    return [[seen[tuple(row.ids)] for row in rows] for seen in scores]


def batches_of(
    rows: Sequence[tuple[int, ...]], *, batch_size: int, most: int
) -> Iterator[tuple[Sequence[tuple[int, ...]], int]]:
    """(rows, padded length) of every batch. rows: sorted by length. `most`: what the models can
    read; only rows of one padded length up to it share a batch. 0: each batch is padded to its
    longest row."""
    groups = [rows]
    if most:
        groups = [list(group) for _, group in groupby(rows, key=lambda r: padded(len(r), most))]
    for group in groups:
        for start in range(0, len(group), batch_size):
            batch = group[start : start + batch_size]
            longest = len(batch[-1])
            yield batch, padded(longest, most) if most else longest


def padded(length: int, most: int) -> int:
    """The next multiple of 16 tokens, and of 1/16 to 1/8 of a longer row's length; up to `most`,
    for a model may have no more positions."""
    step = max(16, 1 << max(0, (length - 1).bit_length() - 4))
    return max(length, min(-(-length // step) * step, most))

"""A reward model as a source of rewards, with its own tokenizer."""

from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from workers.data.encoding import Encoded, encode_pair
from workers.data.padding import pad_right
from workers.data.snapshot import Messages
from workers.models import freeze, load_scorer, load_tokenizer, readable_length
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
    are read once."""
    distinct = sorted({tuple(row.ids) for row in rows}, key=lambda ids: (len(ids), ids))
    scores: list[dict[tuple[int, ...], float]] = [{} for _ in models]
    for start in range(0, len(distinct), batch_size):
        batch = distinct[start : start + batch_size]
        ids, mask = pad_right(batch, tokenizer.pad_token_id)
        for model, seen in zip(models, scores, strict=True):
            output = model(input_ids=ids.to(model.device), attention_mask=mask.to(model.device))
            seen.update(zip(batch, output.logits.squeeze(-1).float().tolist(), strict=True))
    return [[seen[tuple(row.ids)] for row in rows] for seen in scores]

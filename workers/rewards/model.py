"""A reward model as a source of rewards, with its own tokenizer."""

from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from workers.data.encoding import Encoded, encode_pair
from workers.data.padding import pad_right
from workers.data.snapshot import Messages
from workers.models import freeze, load_scorer, load_tokenizer, readable_length
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
    ) -> None:
        self.tokenizer = load_tokenizer(folder)
        self.model = freeze(load_scorer(folder, self.tokenizer))
        self.max_length = max_length or readable_length(self.model, self.tokenizer)
        self._name = name
        self._batch_size = batch_size

    def score(self, prompts: Sequence[Messages], responses: Sequence[str]) -> Scores:
        rows = [
            encode_pair(self.tokenizer, prompt, response, max_length=self.max_length)
            for prompt, response in zip(prompts, responses, strict=True)
        ]
        values = score_rows(self.model, self.tokenizer, rows, batch_size=self._batch_size)
        return Scores(values, {self._name: values}, sum(row.truncated for row in rows))


@torch.no_grad()
def score_rows(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[Encoded],
    *,
    batch_size: int,
) -> list[float]:
    """One raw score per row, in order. Rows with equal tokens are read once."""
    distinct = sorted({tuple(row.ids) for row in rows}, key=lambda ids: (len(ids), ids))
    scores: dict[tuple[int, ...], float] = {}
    for start in range(0, len(distinct), batch_size):
        batch = distinct[start : start + batch_size]
        ids, mask = pad_right(batch, tokenizer.pad_token_id)
        output = model(input_ids=ids.to(model.device), attention_mask=mask.to(model.device))
        scores.update(zip(batch, output.logits.squeeze(-1).float().tolist(), strict=True))
    return [scores[tuple(row.ids)] for row in rows]

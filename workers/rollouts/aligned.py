"""Prompts and responses as the trunk reads them: one run of real tokens per row.

A batch comes with its prompts padded on the left and its responses on the right. Read like that,
every row is as wide as the longest prompt and the longest response together, and needs a mask and
positions of its own. Here each row is pushed to the left, so that the batch is only as wide as its
longest row, all padding lies after the last real token, where a causal model cannot see it, and
positions count from 0 by themselves. The last token of a row predicts nothing and is left out.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class Aligned:
    """B rows of L positions. K real response tokens in reading order."""

    ids: Tensor  # [B, L]
    rows: Tensor  # [K] row of the state before each response token
    columns: Tensor  # [K] and its position
    real: Tensor  # bool [B, R]: which of the response's places the K tokens fill

    def at_states(self, states: Tensor) -> Tensor:
        """The states before each real response token: [B, L, width] -> [K, width]."""
        return states[self.rows, self.columns]

    def spread(self, values: Tensor) -> Tensor:
        """[K, …] -> [B, R, …], 0 under the padding."""
        places = self.real.nonzero(as_tuple=True)
        spread = values.new_zeros(*self.real.shape, *values.shape[1:])
        return spread.index_put(places, values)


def align(
    prompt_ids: Tensor, prompt_mask: Tensor, response_ids: Tensor, response_mask: Tensor
) -> Aligned:
    """prompt_* [B, P], response_* [B, R]; 1 in a mask is a real token, and each row has some."""
    ids = torch.cat([prompt_ids, response_ids], dim=1)
    mask = torch.cat([prompt_mask, response_mask], dim=1).bool()
    first = mask.to(torch.uint8).argsort(dim=1, descending=True, stable=True)  # real tokens first
    ids = ids.gather(1, first)
    length = mask.sum(1, keepdim=True)
    width = int(length.max()) - 1
    ids = ids[:, :width]
    past = torch.arange(width, device=ids.device) >= length
    real = response_mask.bool()
    rows, offsets = real.nonzero(as_tuple=True)
    return Aligned(
        # What lies behind a row is never looked at; its first token is as good as any, and unlike
        # the pad token it moves no model to ask for a mask.
        ids=torch.where(past, ids[:, :1], ids),
        rows=rows,
        columns=prompt_mask.sum(1)[rows] - 1 + offsets,
        real=real,
    )


def response_states(
    trunk: PreTrainedModel | nn.Module,
    prompt_ids: Tensor,
    prompt_mask: Tensor,
    response_ids: Tensor,
    response_mask: Tensor,
) -> Tensor:
    """Last states of a trunk without an output layer, before each response token: [B, R, width],
    0 under the padding."""
    aligned = align(prompt_ids, prompt_mask, response_ids, response_mask)
    states = trunk(input_ids=aligned.ids, use_cache=False).last_hidden_state
    return aligned.spread(aligned.at_states(states))

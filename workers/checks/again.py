"""Kept answers as token ids again. A text that was decoded may encode to other tokens: such
answers are left out, and told by their number."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedTokenizerBase

from workers.checks.kept import KeptAnswer, is_finite
from workers.data.encoding import encode_prompt
from workers.data.padding import pad_left
from workers.rollouts.local import Responses


@dataclass(frozen=True, slots=True)
class Encoded:
    answer: KeptAnswer
    prompt: list[int]
    response: list[int]


def encode_again(rows: Sequence[KeptAnswer], tokenizer: PreTrainedTokenizerBase) -> list[Encoded]:
    """Those rows whose answers encode to as many tokens as they had, with their log-probability."""
    found = []
    for row in rows:
        if not (is_finite(row.logprob) and is_finite(row.kl)):
            continue
        ids = tokenizer(row.response, add_special_tokens=False)["input_ids"]
        ids = [*ids, tokenizer.eos_token_id] if row.ended else list(ids)
        if ids and len(ids) == row.tokens:
            found.append(Encoded(row, encode_prompt(tokenizer, row.prompt), ids))
    return found


def as_responses(
    rows: Sequence[Encoded], tokenizer: PreTrainedTokenizerBase, device: torch.device
) -> Responses:
    """One batch: prompts padded left, answers right."""
    prompt_ids, prompt_mask = (
        t.to(device) for t in pad_left([row.prompt for row in rows], tokenizer.pad_token_id)
    )
    width = max(len(row.response) for row in rows)
    ids = torch.full((len(rows), width), tokenizer.pad_token_id, device=device)
    mask = torch.zeros((len(rows), width), dtype=torch.long, device=device)
    for i, row in enumerate(rows):
        ids[i, : len(row.response)] = torch.tensor(row.response, device=device)
        mask[i, : len(row.response)] = 1
    return Responses(
        prompt_ids=prompt_ids,
        prompt_mask=prompt_mask,
        response_ids=ids,
        response_mask=mask,
        ended=torch.tensor([row.answer.ended for row in rows]),
        texts=[row.answer.response for row in rows],
    )

"""Rows of token ids to rectangles."""

from collections.abc import Sequence

import torch
from torch import Tensor


def pad_left(rows: Sequence[Sequence[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """(ids, mask), both [B, longest row]; for prompts, whose answers begin in one column."""
    width = max(len(row) for row in rows)
    ids = torch.tensor([[pad_id] * (width - len(row)) + list(row) for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    return ids, mask


def pad_right(rows: Sequence[Sequence[int]], pad_id: int, length: int = 0) -> tuple[Tensor, Tensor]:
    """(ids, mask), both [B, longest row], or `length` where that is more."""
    width = max([length, *map(len, rows)])
    ids = torch.tensor([list(row) + [pad_id] * (width - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    return ids, mask

"""Which of the candidate pairs people label: drawn at random, or half of them D-optimal.

`rows_chosen` is all that the rest knows of the choice, so that another way to choose takes its
place by changing it alone.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from measures.acquisition import D_OPTIMAL, choose
from measures.selection import RANDOM, pool_of

RIDGE = 3.0  # as the replay on the shipped argument pairs found it
Row = Mapping[str, Any]


def rows_chosen(rows: Sequence[Row], n: int, *, strategy: str, seed: int) -> list[Row]:
    """n rows for the label queue, in their order. d_optimal: as `measures.acquisition` says, the
    first half at random and the other half greedily by the information of all of them."""
    order = random.Random(f"choose {seed}").sample(range(len(rows)), len(rows))
    if strategy == RANDOM:
        taken = order[:n]
    elif strategy == D_OPTIMAL:
        taken = order[: n - n // 2]
        taken += _informative(rows, taken, order[n - n // 2 :], n // 2)
    else:
        raise ValueError(f"no strategy: {strategy}")
    return [rows[i] for i in sorted(taken)]


def _informative(
    rows: Sequence[Row], asked: Sequence[int], free: Sequence[int], n: int
) -> list[int]:
    """By what a selection of the product chooses by."""
    # One word each: "cat-1" would be three tokens.
    texts = [row[side].replace("-", "") for row in rows for side in ("response_a", "response_b")]
    first = np.arange(0, len(texts), 2)
    votes = np.ones(len(rows))
    names = [str(row["prompt"]) for row in rows]
    pool = pool_of(texts, first, first + 1, votes, votes, groups=names, prompts=names)
    places = {"asked": np.array(asked), "left": np.array(free)}
    return [int(row) for row in choose(D_OPTIMAL, pool.pairs, n=n, ridge=RIDGE, **places)]

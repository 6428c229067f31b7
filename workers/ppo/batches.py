"""Which sequences of a batch are computed together.

Any split gives the same sums, so it is chosen for memory and speed: sequences of similar length
share a rectangle, and no rectangle holds more tokens than the budget.
"""

import torch
from torch import Tensor

from workers import ranks
from workers.rollouts.local import Responses


def sequences_of(responses: Responses, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, int]:
    """Prompt ids and mask, response ids and mask of some rows, without columns that are padding
    in all of them; and the width that the response is cut to."""
    prompt_mask, response_mask = responses.prompt_mask[rows], responses.response_mask[rows]
    first = int(prompt_mask.any(0).long().argmax())
    width = int(response_mask.sum(1).max())
    return (
        responses.prompt_ids[rows, first:],
        prompt_mask[:, first:],
        responses.response_ids[rows, :width],
        response_mask[:, :width],
        width,
    )


def parts_of(
    responses: Responses, rows: Tensor, *, most_rows: int | None, most_tokens: int | None
) -> list[Tensor]:
    """`rows` in parts of at most so many rows and padded tokens, longest first.

    A row over the budget by itself is a part by itself. Without limits all rows are one part, in
    their order. No rows are no parts.
    """
    if not len(rows):
        return []
    if most_tokens is None:
        return list(rows.split(most_rows or len(rows)))
    prompts = responses.prompt_mask.sum(1)[rows].tolist()
    answers = responses.response_mask.sum(1)[rows].tolist()
    order = sorted(range(len(rows)), key=lambda i: (-(prompts[i] + answers[i]), i))
    parts: list[list[int]] = []
    longest = (0, 0)  # prompt and answer of the present part's rectangle
    for i in order:
        wider = (max(longest[0], prompts[i]), max(longest[1], answers[i]))
        fits = parts and (len(parts[-1]) + 1) * sum(wider) <= most_tokens
        if fits and (most_rows is None or len(parts[-1]) < most_rows):
            parts[-1].append(i)
            longest = wider
        else:
            parts.append([i])
            longest = (prompts[i], answers[i])
    return [rows[torch.tensor(part)] for part in parts]


def shared_parts(
    responses: Responses, rows: Tensor, *, most_rows: int | None, most_tokens: int | None
) -> list[tuple[Tensor, bool]]:
    """The parts of this rank's share of `rows`, as many on every rank, and whether each counts.

    Every n-th row is this rank's. Ranks meet in their passes wherever weights are split over them,
    so one with fewer parts passes over a row again that counts for nothing. Each rank knows the
    lengths of all answers, hence how many parts the others have.
    """
    split = [
        parts_of(responses, rows[i :: ranks.world()], most_rows=most_rows, most_tokens=most_tokens)
        for i in range(ranks.world())
    ]
    mine = split[ranks.rank()]
    idle = max(map(len, split)) - len(mine)
    return [*((part, True) for part in mine), *[(rows[:1], False)] * idle]

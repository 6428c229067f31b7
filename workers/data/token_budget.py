"""A step of pairs in parts under a budget of tokens, each part in rectangles with little padding.

A pair's loss needs both its scores, so a part holds whole pairs; inside a part every text goes to
the rectangle of its length, wherever its partner goes.
"""

from collections.abc import Sequence

# A text opens a rectangle of its own kind when it is this much shorter than the longest of the
# present one, and that has some rows: narrower rectangles save padding and cost calls.
_SHORTER = 0.8
_LEAST_ROWS = 4


def rectangles(lengths: Sequence[int]) -> list[list[int]]:
    """Indices of texts in groups of similar length, longest first: every text in one of them."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    found: list[list[int]] = []
    for index in order:
        present = found[-1] if found else None
        if present is None or (
            len(present) >= _LEAST_ROWS and lengths[index] < _SHORTER * lengths[present[0]]
        ):
            found.append([index])
        else:
            present.append(index)
    return found


def padded_tokens(lengths: Sequence[int], *, one_rectangle: bool = False) -> int:
    """Tokens of the rectangles, or of a single one, padding included."""
    if one_rectangle:
        return len(lengths) * max(lengths)
    return sum(len(rows) * lengths[rows[0]] for rows in rectangles(lengths))


def parts_under(
    pairs: Sequence[tuple[int, ...]],
    *,
    budget: int | None,
    at_least: int = 1,
    one_rectangle: bool = False,
) -> list[list[int]]:
    """Indices of pairs (or single texts), given by the lengths of their texts, in parts of at most
    `budget` padded tokens and at least so many parts; what is over it alone is a part by itself.

    Pairs come longest first, so the part that needs most memory is computed first.
    """
    order = sorted(range(len(pairs)), key=lambda i: (-max(pairs[i]), -min(pairs[i]), i))
    most_rows = -(-len(pairs) // at_least)
    parts: list[list[int]] = []
    for index in order:
        trial = [*parts[-1], index] if parts else [index]
        lengths = [length for i in trial for length in pairs[i]]
        fits = not budget or padded_tokens(lengths, one_rectangle=one_rectangle) <= budget
        if parts and len(trial) <= most_rows and fits:
            parts[-1] = trial
        else:
            parts.append([index])
    return parts

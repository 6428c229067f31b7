"""Do two sets of scores order the same things alike?"""

from collections.abc import Sequence

import numpy as np

_BLOCK = 512  # rows compared with all others at a time: n² bits never lie in memory at once


def rank_agreement(reference: Sequence[float], other: Sequence[float]) -> float | None:
    """Share of pairs that `other` orders as `reference` does, 0–1: (n,), (n,) -> scalar.

        (C + ½·T) / P

    P the pairs that differ in `reference`, C those of them with the same sign in `other`, T those
    that tie there. With no ties it is (τ + 1)/2 of Kendall's τ (Kendall 1938). A pair that ties in
    `reference` has no order to keep and is left out. None when all pairs tie, for then there is
    none. A score that is no finite number in `other` orders nothing: its pairs count as wrong.
    """
    left, right = np.asarray(reference, dtype=float), np.asarray(other, dtype=float)
    if left.shape != right.shape or left.ndim != 1:
        raise ValueError("both must be one number per row, of the same rows")
    if not np.isfinite(left).all():
        raise ValueError("the reference holds NaN or infinite scores")
    usable = np.isfinite(right)
    counted = alike = 0.0
    for start in range(0, len(left), _BLOCK):
        stop = min(start + _BLOCK, len(left))
        order = np.sign(left[start:stop, None] - left[None, :])
        with np.errstate(invalid="ignore"):
            found = np.sign(right[start:stop, None] - right[None, :])
        differ = order != 0
        finite = usable[start:stop, None] & usable[None, :]
        counted += differ.sum()
        alike += (differ & finite & (found == order)).sum()
        alike += 0.5 * (differ & finite & (found == 0)).sum()
    return float(alike / counted) if counted else None

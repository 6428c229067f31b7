"""Did a model become worse at what it could do? Passed and failed checks, paired by prompt."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from measures.estimate import Interval
from measures.intervals import mean_interval, paired_difference

MARGIN = 0.03  # of the share of checks passed: a drop under it is tolerated


class Standing(StrEnum):
    """What may be said of a drop."""

    NOT_WORSE = "not_worse"  # it is under the margin
    WORSE = "worse"  # there is one
    UNDECIDED = "undecided"  # it could be over the margin, or none


@dataclass(frozen=True, slots=True)
class Compared:
    """Shares of checks passed before and after, their difference after − before, how many checks
    were lost and won, the bound that is held against the margin, and what follows."""

    before: Interval
    after: Interval
    difference: Interval
    lost: int
    won: int
    lowest: float | None
    standing: Standing


def compared(
    before: ArrayLike,
    after: ArrayLike,
    *,
    clusters: ArrayLike,
    margin: float = MARGIN,
    replicates: int = 1000,
    seed: int = 0,
) -> Compared:
    """Non-inferiority of paired checks.

    before, after: (n,) 1 where the check of a prompt is passed, 0 where not; clusters: (n,) labels
    of what prompts share. Not worse: the lower end of the 95 % interval of the mean difference
    (clusters resampled) is above −margin. Worse: its upper end is under 0. Where every prompt
    stands as before there is no spread to resample, and the bound is exact: of m clusters none of
    which became worse, a share of 1 − 0.025^(1/m) at most is. Source: Piaggio et al., CONSORT
    extension for non-inferiority trials, JAMA 308 (2012); the margin is chosen beforehand.
    """
    if not 0 < margin < 1:
        raise ValueError(f"margin must lie between 0 and 1, not {margin}")
    one, other = np.asarray(before, dtype=float), np.asarray(after, dtype=float)
    how: dict[str, Any] = {"clusters": clusters, "replicates": replicates, "seed": seed}
    difference = paired_difference(other, one, **how)
    change = other - one
    lowest, highest = difference.low, difference.high
    if len(change) and not change.any():
        units = len(np.unique(np.asarray(clusters)))
        lowest, highest = 0.025 ** (1 / units) - 1, None
    if lowest is not None and lowest > -margin:
        standing = Standing.NOT_WORSE
    elif highest is not None and highest < 0:
        standing = Standing.WORSE
    else:
        standing = Standing.UNDECIDED
    return Compared(
        before=mean_interval(one, **how),
        after=mean_interval(other, **how),
        difference=difference,
        lost=int((change < 0).sum()),
        won=int((change > 0).sum()),
        lowest=lowest,
        standing=standing,
    )

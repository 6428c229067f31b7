"""Whether the newest votes agree less, or err more, than those before them, beyond noise."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from measures.agreement.clusters import Answers
from measures.agreement.slices import LEAST_ITEMS, slice_gaps
from measures.estimate import reason

MOST_ERRORS = 99.0  # of a fall in which every score of either side is alike: no noise to measure by


@dataclass(frozen=True, slots=True)
class Fall:
    """Means of scores on two sides. `fall` is before − now; `errors` is it as a normal deviate, in
    standard errors. `missing` says why there is neither."""

    n_before: int
    n_now: int
    before: float | None = None
    now: float | None = None
    fall: float | None = None
    errors: float | None = None
    missing: str | None = None


def newest_items(at: ArrayLike, weights: ArrayLike, most: float) -> NDArray[np.bool_]:
    """(n,) the last items whose weights add up to `most` at most.

    at: (n,) when each came, any numbers; of equal ones the later in the order given is newer;
    weights: (n,) such as its votes.
    """
    order = np.argsort(np.asarray(at), kind="stable")[::-1]
    inside = np.cumsum(np.asarray(weights, dtype=np.float64)[order]) <= most
    newest = np.zeros(len(order), dtype=bool)
    newest[order] = inside
    return newest


def fall_of(
    scores: ArrayLike,
    is_new: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    answers: Answers | None = None,
) -> Fall:
    """How far the new scores lie under the others.

    scores: (n,) such as `item_agreement`, NaN left out; is_new: (n,) which are new; groups,
    answers: what scores share, as in `slice_gaps`, whose sandwich gives the standard error and
    Welch's t the deviate: z with the same one-sided p. Fewer than 30 on a side are not judged. It
    is looked at again and again, so p is not how often it errs: docs/alerts.md says how often
    steady projects pass which limit.
    """
    value, new = np.asarray(scores, dtype=np.float64), np.asarray(is_new, dtype=bool)
    known = np.isfinite(value)
    n_now, n_before = int((known & new).sum()), int((known & ~new).sum())
    if min(n_now, n_before) < LEAST_ITEMS:
        few = reason("small_slice") if n_now < LEAST_ITEMS else reason("small_rest")
        return Fall(n_before, n_now, missing=few)
    now, before = float(value[known & new].mean()), float(value[known & ~new].mean())
    gap = slice_gaps(value, new.astype(np.int64), n_slices=2, groups=groups, answers=answers)[1]
    if gap.p is None:
        errors = MOST_ERRORS if before > now else 0.0
    else:
        errors = float(np.clip(-ndtri(gap.p), -MOST_ERRORS, MOST_ERRORS))
    return Fall(n_before, n_now, before, now, before - now, errors)

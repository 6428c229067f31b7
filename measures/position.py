"""Position bias: whether the answer on the left is chosen because it is on the left.

The model: logit P(left is chosen) = b + s_left − s_right, with s the merit of an answer and b the
pull of the left side (b > 0: towards the left). σ(b) is then the chance that the left one of two
equally good answers is chosen. Two estimates, for two kinds of data:

- the left rate: sides are drawn at random, so without a pull half of the choices fall left whatever
  the answers are worth. It uses every vote, but understates b where most pairs are clear;
- the side-flip estimate of b: within a pair that some saw one way round and some the other, merits
  cancel. It needs such pairs and assumes nothing about merits or how sides were drawn.

How single annotators are pulled is in `measures.annotators.sides`.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr, expit, ndtr, stdtrit

from measures.bootstrap import LEAST_UNITS
from measures.estimate import Interval, reason
from measures.intervals import wilson

Floats = NDArray[np.float64]

# Under this a pull changes fewer than one choice in fifty between equals: shown, not worried about.
SMALL = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionBias:
    """The pull of the left side over a whole project.

    value, low, high: σ(b), the chance that the left one of two equally good answers is chosen, with
    its 95 % interval; logit, logit_low, logit_high: b. Undefined together, and `undefined` says
    why. p: the side-flip test of b = 0 (None where it is undefined).
    left_rate: share of choices that fell left (Wilson); left_p: its exact binomial test against ½.
    n: decided votes with a known side; n_pairs: pairs they are on; n_flipped: pairs seen both ways
    round; n_informative: those of them on which two people who saw them differently chose the same
    side; n_ties: votes left out because they chose neither or their side is unknown.
    """

    value: float | None
    low: float | None
    high: float | None
    logit: float | None
    logit_low: float | None
    logit_high: float | None
    p: float | None
    left_rate: Interval
    left_p: float | None
    n: int
    n_pairs: int
    n_flipped: int
    n_informative: int
    n_ties: int
    undefined: str | None = None
    no_interval: str | None = None


@dataclass(frozen=True, slots=True)
class _Flips:
    """Per pair, in order: vote pairs, one from each way round, that both chose left or both right,
    divided by the pair's votes; the variance of their difference without a pull; seen both ways."""

    both_left: Floats
    both_right: Floats
    variance: Floats
    seen_both: NDArray[np.bool_]


def position_bias(
    pair: ArrayLike,
    annotator: ArrayLike,
    chose_left: ArrayLike,
    a_left: ArrayLike | None = None,
) -> PositionBias:
    """The project's pull b by the side-flip estimate, and its left rate.

    pair, annotator: (n,) whole numbers that name the pair and the person of each vote (the person
    only has to be there once per pair: leave hidden repeats out); chose_left: (n,) 1 left, 0 right,
    −1 for a tie, "both bad" or an unknown side (left out and counted in n_ties); a_left: (n,)
    whether the pair's first answer stood left, None where it was not kept (left rate only).

    Each pair is a table: which answer stood left × which was chosen. The odds ratio of every such
    table is e^{2b}, whatever the pair's merits; the common one is estimated by Mantel & Haenszel
    (JNCI 22, 1959): of any two votes that saw a pair different ways round and chose the same side,
    R the weight of those that chose left and S of those that chose right, e^{2b} = R / S. It is
    consistent for many pairs with few votes each, where fitting a merit to each pair is not.
    The interval is that of log(R/S) with pairs as independent units (sandwich, t with pairs − 1
    degrees of freedom); where S or R is 0, half an average weight is added to both and
    the variance is Haldane & Anscombe's. The test is
    Cochran–Mantel–Haenszel's, without continuity correction.

    Assumes that votes on a pair are independent given its answers. People may differ in b: the
    result is then their average, weighted by votes, and the interval holds for these people.
    Undefined without pairs on which two people saw opposite sides and chose the same side; with
    fewer than `LEAST_UNITS` such pairs it stands without an interval.
    """
    pairs, people, left = (np.asarray(x) for x in (pair, annotator, chose_left))
    if not (pairs.shape == people.shape == left.shape) or left.ndim != 1:
        raise ValueError("pair, annotator and chose_left must be equally long vectors")
    if not np.isin(left, (-1, 0, 1)).all():
        raise ValueError("chose_left must be 1 (left), 0 (right) or -1 (neither)")
    decided = left >= 0
    n, n_left = int(decided.sum()), int((left == 1).sum())
    _, place = np.unique(pairs[decided], return_inverse=True)
    n_pairs = int(place.max()) + 1 if n else 0
    shared = {
        "left_rate": wilson(n_left, n),
        "left_p": binomial_test(n_left, n),
        "n": n,
        "n_pairs": n_pairs,
        "n_ties": int(len(left) - n),
    }
    if not n:
        return _without(reason("no_choice_of_side"), **shared)
    if a_left is None:
        return _without(reason("sides_not_kept"), **shared)
    where = np.asarray(a_left)
    if where.shape != left.shape:
        raise ValueError("a_left must be as long as chose_left")
    flips = _flips(place, left[decided] == 1, where[decided].astype(bool), n_pairs)
    return _side_flip(flips, shared)


def binomial_test(successes: int, n: int, share: float = 0.5) -> float | None:
    """Exact two-sided p of `successes` in n trials against `share`: twice the smaller tail, at
    most 1. None without trials."""
    if n == 0:
        return None
    below = float(bdtr(successes, n, share))
    above = 1.0 if successes == 0 else float(bdtr(n - successes, n, 1 - share))
    return min(1.0, 2 * min(below, above))


def _flips(
    place: NDArray[np.int64], left: NDArray[np.bool_], a_left: NDArray[np.bool_], n_pairs: int
) -> _Flips:
    cell = place * 4 + a_left * 2 + left
    table = np.bincount(cell, minlength=4 * n_pairs).reshape(n_pairs, 4).astype(np.float64)
    b_right, b_left, a_right, a_chosen = table.T  # who stood left, what was chosen
    n = table.sum(axis=1)
    a_rows, b_rows = a_right + a_chosen, b_right + b_left
    for_a = a_chosen + b_right
    spread = a_rows * b_rows * for_a * (n - for_a)
    variance = np.divide(spread, n**2 * (n - 1), out=np.zeros_like(n), where=n > 1)
    return _Flips(
        both_left=a_chosen * b_left / n,
        both_right=a_right * b_right / n,
        variance=variance,
        seen_both=(a_rows > 0) & (b_rows > 0),
    )


def _side_flip(flips: _Flips, shared: dict[str, Any]) -> PositionBias:
    weight = flips.both_left + flips.both_right
    telling = weight > 0
    units = int(telling.sum())
    counts = {"n_flipped": int(flips.seen_both.sum()), "n_informative": units}
    if not counts["n_flipped"]:
        return _without(reason("one_way_round"), **shared, **counts)
    if not units:
        return _without(reason("no_side_twice"), **shared, **counts)
    left, right = float(flips.both_left.sum()), float(flips.both_right.sum())
    deviation = math.sqrt(float(flips.variance.sum()))
    p = float(2 * ndtr(-abs(left - right) / deviation)) if deviation else None
    if min(right, left) == 0:
        half = float(weight[telling].mean()) / 2
        left, right = left + half, right + half
        spread = 1 / left + 1 / right  # of a log odds, in units of an average weight
        spread *= 2 * half
    else:
        errors = flips.both_left - flips.both_right * left / right
        spread = float((errors**2).sum()) / left**2 * units / max(units - 1, 1)
    b = math.log(left / right) / 2
    fields = shared | counts | {"value": float(expit(b)), "logit": b, "p": p}
    if units < LEAST_UNITS:
        why = reason("few_pairs_tell", n=units, least=LEAST_UNITS)
        return PositionBias(
            **fields, low=None, high=None, logit_low=None, logit_high=None, no_interval=why
        )
    margin = float(stdtrit(units - 1, 0.975)) * math.sqrt(spread) / 2
    low, high = b - margin, b + margin
    return PositionBias(
        **fields, low=float(expit(low)), high=float(expit(high)), logit_low=low, logit_high=high
    )


def _without(why: str, **fields: Any) -> PositionBias:
    fields = {"n_flipped": 0, "n_informative": 0} | fields
    return PositionBias(
        **fields,
        value=None,
        low=None,
        high=None,
        logit=None,
        logit_low=None,
        logit_high=None,
        p=None,
        undefined=why,
    )

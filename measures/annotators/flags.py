"""When a person stands out: tests against what honest people do, corrected for asking many.

Each habit is a test of "within what honest people show": a rate against a stated limit, not
against exact equality, which nobody would keep to over thousands of votes. Of the tests that a
person has enough votes for, Holm's correction keeps the chance of any false flag on an honest
person at `LEVEL` (Holm, Scandinavian Journal of Statistics 6, 1979), whatever the dependence
between the tests. It holds for one look; who is looked at every day for months is tested often,
which matters only for somebody who lies exactly at a limit.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from measures.annotators.figures import Compared, Counts, Crowd, Longer
from measures.annotators.work import Floats, tail_at_least, tail_at_most

LEVEL = 0.05

LEAST_VOTES = 20  # for an exact test of a rate
LEAST_CONTROLS = 10  # gold pairs, hidden repeats
LEAST_COMPARED = 30  # pairs for a t test

SIDE_SLACK = 0.05  # of the half that chance puts on the left
MOST_FAST = 0.2
LONGER_SLACK = 0.1
NEITHER_SLACK = 0.15
LEAST_GOLD = 0.6
LEAST_SAME = 0.5  # the same answer to a repeat: a coin's share, and nobody's q² + (1 − q)² is less


class Kind(StrEnum):
    """Habits with a flag, worst first."""

    REVERSE = "reverse"
    LEFT = "left"
    RIGHT = "right"
    GOLD = "gold"
    SPEED = "speed"
    AGREEMENT = "agreement"
    SELF = "self"
    LONGER = "longer"
    TIES = "ties"
    DRIFT = "drift"


# The tests, in the order of their columns; a side is one test, and so is agreement.
TESTS = ("side", "gold", "speed", "agreement", "self", "longer", "ties", "drift")


@dataclass(frozen=True, slots=True)
class Tested:
    """p: (J, 8) in the order of TESTS, NaN where there are too few votes; corrected: the same by
    Holm's method over the tests of a person; n_tests: (J,)."""

    p: Floats
    corrected: Floats
    n_tests: np.ndarray

    @property
    def flagged(self) -> np.ndarray:
        return self.corrected <= LEVEL


def tests_of(crowd: Crowd) -> Tested:
    """Every test of every person."""
    columns = {
        "side": _if_enough(crowd.left, LEAST_VOTES, _side(crowd.left)),
        "gold": _if_enough(
            crowd.gold,
            LEAST_CONTROLS,
            tail_at_most(crowd.gold.hits, crowd.gold.n, least_gold(crowd)),
        ),
        "speed": _if_enough(
            crowd.fast, LEAST_VOTES, tail_at_least(crowd.fast.hits, crowd.fast.n, MOST_FAST)
        ),
        "agreement": crowd.agreement.p,
        "self": _if_enough(
            crowd.same, LEAST_CONTROLS, tail_at_most(crowd.same.hits, crowd.same.n, LEAST_SAME)
        ),
        "longer": _excess(crowd.longer, LONGER_SLACK),
        "ties": _excess(crowd.neither, NEITHER_SLACK),
        "drift": crowd.drift.p,
    }
    p = np.column_stack([columns[name] for name in TESTS])
    return Tested(p=p, corrected=holm(p), n_tests=(~np.isnan(p)).sum(axis=1))


def holm(p: Floats) -> Floats:
    """(J, T) p values to corrected ones, over each row's tests; NaN means "not tested"."""
    order = np.argsort(p, axis=1)  # NaN last
    ranked = np.take_along_axis(p, order, axis=1)
    n = (~np.isnan(p)).sum(axis=1, keepdims=True)
    factor = np.maximum(n - np.arange(p.shape[1]), 1)
    stepped = np.minimum(np.fmax.accumulate(ranked * factor, axis=1), 1.0)
    stepped[np.isnan(ranked)] = np.nan
    corrected = np.empty_like(p)
    np.put_along_axis(corrected, order, stepped, axis=1)
    return corrected


def least_gold(crowd: Crowd) -> Floats:
    """(J,) how often they must be right: LEAST_GOLD, or what others reach on the same pairs where
    that is less, since a gold label that nobody meets tells of the label."""
    return np.fmin(crowd.gold_others, LEAST_GOLD)


def _side(left: Counts) -> Floats:
    """Further than SIDE_SLACK from one half, in either direction: twice the smaller exact tail."""
    above = tail_at_least(left.hits, left.n, 0.5 + SIDE_SLACK)
    below = tail_at_most(left.hits, left.n, 0.5 - SIDE_SLACK)
    return np.minimum(1.0, 2 * np.minimum(above, below))


def _excess(compared: Compared | Longer, slack: float) -> Floats:
    p = compared.difference.p_above(slack)
    return np.where(compared.difference.n >= LEAST_COMPARED, p, np.nan)


def _if_enough(counts: Counts, least: int, p: Floats) -> Floats:
    return np.where(counts.n >= least, p, np.nan)

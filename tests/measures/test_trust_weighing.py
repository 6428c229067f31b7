"""What an interval allows to be said."""

import math

import numpy as np
import pytest

from measures.estimate import Interval
from measures.trust.significance import (
    against,
    beyond,
    gap_between,
    holm,
    p_above,
    pairs_needed,
    points,
    share_of,
    undecided,
)
from tests.measures.trust_worlds import part, world


def interval(value, low, high, n=100) -> Interval:
    return Interval(value=value, low=low, high=high, n=n)


NOTHING = Interval(value=0.5, low=None, high=None, n=4, no_interval="too few clusters: 4")


def test_a_gap_of_symmetric_intervals_has_the_root_of_both_squares():
    found = gap_between(interval(0.8, 0.77, 0.83), interval(0.6, 0.56, 0.64))
    # 3 and 4 points make 5.
    assert (found.value, found.low, found.high) == pytest.approx((0.2, 0.15, 0.25))


def test_a_gap_keeps_the_longer_side_of_a_skewed_interval():
    found = gap_between(interval(0.99, 0.90, 1.0), interval(0.5, 0.5, 0.5))
    assert found.value - found.low == pytest.approx(0.09)
    assert found.high - found.value == pytest.approx(0.01)


def test_a_gap_without_an_interval_says_why():
    found = gap_between(interval(0.8, 0.7, 0.9), NOTHING)
    assert found.value == pytest.approx(0.3)
    assert found.low is None
    assert found.no_interval == "too few clusters: 4"


def test_half_the_width_needs_four_times_the_pairs():
    assert pairs_needed(interval(0.5, 0.4, 0.6, n=100), 0.05) == 400
    assert pairs_needed(NOTHING, 0.05) is None


def test_a_bound_at_the_limit_is_p_of_two_and_a_half_per_cent():
    assert p_above(interval(0.7, 0.6, 0.8), 0.6) == pytest.approx(0.025, abs=1e-4)
    assert p_above(interval(0.7, 0.6, 0.8), 0.8) == pytest.approx(0.975, abs=1e-4)
    assert math.isnan(p_above(NOTHING, 0.5))


def test_holm_by_hand():
    # Of four: 0.005 ≤ 0.025/4, 0.008 ≤ 0.025/3, and 0.02 > 0.025/2 ends it.
    assert holm([0.02, 0.005, 0.5, 0.008]) == [False, True, False, True]
    assert holm([math.nan, 0.02]) == [False, True]
    assert holm([]) == []


def test_only_an_interval_wholly_beyond_is_beyond():
    assert beyond(interval(0.2, 0.06, 0.3), 0.05)
    assert beyond(interval(-0.2, -0.3, -0.06), 0.05)
    assert not beyond(interval(0.2, 0.04, 0.3), 0.05)
    assert not beyond(NOTHING, 0.05)


def test_words_for_a_figure_that_is_no_fault():
    assert against(interval(0.01, -0.02, 0.04), 0.05) == "under 5 points"
    assert against(interval(0.01, -0.02, 0.06), 0.05) == "not shown to be over 5 points"
    assert undecided(interval(0.06, -0.02, 0.12), 0.05)
    assert not undecided(interval(0.06, 0.051, 0.12), 0.05)  # a fault
    assert not undecided(interval(0.04, -0.02, 0.12), 0.05)


def test_minus_signs_are_minus_signs_and_nothing_is_minus_nothing():
    assert points(interval(-0.0004, -0.021, 0.02)) == "0.0 points (−2.1 to 2.0)"


def test_everything_alike_has_an_interval_over_what_rows_share():
    pairs = part(world(400), slice(0, 200))
    found = share_of(pairs, np.ones(200))
    # 200 answers in 200 pairs: as many as 100 pairs apart. Wilson: 100/(100 + 1.96²).
    assert (found.value, found.low, found.high) == pytest.approx((1, 0.963, 1), abs=0.001)
    assert share_of(pairs, np.ones(200), where=np.arange(200) < 8).low is None

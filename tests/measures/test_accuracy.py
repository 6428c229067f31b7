"""Accuracy on pairs, and the rule that reads nothing."""

import math

import numpy as np
import pytest

from measures.accuracy import pair_accuracy, pair_credit
from measures.baselines import length_only_accuracy, longer_preferred


def test_a_scorer_that_cannot_tell_gets_half_the_credit():
    assert pair_credit([2.5, 0.0, -0.1, math.inf, -math.inf]).tolist() == [1, 0.5, 0, 1, 0]
    assert pair_accuracy([0.0] * 30).value == 0.5


def test_a_scorer_that_returns_nan_is_broken_and_not_undecided():
    with pytest.raises(ValueError, match=r"margins\[1\] is NaN \(2 of 3 are\)"):
        pair_accuracy([1.0, math.nan, math.nan])


def test_accuracy_by_hand_with_its_clusters():
    # 12 debates with two pairs each: both right in 6, one right in 3, both wrong in 3.
    margins = [1, 1] * 6 + [1, -1] * 3 + [-1, -1] * 3
    accuracy = pair_accuracy(margins, clusters=np.repeat(np.arange(12), 2))
    assert accuracy.value == pytest.approx(15 / 24)
    assert accuracy.n_clusters == 12
    assert accuracy.low < 15 / 24 < accuracy.high


def test_length_alone_is_judged_by_hand():
    chosen, rejected = [10, 5, 7, 3], [4, 5, 9, 1]
    accuracy = length_only_accuracy(chosen, rejected)
    assert accuracy.value == pytest.approx((1 + 0.5 + 0 + 1) / 4)
    preferred = longer_preferred(chosen, rejected)
    assert preferred.value == pytest.approx(2 / 3)
    assert preferred.n == 3


def test_swapping_chosen_and_rejected_turns_the_length_rule_around():
    rng = np.random.default_rng(0)
    chosen, rejected = rng.integers(1, 50, 200), rng.integers(1, 50, 200)
    there = length_only_accuracy(chosen, rejected)
    back = length_only_accuracy(rejected, chosen)
    assert there.value + back.value == pytest.approx(1)
    assert there.low < there.value < there.high


def test_pairs_of_equal_length_leave_the_preference_for_longer_undefined():
    assert longer_preferred([4, 5], [4, 5]).undefined == "no pair differs in length"
    assert length_only_accuracy([4, 5] * 10, [4, 5] * 10).value == 0.5


def test_clusters_of_pairs_with_equal_lengths_do_not_count():
    # Debates 0 to 4 hold twenty pairs of equal length; 5 to 15 hold one each that differs.
    labels = [*np.repeat(np.arange(5), 4), *range(5, 16)]
    rejected = np.array([6] * 20 + [5] * 10 + [7])
    preferred = longer_preferred(np.full(31, 6), rejected, clusters=labels)
    assert preferred.n_clusters == 11
    assert preferred.value == pytest.approx(10 / 11)


@pytest.mark.parametrize(
    ("chosen", "rejected"), [([1, 2], [1]), ([[1]], [[2]]), ([-1], [2]), ([1], [-2])]
)
def test_lengths_that_make_no_sense_are_refused(chosen, rejected):
    with pytest.raises(ValueError, match="length"):
        length_only_accuracy(chosen, rejected)

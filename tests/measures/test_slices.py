"""A slice is named where it is worse, and hardly ever where it is not."""

from dataclasses import replace

import numpy as np
import pytest

from measures.agreement.slices import holm, item_agreement, slice_gaps


def crowd(rng, n: int, agreement: np.ndarray | float) -> np.ndarray:
    """(n,) 1 where two votes agree."""
    return (rng.random(n) < agreement).astype(float)


def test_the_share_of_agreeing_pairs_of_an_item_is_that_counted_by_hand():
    found = item_agreement([[2, 0], [2, 1], [1, 1], [1, 0], [3, 2]])
    assert found[:3] == pytest.approx([1, 1 / 3, 0])
    assert np.isnan(found[3])
    assert found[4] == pytest.approx((3 + 1) / 10)


def test_the_gap_is_the_difference_of_the_two_means():
    scores = np.r_[np.tile([1.0, 0.0], 50), np.tile([1.0, 1.0, 1.0, 0.0], 25)]
    gap = slice_gaps(scores, np.repeat([0, 1], 100), n_slices=2)[0]
    assert gap.value == pytest.approx(0.5 - 0.75)
    deviation = np.sqrt(0.25 / 100 + 0.1875 / 100)
    assert gap.high - gap.low == pytest.approx(2 * 1.98 * deviation, rel=0.02)


def test_small_slices_are_not_compared():
    gaps = slice_gaps(np.ones(100), np.r_[np.zeros(20), np.ones(80)], n_slices=3)
    assert gaps[0].untested == "too few to compare"
    assert gaps[1].untested == "too little beside it to compare with"
    assert gaps[2].n == 0


def test_holm_is_that_of_the_textbook():
    gaps = slice_gaps(np.tile([1.0, 0.0], 100), np.repeat(np.arange(4), 50), n_slices=4)
    worked = [replace(g, p=p) for g, p in zip(gaps, [0.01, 0.04, 0.03, 0.005], strict=True)]
    assert [g.adjusted for g in holm(worked)] == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_a_planted_bad_slice_is_named_and_no_other():
    rng = np.random.default_rng(0)
    for _ in range(20):
        place = np.repeat(np.arange(12), 200)
        scores = crowd(rng, 2400, np.where(place == 7, 0.55, 0.75))
        named = [
            k for k, g in enumerate(holm(slice_gaps(scores, place, n_slices=12))) if g.is_worse
        ]
        assert named == [7]


def false_alarms(rng, draw, runs: int = 250) -> int:
    alarms = 0
    for _ in range(runs):
        gaps = []
        for place, scores, groups, *answers in draw(rng):
            n = int(place.max()) + 1
            both = answers[0] if answers else None
            gaps += slice_gaps(scores, place, n_slices=n, groups=groups, answers=both)
        alarms += any(gap.is_worse for gap in holm(gaps))
    return alarms


def test_slices_that_are_alike_are_named_in_at_most_one_project_of_twenty():
    def draw(rng):
        scores = crowd(rng, 900, 0.7)
        return [(rng.integers(0, k, 900), scores, None) for k in (4, 8, 15)]

    assert false_alarms(np.random.default_rng(1), draw) <= 250 * 0.05 + 7  # + 2 standard errors


def test_groups_that_differ_raise_no_false_alarm_between_slices_that_cross_them():
    def draw(rng):
        group = rng.integers(0, 40, 900)
        own = rng.beta(4, 2, 40)
        scores = crowd(rng, 900, own[group])
        by_group = rng.integers(0, 3, 40)[group]  # slices made of whole groups
        return [(rng.integers(0, 6, 900), scores, group), (by_group, scores, group)]

    assert false_alarms(np.random.default_rng(2), draw) <= 250 * 0.05 + 7


def test_a_difference_too_small_to_act_on_is_not_named():
    rng = np.random.default_rng(3)
    place = np.repeat([0, 1], 200_000)
    gaps = holm(slice_gaps(crowd(rng, 400_000, np.where(place, 0.72, 0.70)), place, n_slices=2))
    assert gaps[0].adjusted < 1e-6
    assert not gaps[0].is_worse


def test_answers_that_recur_raise_no_false_alarm_between_slices_made_of_them():
    def draw(rng):
        first, second = rng.integers(0, 40, 500), 40 + rng.integers(0, 40, 500)
        ease = rng.normal(0, 0.15, 80)
        scores = crowd(rng, 500, np.clip(0.7 + ease[first] + ease[second], 0, 1))
        by_answer = rng.integers(0, 4, 80)[first]
        return [(by_answer, scores, np.zeros(500), (first, second))]

    assert false_alarms(np.random.default_rng(6), draw) <= 250 * 0.05 + 7

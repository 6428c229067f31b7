"""Groups of answers: by hand, against scipy's tau, and with planted faults."""

import numpy as np
import pytest
from scipy.stats import kendalltau

from measures.groups import agreement_within, silent_groups, spread_of


def test_spread_within_and_between_groups_by_hand() -> None:
    spread = spread_of([[1.0, 3.0], [5.0, 5.0], [0.0, 4.0]])
    assert spread.within == pytest.approx((2**0.5 + 0.0 + 8**0.5) / 3)
    assert spread.between == pytest.approx(3**0.5)  # means 2, 5, 2 around 3: (1 + 4 + 1) / 2
    assert (spread.silent, spread.groups) == (pytest.approx(1 / 3), 3)


def test_rewards_that_differ_by_rounding_only_are_alike() -> None:
    big = 1000.0
    assert spread_of([[big, np.nextafter(np.float32(big), np.inf, dtype=np.float32)]]).silent == 1.0
    assert spread_of([[0.0, 0.01]]).silent == 0.0


def test_answers_that_do_not_count_are_left_out_and_groups_of_one_with_them() -> None:
    rewards = [[1.0, 9.0, 1.0], [2.0, np.nan, np.nan]]
    counts = [[True, False, True], [True, False, False]]
    spread = spread_of(rewards, counts)
    assert (spread.silent, spread.groups, spread.between) == (1.0, 1, None)
    assert spread_of([[1.0, 2.0]], [[False, False]]).within is None


def test_silent_groups_are_those_alike_but_for_rounding_or_with_one_answer_left() -> None:
    third = np.float32(0.1) * np.ones(4)
    noisy = third + np.array([0, 1e-9, 0, -1e-9])
    rewards = [noisy, [0.0, 0.0, 0.0, 1.0], [5.0, 0.0, 0.0, 0.0]]
    counts = [[True] * 4, [True] * 4, [True, False, False, False]]
    assert silent_groups(rewards, counts).tolist() == [True, False, True]


def test_without_ties_agreement_is_kendalls_tau_on_the_scale_of_shares() -> None:
    rng = np.random.default_rng(0)
    one, two = rng.normal(size=(1, 9)), rng.normal(size=(1, 9))
    found = agreement_within(one, two)
    assert found.value == pytest.approx((1 + kendalltau(one[0], two[0]).statistic) / 2)
    assert found.pairs == 36


def test_a_source_that_knows_hard_prompts_but_not_good_answers_agrees_by_chance_only() -> None:
    quality = np.array([[0.0, 1.0, 2.0], [10.0, 11.0, 12.0]])
    difficulty = np.array([[0.0] * 3, [10.0] * 3])
    assert agreement_within(quality, difficulty).value == 0.5
    assert agreement_within(quality, -quality).value == 0.0
    assert agreement_within(quality, quality**3).value == 1.0


def test_pairs_that_the_reference_ties_say_nothing() -> None:
    passes = np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    reward = np.array([[3.0, 2.0, 9.0], [1.0, 2.0, 3.0]])
    found = agreement_within(passes, reward)
    assert (found.value, found.pairs, found.groups) == (0.5, 2, 1)
    assert agreement_within([[1.0, 1.0]], [[0.0, 5.0]]).value is None


def test_what_is_no_number_or_no_group_is_refused() -> None:
    with pytest.raises(ValueError, match="no number"):
        spread_of([[1.0, np.nan]])
    with pytest.raises(ValueError, match="dimensions"):
        spread_of([1.0, 2.0])
    with pytest.raises(ValueError, match="one shape"):
        agreement_within([[1.0, 2.0]], [[1.0, 2.0, 3.0]])

"""pass@k, the spread of repeats, alpha over looks and the best of several, by other routes."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from measures.looks import best_of_inflation, look_alpha
from measures.repeats import (
    inside_repeat_spread,
    least_difference,
    pass_at_k,
    repeat_spread,
)


@pytest.mark.parametrize(("draws", "right", "k"), [(5, 2, 1), (5, 2, 3), (6, 1, 6), (4, 0, 2)])
def test_pass_at_k_is_the_share_of_choices_of_k_draws_with_a_right_one(draws, right, k) -> None:
    answers = [True] * right + [False] * (draws - right)
    choices = list(itertools.combinations(answers, k))
    assert pass_at_k(draws, right, k) == pytest.approx(sum(map(any, choices)) / len(choices))


def test_pass_at_k_is_unbiased_where_the_plain_power_is_not() -> None:
    rng, p, k = np.random.default_rng(1), 0.2, 5
    counts = rng.binomial(8, p, size=20_000)
    truth = 1 - (1 - p) ** k
    assert np.mean([pass_at_k(8, int(c), k) for c in counts]) == pytest.approx(truth, abs=0.01)
    assert np.mean(1 - (1 - counts / 8) ** k) < truth - 0.03


@pytest.mark.parametrize(("draws", "right", "k"), [(3, 4, 1), (3, 1, 4), (3, 1, 0), (3, -1, 1)])
def test_pass_at_k_refuses_draws_that_were_not_made(draws, right, k) -> None:
    with pytest.raises(ValueError, match="k must be"):
        pass_at_k(draws, right, k)


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))
def test_pass_at_k_never_falls_with_k(counts: tuple[int, int]) -> None:
    draws, right = counts
    curve = [pass_at_k(draws, right, k) for k in range(1, draws + 1)]
    assert curve[0] == pytest.approx(right / draws)
    assert all(0 <= a <= b + 1e-12 <= 1 + 1e-12 for a, b in itertools.pairwise(curve))


def test_the_spread_of_repeats_needs_two_and_is_the_deviation() -> None:
    assert repeat_spread([0.5]) is None
    assert repeat_spread([0.4, 0.5, 0.6]) == pytest.approx(0.1)


def test_two_results_of_one_system_are_seldom_told_apart() -> None:
    rng, sigma = np.random.default_rng(2), 0.02
    pairs = rng.normal(0.5, sigma, size=(20_000, 2))
    claimed = [not inside_repeat_spread(a - b, sigma) for a, b in pairs]
    assert np.mean(claimed) == pytest.approx(0.0455, abs=0.006)
    assert least_difference(sigma) == pytest.approx(0.0566, abs=1e-4)


def test_no_difference_is_inside_any_spread() -> None:
    assert inside_repeat_spread(0.0, 0.0)
    assert not inside_repeat_spread(0.001, 0.0)


def test_alpha_over_all_looks_is_alpha() -> None:
    assert look_alpha(1) == pytest.approx(0.05 * 0.6079, abs=1e-5)
    tail = 6 * 0.05 / math.pi**2 / 1000  # of the looks from 1001 on, at most
    assert 0.05 - tail <= sum(look_alpha(k) for k in range(1, 1001)) < 0.05
    with pytest.raises(ValueError, match="count from 1"):
        look_alpha(0)


@pytest.mark.parametrize(("n", "expected"), [(1, 0.0), (2, 0.56), (5, 1.16), (10, 1.54), (27, 2.0)])
def test_the_best_of_n_lies_so_many_standard_errors_too_high(n: int, expected: float) -> None:
    assert best_of_inflation(n) == pytest.approx(expected, abs=0.005)


def test_the_best_of_n_agrees_with_closed_forms_and_with_draws() -> None:
    assert best_of_inflation(2) == pytest.approx(1 / math.sqrt(math.pi), abs=1e-9)
    assert best_of_inflation(3) == pytest.approx(1.5 / math.sqrt(math.pi), abs=1e-9)
    draws = np.random.default_rng(3).normal(size=(50_000, 8)).max(axis=1)
    assert best_of_inflation(8) == pytest.approx(draws.mean(), abs=4 * draws.std() / 50_000**0.5)
    with pytest.raises(ValueError, match="at least one"):
        best_of_inflation(0)

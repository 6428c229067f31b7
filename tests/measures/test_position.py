"""The pull of a side: planted ones are found, honest crowds show none, and its limits are said."""

import time

import numpy as np
import pytest
from scipy.stats import binomtest
from scipy.stats.contingency import odds_ratio

from measures.position import binomial_test, position_bias

HOW_MANY_SEEDS = 60


def crowd(seed, *, b=0.0, pairs=600, people=12, votes=4, merit=1.5, spread=0.0, ties=0.0):
    """(pair, annotator, chose_left, a_left) by the model; each of `votes` people judges a pair."""
    rng = np.random.default_rng(seed)
    gain = rng.normal(0, merit, pairs)  # of the first answer over the second
    pull = b + rng.normal(0, spread, people)
    pair = np.repeat(np.arange(pairs), votes)
    who = np.argsort(rng.random((pairs, people)), axis=1)[:, :votes].ravel()
    a_left = rng.random(len(pair)) < 0.5
    logit = pull[who] + np.where(a_left, 1, -1) * gain[pair]
    left = (rng.random(len(pair)) < 1 / (1 + np.exp(-logit))).astype(int)
    left[rng.random(len(pair)) < ties] = -1
    return pair, who, left, a_left


@pytest.mark.parametrize("b", [-0.8, 0.0, 0.4, 1.2])
def test_a_planted_pull_lies_in_the_interval_as_often_as_it_should(b):
    found = [position_bias(*crowd(seed, b=b)) for seed in range(HOW_MANY_SEEDS)]
    inside = sum(x.logit_low <= b <= x.logit_high for x in found)
    assert inside >= 53  # 57 expected; fewer than 53 of 60 happen once in 50 by chance
    assert np.mean([x.logit for x in found]) == pytest.approx(b, abs=0.05)


def test_the_left_rate_alone_understates_the_pull():
    found = position_bias(*crowd(3, b=1.0, pairs=4000, merit=2.5))
    assert found.logit_low <= 1.0 <= found.logit_high
    assert found.left_rate.high < 0.7 < found.value  # the chance between equals is 0.73


def test_clear_pairs_and_few_votes_do_not_bend_the_estimate():
    # Fitting a merit to each pair would double b here: two votes a pair, mostly one-sided.
    found = position_bias(*crowd(5, b=0.5, pairs=6000, votes=2, merit=2.0))
    assert found.logit_low <= 0.5 <= found.logit_high
    assert found.logit_high - found.logit_low < 0.4


def test_no_pull_is_alarming_about_one_time_in_twenty():
    found = [position_bias(*crowd(seed, pairs=150)) for seed in range(200)]
    assert sum(x.p < 0.05 for x in found) <= 18  # 10 expected
    assert sum(x.left_p < 0.05 for x in found) <= 18
    assert sum(not x.low <= 0.5 <= x.high for x in found) <= 18


def test_people_who_differ_give_their_average():
    found = [position_bias(*crowd(s, b=0.4, spread=0.5, people=60)) for s in range(20)]
    assert np.mean([x.logit for x in found]) == pytest.approx(0.4, abs=0.1)


def test_the_odds_ratio_is_that_of_a_table_counted_by_hand():
    # One pair. First answer left: chosen 6 of 8 times; right: chosen 3 of 9 times.
    a_left = [True] * 8 + [False] * 9
    left = [1] * 6 + [0] * 2 + [0] * 3 + [1] * 6
    found = position_bias([7] * 17, range(17), left, a_left)
    assert found.logit == pytest.approx(np.log((6 * 6) / (2 * 3)) / 2)
    # Beside the conditional estimate of scipy, which differs a little for one small table.
    assert np.exp(2 * found.logit) == pytest.approx(
        odds_ratio([[6, 2], [3, 6]]).statistic, rel=0.15
    )
    assert found.low is None
    assert "too few pairs" in found.no_interval


def test_ties_and_unknown_sides_are_left_out_and_counted():
    pair, who, left, a_left = crowd(2, ties=0.3)
    found = position_bias(pair, who, left, a_left)
    assert found.n_ties == (left == -1).sum() > 500
    kept = left >= 0
    again = position_bias(pair[kept], who[kept], left[kept], a_left[kept])
    assert (again.logit, again.n) == (found.logit, found.n)


def test_a_crowd_that_always_clicks_left_is_named_with_a_finite_interval():
    pair, who, left, a_left = crowd(4, pairs=100)
    found = position_bias(pair, who, np.ones_like(left), a_left)
    assert found.left_rate.value == 1
    assert found.low > 0.7
    assert np.isfinite([found.logit_low, found.logit_high]).all()
    assert "A pull to the left" in found.sentence


def test_mirroring_every_screen_mirrors_the_pull():
    pair, who, left, a_left = crowd(8, b=0.7)
    one = position_bias(pair, who, left, a_left)
    other = position_bias(pair, who, 1 - left, ~a_left)
    assert other.logit == pytest.approx(-one.logit)
    assert other.p == pytest.approx(one.p)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (([], [], [], []), "no vote chose a side"),
        (([1, 2], [1, 1], [-1, -1], [True, False]), "no vote chose a side"),
        (([1, 2, 3], [1, 1, 1], [1, 0, 1], None), "which answer stood left was not kept"),
        (([1, 2, 3], [1, 1, 1], [1, 0, 1], [True, True, False]), "both ways round"),
        (([1, 1], [1, 2], [1, 0], [True, False]), "chose the same side"),
    ],
)
def test_what_cannot_be_known_says_why(arguments, reason):
    found = position_bias(*arguments)
    assert found.value is None
    assert reason in found.undefined
    assert found.sentence


def test_a_choice_that_is_none_is_refused():
    with pytest.raises(ValueError, match="chose_left"):
        position_bias([1], [1], [2], [True])


@pytest.mark.parametrize(("k", "n"), [(0, 1), (0, 9), (9, 9), (30, 41), (512, 1000), (5, 10)])
def test_the_binomial_test_is_exact(k, n):
    assert binomial_test(k, n) == pytest.approx(binomtest(k, n).pvalue)


def test_a_million_votes_take_seconds_at_most():
    votes = crowd(1, b=0.2, pairs=200_000, people=25, votes=5)
    start = time.process_time()
    found = position_bias(*votes)
    assert time.process_time() - start < 3
    assert found.logit_low <= 0.2 <= found.logit_high
    assert found.n == 1_000_000

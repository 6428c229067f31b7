"""One Bayes step, as the web application takes it for one comparison."""

import numpy as np
import pytest

from measures.consensus import posteriors_of, share_right, votes_from


def wide(matrix: list[list[float]]) -> np.ndarray:
    """A (2, 2) confusion matrix among four choices, of which two are offered."""
    made = np.eye(4)
    made[:2, :2] = matrix
    return made


ANA = wide([[0.9, 0.1], [0.2, 0.8]])
BEN = wide([[0.6, 0.4], [0.4, 0.6]])
NEW = wide([[0.7, 0.3], [0.3, 0.7]])
EVEN = [0.5, 0.5, 0, 0]


def test_two_votes_by_hand():
    votes = votes_from([0, 0], [0, 1], [0, 1])
    found = posteriors_of(votes, [0.6, 0.4, 0, 0], [ANA, BEN], NEW)
    a, b = 0.6 * 0.9 * 0.4, 0.4 * 0.2 * 0.6
    assert found[0] == pytest.approx([a / (a + b), b / (a + b), 0, 0])


def test_one_coin_log_odds_add_up():
    q = [0.9, 0.8, 0.6]
    people = [wide([[x, 1 - x], [1 - x, x]]) for x in q]
    found = posteriors_of(votes_from([0, 0, 0], [0, 1, 2], [0, 1, 0]), EVEN, people, NEW)
    odds = np.log(0.9 / 0.1) - np.log(0.8 / 0.2) + np.log(0.6 / 0.4)
    assert found[0, 0] == pytest.approx(1 / (1 + np.exp(-odds)))


def test_somebody_never_seen_votes_like_the_default():
    votes = votes_from([0], [7], [0])
    assert posteriors_of(votes, EVEN, [ANA], NEW)[0, 0] == pytest.approx(0.7)
    assert posteriors_of(votes, EVEN, np.zeros((0, 4, 4)), NEW)[0, 0] == pytest.approx(0.7)


def test_an_item_without_votes_gets_the_priors():
    votes = votes_from([0], [0], [0], n_items=2)
    assert posteriors_of(votes, [0.3, 0.7, 0, 0], [ANA], NEW)[1] == pytest.approx([0.3, 0.7, 0, 0])


def test_a_choice_the_model_never_saw_says_nothing():
    votes = votes_from([0, 0], [0, 1], [0, 3])
    found = posteriors_of(votes, EVEN, [ANA, BEN], NEW)
    assert found[0] == pytest.approx([9 / 11, 2 / 11, 0, 0])


def test_votes_that_are_impossible_together_leave_the_priors():
    sure = wide([[1, 0], [0, 1]])
    votes = votes_from([0, 0], [0, 1], [0, 1])
    assert posteriors_of(votes, EVEN, [sure, sure], NEW)[0] == pytest.approx(EVEN)


def test_two_thousand_votes_on_one_item_neither_underflow_nor_warn():
    votes = votes_from(np.zeros(2000, int), np.zeros(2000, int), np.arange(2000) % 3 % 2)
    found = posteriors_of(votes, EVEN, [BEN], NEW)
    assert found.sum() == pytest.approx(1)
    assert found[0, 0] == pytest.approx(1)


def test_one_more_vote_is_a_factor_per_truth():
    before = posteriors_of(votes_from([0], [0], [0]), EVEN, [ANA, BEN], NEW)
    after = posteriors_of(votes_from([0, 0], [0, 1], [0, 1]), EVEN, [ANA, BEN], NEW)
    product = before[0] * BEN[:, 1]
    assert after[0] == pytest.approx(product / product.sum())


def test_share_right_counts_a_tie_by_its_size():
    scores = [[0.5, 0.5, 0, 0], [1 / 3, 1 / 3, 1 / 3, 0], [0.2, 0.8, 0, 0], [1, 0, 0, 0]]
    right = share_right(scores, [0, 2, 0, -1])
    assert right[:3] == pytest.approx([1 / 2, 1 / 3, 0])
    assert np.isnan(right[3])

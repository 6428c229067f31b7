"""What coin-flippers get past a rule."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from measures.voting import (
    CHOICES,
    Outcome,
    Rule,
    chance_keep_rate,
    decide,
    decide_many,
    posterior_keep_rate,
    two_way_posterior,
)
from tests.measures.test_voting import RULES


def test_three_of_five_and_sixty_percent_keeps_every_coin_flip():
    assert chance_keep_rate(Rule(), 5) == 1.0


def test_four_of_five_keeps_twelve_of_the_thirty_two_ways_to_flip_five_coins():
    assert chance_keep_rate(Rule(least_agreeing=4, least_share=0.8), 5) == 12 / 32


def test_a_posterior_of_ninety_percent_passes_only_four_one_and_five_nil():
    assert two_way_posterior(4, 1, 0.73) >= 0.9 > two_way_posterior(3, 2, 0.73)
    assert posterior_keep_rate(0.73, 0.9, 5) == 0.375


def test_the_posterior_is_bayes_rule_by_hand():
    # Two votes for A, one for B at q = 0.8: 0.8·0.8·0.2 against 0.2·0.2·0.8.
    assert two_way_posterior(2, 1, 0.8) == pytest.approx(0.128 / (0.128 + 0.032))
    assert two_way_posterior(3, 3, 0.8) == 0.5
    assert two_way_posterior(100_000, 0, 0.99) == 1.0


@settings(max_examples=40)
@given(RULES, st.integers(1, 5), st.integers(1, 4))
def test_the_rate_is_the_share_of_all_vote_sequences_that_are_accepted(rule, n_votes, n_choices):
    sequences = list(itertools.product(CHOICES[:n_choices], repeat=n_votes))
    accepted = sum(
        decide(sequence, rule, votes_possible=n_votes).outcome is Outcome.ACCEPTED
        for sequence in sequences
    )
    assert chance_keep_rate(rule, n_votes, n_choices) == pytest.approx(accepted / len(sequences))


@settings(max_examples=40)
@given(RULES, st.integers(1, 5), st.integers(1, 3))
def test_stopping_early_keeps_a_sequence_when_any_of_its_beginnings_is_accepted(
    rule, n_votes, n_choices
):
    sequences = list(itertools.product(CHOICES[:n_choices], repeat=n_votes))
    accepted = sum(
        any(decide(sequence[:k], rule).outcome is Outcome.ACCEPTED for k in range(1, n_votes + 1))
        for sequence in sequences
    )
    rate = chance_keep_rate(rule, n_votes, n_choices, stop_when_met=True)
    assert rate == pytest.approx(accepted / len(sequences))
    assert rate >= chance_keep_rate(rule, n_votes, n_choices) - 1e-12


def test_an_uneven_crowd_matches_a_simulation():
    chances, rule = [0.4, 0.4, 0.15, 0.05], Rule(least_agreeing=4, least_share=0.6, max_votes=7)
    drawn = np.random.default_rng(7).multinomial(7, chances, size=200_000)
    simulated = decide_many(drawn, rule).tally()[Outcome.ACCEPTED] / len(drawn)
    exact = chance_keep_rate(rule, 7, probabilities=chances)
    assert exact == pytest.approx(simulated, abs=4 * (0.25 / len(drawn)) ** 0.5)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: chance_keep_rate(Rule(), 0), "n_votes"),
        (lambda: chance_keep_rate(Rule(), 51), "n_votes"),
        (lambda: chance_keep_rate(Rule(), 5, 5), "n_choices"),
        (lambda: chance_keep_rate(Rule(), 5, probabilities=[0.5, 0.4]), "sum to 1"),
        (lambda: chance_keep_rate(Rule(), 5, probabilities=[1.5, -0.5]), "sum to 1"),
        (lambda: chance_keep_rate(Rule(), 5, probabilities=[0.2] * 5), "at most 4"),
        (lambda: two_way_posterior(1, 0, 0.5), "accuracy"),
        (lambda: two_way_posterior(-1, 0, 0.7), "at least 0"),
        (lambda: posterior_keep_rate(0.7, 0.2, 5), "least_posterior"),
        (lambda: posterior_keep_rate(0.7, 0.9, 0), "n_votes"),
    ],
)
def test_a_crowd_that_cannot_be_is_refused(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call()

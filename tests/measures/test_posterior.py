"""The posterior of one comparison is Bayes' rule, and decisions by it can fail."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from measures.voting import (
    CHOICES,
    Choice,
    Outcome,
    PosteriorRule,
    decide_by_posterior,
    decide_many_by_posterior,
    posterior,
    two_way_posterior,
)

TWO_WAY = (0.5, 0.5, 0.0, 0.0)


def coin(q: float) -> list[float]:
    """Right with q, else the other side; rows of truths that do not occur are uniform."""
    return [q, 1 - q, 0, 0, 1 - q, q, 0, 0, *[0.25] * 8]


def test_two_equal_annotators_of_three_quarters_leave_nine_to_one() -> None:
    # (3/4)² against (1/4)²: odds 9 to 1.
    votes = [("a", coin(0.75)), ("a", coin(0.75))]
    assert posterior(votes, TWO_WAY, coin(0.5)) == pytest.approx((0.9, 0.1, 0, 0))


def test_one_good_annotator_outweighs_two_poor_ones() -> None:
    # odds for A: 0.9/0.1 · (0.4/0.6)² = 9 · 4/9 = 4 to 1
    votes = [("a", coin(0.9)), ("b", coin(0.6)), ("b", coin(0.6))]
    assert posterior(votes, TWO_WAY, coin(0.5))[0] == pytest.approx(0.8)


def test_an_unknown_annotator_counts_as_the_crowd_does() -> None:
    known = posterior([("b", coin(0.7))], TWO_WAY, coin(0.9))
    unknown = posterior([("b", None)], TWO_WAY, coin(0.7))
    assert unknown == pytest.approx(known)


def test_without_votes_it_is_what_was_believed_before() -> None:
    assert posterior([], (0.4, 0.3, 0.2, 0.1), coin(0.7)) == pytest.approx((0.4, 0.3, 0.2, 0.1))


def test_a_choice_that_is_not_offered_stays_impossible() -> None:
    uniform = [0.25] * 16
    assert posterior([("tie", uniform)], TWO_WAY, uniform)[2:] == (0, 0)
    with pytest.raises(ValueError, match="no choice is offered"):
        posterior([], (0, 0, 0, 0), uniform)


def test_an_impossible_vote_moves_far_and_breaks_nothing() -> None:
    never_wrong = coin(1.0)
    shares = posterior([("a", never_wrong), ("b", never_wrong)], TWO_WAY, never_wrong)
    assert shares[:2] == pytest.approx((0.5, 0.5))


@given(
    n_a=st.integers(0, 30), n_b=st.integers(0, 30), q=st.floats(0.51, 0.99, allow_subnormal=False)
)
def test_it_agrees_with_the_closed_form_of_equal_annotators(n_a: int, n_b: int, q: float) -> None:
    votes = [("a", coin(q))] * n_a + [("b", coin(q))] * n_b
    shares = posterior(votes, TWO_WAY, coin(q))
    assert shares[0] == pytest.approx(two_way_posterior(n_a, n_b, q), abs=1e-9)
    assert math.fsum(shares) == pytest.approx(1)


def counts(a: int = 0, b: int = 0, tie: int = 0, both_bad: int = 0) -> dict[Choice, int]:
    return dict(zip(CHOICES, (a, b, tie, both_bad), strict=True))


def test_three_to_two_is_not_enough_where_annotators_are_right_in_three_of_four() -> None:
    """The rule that can fail: 3 of 5 passes "3 agreeing and 0.6" always, and here it does not."""
    rule = PosteriorRule(least_posterior=0.9, least_votes=3, max_votes=5)
    shares = posterior([("a", coin(0.73))] * 3 + [("b", coin(0.73))] * 2, TWO_WAY, coin(0.5))
    decision = decide_by_posterior(counts(3, 2), shares, rule)
    assert decision.outcome is Outcome.CONTESTED
    assert decision.reason == (
        "A is right with probability 73.0 %, with 3 of 5 votes; accepted from 90% on, "
        "after 3 votes; no more votes come."
    )
    shares = posterior([("a", coin(0.73))] * 4 + [("b", coin(0.73))], TWO_WAY, coin(0.5))
    assert decide_by_posterior(counts(4, 1), shares, rule).winner is Choice.A


def test_it_waits_for_the_least_votes_and_for_those_that_may_come() -> None:
    rule = PosteriorRule(least_posterior=0.9, least_votes=2, max_votes=5)
    sure = (0.99, 0.01, 0.0, 0.0)
    assert decide_by_posterior(counts(1), sure, rule).outcome is Outcome.NEEDS_VOTES
    assert decide_by_posterior(counts(1), sure, rule, votes_possible=1).outcome is Outcome.CONTESTED
    assert decide_by_posterior(counts(2), sure, rule).outcome is Outcome.ACCEPTED
    unsure = (0.6, 0.4, 0.0, 0.0)
    assert decide_by_posterior(counts(3, 1), unsure, rule).outcome is Outcome.NEEDS_VOTES


def test_a_tie_of_posteriors_is_never_broken() -> None:
    decision = decide_by_posterior(counts(1, 1), (0.5, 0.5, 0, 0), PosteriorRule())
    assert (decision.winner, decision.leading) == (None, None)


def test_a_minority_that_is_more_probable_wins_and_the_reason_says_so() -> None:
    rule = PosteriorRule(least_posterior=0.75, least_votes=3)
    decision = decide_by_posterior(counts(1, 2), (0.8, 0.2, 0, 0), rule)
    assert decision.winner is Choice.A
    assert "with 1 of 3 votes" in decision.reason


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"least_posterior": 0.5}, "least_posterior"),
        ({"least_votes": 0}, "least_votes"),
        ({"least_votes": 6, "max_votes": 5}, "max_votes"),
    ],
)
def test_a_rule_that_means_nothing_is_refused(values: dict[str, float], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        PosteriorRule(**values)


@given(
    st.lists(
        st.tuples(
            st.tuples(*[st.integers(0, 4)] * 4),
            st.sampled_from(
                [(0.95, 0.03, 0.02, 0.0), (0.5, 0.5, 0, 0), (0.1, 0.2, 0.7, 0), (0, 0.09, 0, 0.91)]
            ),
            st.integers(0, 12),
        ),
        max_size=12,
    ),
    st.integers(1, 4),
)
def test_many_at_once_decide_as_one_by_one(
    rows: list[tuple[tuple[int, ...], tuple[float, ...], int]], least_votes: int
) -> None:
    rule = PosteriorRule(least_posterior=0.9, least_votes=least_votes, max_votes=12)
    many = decide_many_by_posterior(
        np.array([row[0] for row in rows]).reshape(-1, 4),
        np.array([row[1] for row in rows]).reshape(-1, 4),
        rule,
        votes_possible=[row[2] for row in rows],
    )
    for place, (votes, shares, possible) in enumerate(rows):
        one = decide_by_posterior(counts(*votes), shares, rule, votes_possible=possible)
        assert many.outcomes()[place] is one.outcome
        assert many.winners()[place] is one.winner
        assert many.n_agreeing[place] == one.n_agreeing

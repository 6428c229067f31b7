"""One comparison under a rule."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from measures.voting import (
    CHOICES,
    Choice,
    Decision,
    Outcome,
    PosteriorRule,
    Rule,
    count_votes,
    decide,
    decide_by_posterior,
    decide_many,
    decide_many_by_posterior,
    posterior,
    two_way_posterior,
)
from tests.measures.crowds import counts_of


def votes(text: str) -> list[str]:
    """ "aabt" to votes; x is both bad."""
    return [{"a": "a", "b": "b", "t": "tie", "x": "both_bad"}[letter] for letter in text]


@pytest.mark.parametrize(
    ("cast", "outcome", "winner"),
    [
        ("", Outcome.NEEDS_VOTES, None),
        ("aa", Outcome.NEEDS_VOTES, None),
        ("aaa", Outcome.ACCEPTED, Choice.A),
        ("bbb", Outcome.ACCEPTED, Choice.B),
        ("ttt", Outcome.ACCEPTED, Choice.TIE),
        ("xxx", Outcome.ACCEPTED, Choice.BOTH_BAD),
        ("aab", Outcome.NEEDS_VOTES, None),
        ("aaab", Outcome.ACCEPTED, Choice.A),
        ("aaabb", Outcome.ACCEPTED, Choice.A),
        ("aabbt", Outcome.CONTESTED, None),
        ("aatxb", Outcome.CONTESTED, None),
        ("abtx", Outcome.CONTESTED, None),  # one more vote makes two of five at best
        ("aabb", Outcome.NEEDS_VOTES, None),
    ],
)
def test_the_default_rule_decides_as_a_person_would_by_hand(cast, outcome, winner):
    decision = decide(votes(cast))
    assert (decision.outcome, decision.winner) == (outcome, winner)
    assert decision.n_votes == len(cast)


def test_the_choices_are_stored_under_exactly_these_words():
    assert [str(choice) for choice in CHOICES] == ["a", "b", "tie", "both_bad"]
    assert [str(outcome) for outcome in Outcome] == ["accepted", "contested", "needs_votes"]


def test_ties_and_both_bad_stay_in_the_denominator():
    rule = Rule(least_share=0.75, max_votes=5)
    assert decide(votes("aaa"), rule).winner is Choice.A
    with_tie = decide(votes("aaatx"), rule)
    assert with_tie.outcome is Outcome.CONTESTED
    assert with_tie.share == pytest.approx(3 / 5)


def test_a_vote_tie_is_contested_and_never_broken_even_where_both_meet_the_rule():
    rule = Rule(least_votes=2, least_agreeing=2, least_share=0.5, max_votes=4)
    outcomes = {decide(order, rule) for order in itertools.permutations(votes("aabb"))}
    assert len(outcomes) == 1
    decision = outcomes.pop()
    assert decision.outcome is Outcome.CONTESTED
    assert decision.winner is None
    assert decision.leading is None


def test_a_comparison_whose_last_vote_is_in_does_not_wait_for_the_rules_maximum():
    assert decide(votes("aab")).outcome is Outcome.NEEDS_VOTES
    assert decide(votes("aab"), votes_possible=3).outcome is Outcome.CONTESTED
    # Fewer possible than cast means only that no more come.
    assert decide(votes("aab"), votes_possible=0).outcome is Outcome.CONTESTED
    assert decide(votes("abtx"), votes_possible=9).outcome is Outcome.NEEDS_VOTES


def test_without_a_maximum_only_a_share_of_one_can_become_out_of_reach():
    patient = Rule(max_votes=None)
    strict = Rule(least_share=1.0, max_votes=None)
    assert decide(votes("abtx" * 10), patient).outcome is Outcome.NEEDS_VOTES
    assert decide(votes("aab"), strict).outcome is Outcome.CONTESTED
    assert decide(votes("aa"), strict).outcome is Outcome.NEEDS_VOTES


def test_counts_and_votes_give_the_same_decision():
    assert decide({"a": 3, Choice.TIE: 1}) == decide(votes("ataa"))


def test_count_votes_names_every_choice():
    assert count_votes(votes("abba")) == {"a": 2, "b": 2, "tie": 0, "both_bad": 0}


@pytest.mark.parametrize("bad", [["a", "left"], {"left": 2}])
def test_an_unknown_choice_is_refused_by_name(bad):
    with pytest.raises(ValueError, match="'left'"):
        decide(bad)


@pytest.mark.parametrize("count", [-1, 1.5])
def test_an_impossible_count_is_refused(count):
    with pytest.raises(ValueError, match="'a' must be"):
        decide({"a": count})


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"least_votes": 0}, "least_votes"),
        ({"least_agreeing": 0}, "least_agreeing"),
        ({"least_share": 0.0}, "least_share"),
        ({"least_share": 60}, "least_share"),
        ({"least_votes": 6}, "nothing could ever be accepted"),
        ({"least_agreeing": 4, "max_votes": 3}, "nothing could ever be accepted"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(fields, complaint):
    with pytest.raises(ValueError, match=complaint):
        Rule(**fields)


RULES = st.builds(
    lambda least_votes, least_agreeing, share, spare: Rule(
        least_votes, least_agreeing, share, max(least_votes, least_agreeing) + spare
    ),
    st.integers(1, 5),
    st.integers(1, 5),
    st.sampled_from([0.3, 0.5, 0.6, 2 / 3, 0.75, 0.8, 1.0]),
    st.integers(0, 2),
)


@given(st.lists(st.sampled_from(CHOICES), max_size=6), RULES)
def test_needs_votes_exactly_when_some_further_votes_would_be_accepted(cast, rule):
    """By trying every completion instead of reasoning about the best one."""
    decision = decide(cast, rule)
    remaining = max(0, rule.max_votes - len(cast))
    reachable = any(
        decide([*cast, *more], rule, votes_possible=0).outcome is Outcome.ACCEPTED
        for extra in range(1, remaining + 1)
        for more in itertools.combinations_with_replacement(CHOICES, extra)
    )
    if decision.outcome is not Outcome.ACCEPTED:
        assert (decision.outcome is Outcome.NEEDS_VOTES) == reachable


@given(st.lists(st.sampled_from(CHOICES), max_size=8), RULES, st.randoms())
def test_the_order_of_votes_never_matters(cast, rule, random):
    shuffled = random.sample(cast, len(cast))
    assert decide(shuffled, rule) == decide(cast, rule)


@given(st.lists(st.sampled_from(CHOICES), max_size=8), RULES)
def test_swapping_the_two_answers_swaps_the_winner_and_nothing_else(cast, rule):
    swap = {Choice.A: Choice.B, Choice.B: Choice.A}
    before = decide(cast, rule)
    after = decide([swap.get(vote, vote) for vote in cast], rule)
    expected = None if before.winner is None else swap.get(before.winner, before.winner)
    assert after.winner == expected
    assert after.outcome is before.outcome


def test_decisions_are_plain_values():
    assert decide(votes("aab")) == decide(votes("baa"))
    assert isinstance(decide([]), Decision)
    assert decide([]).share is None


# A whole project at once.


TABLES = arrays(np.int64, st.tuples(st.integers(0, 12), st.just(4)), elements=st.integers(0, 4))


@given(TABLES, RULES, st.none() | st.integers(0, 9))
def test_many_decisions_are_the_single_ones(table, rule, possible):
    together = decide_many(table, rule, votes_possible=possible)
    alone = [
        decide(dict(zip(CHOICES, map(int, row), strict=True)), rule, votes_possible=possible)
        for row in table
    ]
    assert together.outcomes() == [decision.outcome for decision in alone]
    assert together.winners() == [decision.winner for decision in alone]
    assert together.n_votes.tolist() == [decision.n_votes for decision in alone]
    assert together.n_agreeing.tolist() == [decision.n_agreeing for decision in alone]
    shares = [None if np.isnan(share) else share for share in together.share]
    assert shares == [decision.share for decision in alone]


@given(TABLES, st.sampled_from([0.5, 0.6, 1.0]))
def test_many_decisions_are_the_single_ones_without_a_maximum(table, share):
    rule = Rule(least_share=share, max_votes=None)
    alone = [decide(dict(zip(CHOICES, map(int, row), strict=True)), rule) for row in table]
    assert decide_many(table, rule).outcomes() == [decision.outcome for decision in alone]


def test_each_comparison_may_have_its_own_last_vote():
    table = [[2, 1, 0, 0], [2, 1, 0, 0]]
    decided = decide_many(table, votes_possible=np.array([3, 5]))
    assert decided.outcomes() == [Outcome.CONTESTED, Outcome.NEEDS_VOTES]


def test_real_crowds_keep_what_was_measured_on_them():
    """Share >= 0.6 keeps 85.0 % of the argument pairs and 91.9 % of the entailment ones."""
    rule = Rule(least_votes=1, least_agreeing=1, least_share=0.6, max_votes=None)
    for name, kept in [("ukp", 0.850), ("rte", 0.919)]:
        counts = counts_of(name)
        tally = decide_many(counts, rule, votes_possible=0).tally()
        assert tally[Outcome.ACCEPTED] / len(counts) == pytest.approx(kept, abs=5e-4)
        assert sum(tally.values()) == len(counts)


def test_real_crowds_without_a_unique_top_label_are_not_accepted():
    lenient = Rule(least_votes=1, least_agreeing=1, least_share=0.01, max_votes=None)
    for name, without_top in [("ukp", 322), ("rte", 65)]:
        tally = decide_many(counts_of(name), lenient, votes_possible=0).tally()
        assert tally[Outcome.CONTESTED] == without_top


def test_no_comparisons_give_no_decisions():
    assert len(decide_many(np.zeros((0, 4), dtype=int))) == 0
    assert decide_many([[0, 0, 3, 0]]).winners() == [Choice.TIE]


@pytest.mark.parametrize("bad", [[[1, 2, 3]], [1, 2, 3, 4], [[0, 0, 0, -1]], [[0.5, 0, 0, 0]]])
def test_a_table_that_is_not_counts_is_refused(bad):
    with pytest.raises(ValueError, match="counts must"):
        decide_many(bad)


# The posterior of one comparison is Bayes' rule, and decisions by it can fail.


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
    with pytest.raises(ValueError, match="no choice"):
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
    assert decision.probability == pytest.approx(0.73)
    assert (decision.n_agreeing, decision.n_votes) == (3, 5)
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


def test_a_minority_that_is_more_probable_wins() -> None:
    rule = PosteriorRule(least_posterior=0.75, least_votes=3)
    decision = decide_by_posterior(counts(1, 2), (0.8, 0.2, 0, 0), rule)
    assert decision.winner is Choice.A
    assert (decision.n_agreeing, decision.n_votes) == (1, 3)


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

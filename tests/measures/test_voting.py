"""One comparison under a rule."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from measures.voting import CHOICES, Choice, Decision, Outcome, Rule, count_votes, decide


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
    assert "tie is not broken at random" in decision.reason


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
    with pytest.raises(ValueError, match=r"'left'.*a, b, tie, both_bad"):
        decide(bad)


@pytest.mark.parametrize("count", [-1, 1.5])
def test_an_impossible_count_is_refused(count):
    with pytest.raises(ValueError, match="'a' must be a whole number"):
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


@pytest.mark.parametrize(
    ("cast", "possible", "sentence"),
    [
        (
            "aaab",
            None,
            "A has 3 of 4 votes (75%); the rule asks for 3 votes, 3 agreeing and a share of 0.6.",
        ),
        (
            "aabb",
            None,
            "A and B have 2 of 4 votes each, and a vote tie is not broken at random so far; the "
            "rule asks for 3 votes, 3 agreeing and a share of 0.6; 1 more vote can still come.",
        ),
        (
            "xxa",
            3,
            "both bad has 2 of 3 votes (67%); the rule asks for 3 votes, 3 agreeing and a share "
            "of 0.6; no more votes come.",
        ),
        (
            "abtx",
            None,
            "A, B, tie and both bad have 1 of 4 votes each, and a vote tie is not broken at random;"
            " the rule asks for 3 votes, 3 agreeing and a share of 0.6, which 1 more vote could no "
            "longer meet.",
        ),
        (
            "",
            5,
            "No votes so far; the rule asks for 3 votes, 3 agreeing and a share of 0.6; "
            "5 more votes can still come.",
        ),
    ],
)
def test_the_reason_is_a_sentence_a_person_can_check(cast, possible, sentence):
    assert decide(votes(cast), votes_possible=possible).reason == sentence


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

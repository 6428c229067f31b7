"""A whole project at once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from measures.voting import CHOICES, Choice, Outcome, Rule, decide, decide_many
from tests.measures.crowds import counts_of
from tests.measures.test_voting import RULES

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

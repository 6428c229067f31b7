"""The entropy of votes: against draws from its posterior, and by what it must and must not do."""

import numpy as np
import pytest

from measures.ambiguity import vote_entropy


@pytest.mark.parametrize("counts", [(2, 1), (3, 3), (4, 1, 1), (1, 0), (2, 2, 1, 3)])
def test_it_is_the_mean_entropy_of_what_the_votes_leave_possible(counts: tuple[int, ...]) -> None:
    alpha = np.array(counts) + 1 / len(counts)
    p = np.random.default_rng(3).dirichlet(alpha, 200_000)
    drawn = -(p * np.log2(np.maximum(p, 1e-300))).sum(axis=1)
    assert vote_entropy([counts])[0] == pytest.approx(drawn.mean(), abs=0.003)


def test_with_many_votes_it_is_the_entropy_of_the_shares() -> None:
    shares = np.array([0.5, 0.25, 0.125, 0.125])
    assert vote_entropy([80_000 * shares])[0] == pytest.approx(1.75, abs=0.001)


def test_more_evidence_for_the_same_split_ranks_higher() -> None:
    one, three, five = vote_entropy([[1, 1], [3, 3], [5, 5]])
    assert one < three < five < 1.0


def test_agreement_ranks_lower_the_more_agree() -> None:
    one, three, five = vote_entropy([[1, 0], [3, 0], [5, 0]])
    assert one > three > five > 0.0


def test_the_names_of_the_choices_do_not_matter() -> None:
    assert np.ptp(vote_entropy([[3, 1, 0, 1], [1, 3, 1, 0], [0, 1, 1, 3]])) < 1e-12


def test_choices_nobody_made_are_no_possibility_but_one() -> None:
    assert vote_entropy([[2, 1, 0, 0]]) == pytest.approx(vote_entropy([[2, 1]]))
    assert vote_entropy([[3, 0, 0, 0]]) == pytest.approx(vote_entropy([[3, 0]]))
    # so one against one is not more undecided than three against three, whatever is offered
    assert np.diff(vote_entropy([[1, 1, 0, 0], [3, 3, 0, 0], [2, 2, 2, 0]])).min() > 0


def test_without_votes_nothing_is_said() -> None:
    assert np.isnan(vote_entropy([[0, 0]])[0])
    with pytest.raises(ValueError, match="none negative"):
        vote_entropy([[-1, 2]])

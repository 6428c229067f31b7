"""Votes as index vectors, and counting them."""

import numpy as np
import pytest

from measures.consensus import majority, votes_from, wawa, winners
from tests.measures.consensus.crowds import real_crowd


def test_sizes_and_offered_choices_follow_from_the_votes():
    votes = votes_from([0, 2], [1, 0], [0, 2])
    assert (votes.n_items, votes.n_annotators, len(votes)) == (3, 2, 2)
    assert votes.offered.tolist() == [True, True, True, False]
    assert votes.counts().tolist() == [[1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0]]


def test_no_votes_at_all_are_votes_too():
    votes = votes_from(np.zeros(0, int), np.zeros(0, int), np.zeros(0, int))
    assert (votes.n_items, votes.n_annotators, len(votes)) == (0, 0, 0)
    assert votes.offered.tolist() == [True, True, False, False]


def test_a_choice_that_was_offered_once_stays_offered():
    votes = votes_from([0], [0], [3], offered=[True, True, True, False])
    assert votes.offered.all()


def test_a_subset_keeps_the_numbers_of_items_and_annotators():
    votes = votes_from([0, 1, 2], [0, 1, 2], [0, 0, 0])
    part = votes.subset(votes.items > 1)
    assert (len(part), part.n_items, part.n_annotators) == (1, 3, 3)


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (([0], [0, 1], [0]), "differ in length"),
        (([-1], [0], [0]), "items must lie between"),
        (([0], [0], [4]), "choices must lie between"),
        (([0.5], [0], [0]), "whole numbers"),
        (([[0]], [0], [0]), "a vector"),
    ],
)
def test_what_is_not_a_list_of_votes_is_refused(vectors, message):
    with pytest.raises(ValueError, match=message):
        votes_from(*vectors)


def test_an_item_beyond_the_stated_number_is_refused():
    with pytest.raises(ValueError, match="items must lie between 0 and 1"):
        votes_from([2], [0], [0], n_items=2)


def test_majority_leaves_a_tie_of_votes_open():
    votes = votes_from([0, 0, 1, 1, 1], [0, 1, 0, 1, 2], [0, 1, 0, 1, 1], n_items=3)
    found = majority(votes)
    assert found.winner.tolist() == [-1, 1, -1]
    assert found.shares[1] == pytest.approx([1 / 3, 2 / 3, 0, 0])
    assert found.shares[2].tolist() == [0, 0, 0, 0]


def test_wawa_by_hand():
    # Items 0 and 1: Ana and Ben say a, Cem b. Item 2: Ana a, Cem b, a tie: half a point each.
    votes = votes_from([0, 0, 0, 1, 1, 1, 2, 2], [0, 1, 2, 0, 1, 2, 0, 2], [0, 0, 1, 0, 0, 1, 0, 1])
    found = wawa(votes)
    ana, ben, cem = 2.5 / 3, 1.0, 0.5 / 3
    assert found.weights == pytest.approx([ana, ben, cem])
    assert found.shares[2, 0] == pytest.approx(ana / (ana + cem))
    assert found.winner.tolist() == [0, 0, 0]


def test_majority_on_rte_is_right_as_often_as_published():
    votes, gold = real_crowd("rte")
    right = (majority(votes).winner == gold).mean() + (majority(votes).winner == -1).mean() / 2
    assert right == pytest.approx(0.896875)


def test_winners_are_alone_at_the_top():
    rows = [[0.5, 0.5, 0, 0], [0.5 + 1e-12, 0.5 - 1e-12, 0, 0], [0.6, 0.4, 0, 0], [0, 0, 0, 0]]
    assert winners(rows).tolist() == [-1, -1, 0, -1]
    assert winners(np.zeros((0, 4))).tolist() == []

"""Orders out of results, against orders that are known."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from measures.ranking import groups_of, ranking_of


def test_a_full_tournament_is_ordered_as_it_was_played() -> None:
    strongest_first = [3, 0, 2, 1]
    found = ranking_of(4, list(combinations(strongest_first, 2)))
    assert found.order == (3, 0, 2, 1)
    assert found.scores == (3, 1, -1, -3)
    assert (found.cyclic, found.complete) == (False, True)


def test_a_win_outweighs_a_better_score() -> None:
    """1 beat 0, who beat three others: by score alone 0 would go first."""
    found = ranking_of(5, [(1, 0), (0, 2), (0, 3), (0, 4)])
    assert found.order[:2] == (1, 0)
    assert (found.cyclic, found.complete) == (False, False)  # 2, 3 and 4 never met


def test_a_cycle_is_said() -> None:
    found = ranking_of(4, [(0, 1), (1, 2), (2, 0), (2, 3)])
    assert (found.cyclic, found.complete) == (True, False)
    assert found.order[-1] == 3  # the block of three beat it


def test_a_pair_that_met_often_counts_for_whoever_won_more_often() -> None:
    assert ranking_of(2, [(0, 1), (1, 0), (1, 0)]).order == (1, 0)
    even = ranking_of(2, [(0, 1), (1, 0)])
    assert (even.order, even.cyclic, even.complete) == ((0, 1), False, False)


def test_answers_that_were_never_connected_stay_apart() -> None:
    assert groups_of(6, [(0, 1), (2, 1), (4, 3)]) == [[0, 1, 2], [3, 4], [5]]
    assert groups_of(0, []) == []


@pytest.mark.parametrize("bad", [(0, 0), (0, 2), (-1, 0)])
def test_a_result_must_be_between_two_items(bad: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="no result between 2 items"):
        ranking_of(2, [bad])


@given(st.permutations(range(7)), st.data())
def test_every_result_is_kept_where_nothing_is_cyclic(order: list[int], data) -> None:
    place = {item: k for k, item in enumerate(order)}
    played = data.draw(st.lists(st.sampled_from(list(combinations(range(7), 2))), unique=True))
    wins = [(a, b) if place[a] < place[b] else (b, a) for a, b in played]
    found = ranking_of(7, wins)
    where = {item: k for k, item in enumerate(found.order)}
    assert sorted(found.order) == list(range(7))
    assert not found.cyclic
    assert all(where[winner] < where[loser] for winner, loser in wins)
    assert found.complete == all(pair in wins for pair in pairwise(found.order))
    if found.complete:
        assert found.order == tuple(order)

"""Raters on one scale, spread per prompt, and pairs: against hand counts and other libraries."""

import statistics
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from measures.ratings import (
    competition_ranks,
    normalise_by_rater,
    pairs_of_grades,
    pairs_of_ranking,
    rank_scores,
    spread_of,
)
from measures.voting import Choice

RANKINGS = st.integers(2, 9).flatmap(lambda k: st.lists(st.integers(1, k), min_size=k, max_size=k))


def test_a_rater_who_uses_twice_the_scale_is_equalised() -> None:
    rng = np.random.default_rng(3)
    quality = rng.normal(size=400)
    modest = 4 + quality + rng.normal(0, 0.4, 400)
    bold = 4 + 2 * (quality + rng.normal(0, 0.4, 400))
    raters = np.repeat([1, 2], 400)
    found = normalise_by_rater(np.concatenate([modest, bold]), raters)
    assert found.deviations[2] / found.deviations[1] == pytest.approx(2, rel=0.08)
    z = found.z.reshape(2, 400)
    # before, the bold rater differs from the modest one by a whole deviation and more
    assert np.std(modest - bold) > 1
    assert z[1] == pytest.approx(stats.zscore(bold))
    assert np.std(z[0] - z[1]) < 0.6
    assert z.mean(axis=1) == pytest.approx([0, 0], abs=1e-9)
    assert z.std(axis=1) == pytest.approx([1, 1])


def test_a_severe_and_a_lenient_rater_end_up_alike() -> None:
    found = normalise_by_rater([1, 2, 3, 5, 6, 7], [10, 10, 10, 20, 20, 20])
    assert found.means == {10: 2.0, 20: 6.0}
    assert found.z[:3] == pytest.approx(found.z[3:])
    assert found.z[2] == pytest.approx(1 / statistics.pstdev([1, 2, 3]))


def test_raters_who_tell_nothing_apart_are_left_out_and_named() -> None:
    found = normalise_by_rater([4, 4, 4, 2, 6, 0.1 + 0.2, 0.3], [1, 1, 1, 2, 2, 3, 3])
    assert found.constant == (1, 3)  # 3 differs by rounding alone
    assert np.isnan(found.z[[0, 1, 2, 5, 6]]).all()
    assert found.z[3:5] == pytest.approx([-1, 1])
    assert normalise_by_rater([5], [9]).constant == (9,)
    assert normalise_by_rater([], []).z.size == 0


@pytest.mark.parametrize("grades", [[1.0, float("nan")], [1.0, float("inf")]])
def test_a_grade_that_is_no_number_is_refused(grades: list[float]) -> None:
    with pytest.raises(ValueError, match="not a finite number"):
        normalise_by_rater(grades, [1, 1])


def test_grades_and_raters_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="of a length"):
        normalise_by_rater([1, 2], [1])


def test_spread_agrees_with_a_count_by_hand() -> None:
    # two raters, three responses: means 2, 4, 6; each rater half a point or one off
    found = spread_of([[1.5, 4, 7], [2.5, 4, 5]])
    assert found.means == (2.0, 4.0, 6.0)
    assert found.mean == 4.0
    assert found.between_responses == pytest.approx(2.0)
    # squares 0.25 + 0.25 + 0 + 0 + 1 + 1 over (2 − 1)·3
    assert found.between_raters == pytest.approx((2.5 / 3) ** 0.5)
    assert (found.n_ratings, found.n_responses) == (2, 3)


def test_spread_is_the_root_of_the_mean_squares_of_a_one_way_analysis_of_variance() -> None:
    table = np.random.default_rng(5).normal(size=(6, 4))
    found = spread_of(table)
    f = stats.f_oneway(*table.T).statistic
    assert 6 * found.between_responses**2 / found.between_raters**2 == pytest.approx(f)


def test_what_too_few_ratings_cannot_say_is_not_said() -> None:
    one_rating = spread_of([[1, 5]])
    assert one_rating.between_raters is None
    assert one_rating.between_responses == pytest.approx(statistics.stdev([1, 5]))
    one_response = spread_of([[3], [5]])
    assert one_response.between_responses is None
    assert one_response.between_raters == pytest.approx(2**0.5)
    nothing = spread_of(np.empty((0, 3)))
    assert (nothing.mean, nothing.means, nothing.n_ratings) == (None, (), 0)


@given(RANKINGS)
def test_ranks_have_one_form_that_scipy_agrees_with(ranks: list[int]) -> None:
    once = competition_ranks(ranks)
    assert once == list(stats.rankdata(ranks, method="min"))
    assert competition_ranks(once) == once


@given(RANKINGS)
def test_rank_scores_are_the_mean_ranks_turned_round(ranks: list[int]) -> None:
    k = len(ranks)
    expected = (k - stats.rankdata(ranks)) / (k - 1)
    assert rank_scores(ranks) == pytest.approx(list(expected))
    assert sum(rank_scores(ranks)) == pytest.approx(k / 2)


def test_a_ranking_of_one_has_no_scores() -> None:
    with pytest.raises(ValueError, match="at least two"):
        rank_scores([1])


def test_a_ranking_of_four_gives_six_pairs_and_keeps_its_tie() -> None:
    pairs = {(p.a, p.b): p.choice for p in pairs_of_ranking([2, 1, 2, 4])}
    assert pairs == {
        (0, 1): Choice.B,
        (0, 2): Choice.TIE,
        (0, 3): Choice.A,
        (1, 2): Choice.A,
        (1, 3): Choice.A,
        (2, 3): Choice.A,
    }


@given(RANKINGS)
def test_the_pairs_of_a_ranking_give_the_ranking_back(ranks: list[int]) -> None:
    pairs = pairs_of_ranking(ranks)
    assert [(p.a, p.b) for p in pairs] == list(combinations(range(len(ranks)), 2))
    losses = [0] * len(ranks)
    for pair in pairs:
        if pair.choice == Choice.A:
            losses[pair.b] += 1
        elif pair.choice == Choice.B:
            losses[pair.a] += 1
    assert [1 + n for n in losses] == competition_ranks(ranks)


def test_a_higher_grade_is_better_where_a_higher_rank_is_worse() -> None:
    assert [p.choice for p in pairs_of_grades([7, 3])] == [Choice.A]
    assert [p.choice for p in pairs_of_ranking([7, 3])] == [Choice.B]
    assert pairs_of_grades([4]) == []

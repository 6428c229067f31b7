"""Raters on one scale, spread per prompt, and pairs: against hand counts and other libraries."""

import statistics
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from measures.cost import label_cost
from measures.ranking import groups_of, ranking_of
from measures.ratings import (
    competition_ranks,
    normalise_by_rater,
    pairs_of_grades,
    pairs_of_ranking,
    rank_scores,
    spread_of,
)
from measures.splits import effective_sample_size
from measures.voting import Choice
from measures.weights import (
    capped_weights,
    even_allocation,
    even_weights,
    recency_weights,
    scaled_grades,
)

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


# Orders out of results, against orders that are known.


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
    with pytest.raises(ValueError, match="2 items"):
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


# Weights of training rows.


def test_each_stratum_weighs_the_same_and_the_mean_stays_one() -> None:
    strata = ["long"] * 95 + ["short"] * 5
    w = even_weights([strata], 100)
    assert w.mean() == pytest.approx(1)
    assert w[:95].sum() == pytest.approx(w[95:].sum()) == pytest.approx(50)


def test_two_classifications_are_evened_together() -> None:
    rng = np.random.default_rng(1)
    topic = rng.choice(["x", "y", "z"], 400, p=[0.7, 0.2, 0.1]).tolist()
    length = [rng.choice(["l", "s"], p=[0.9, 0.1] if t == "x" else [0.5, 0.5]) for t in topic]
    w = even_weights([topic, length], 400)
    for strata in (topic, length):
        totals = [w[np.array(strata) == s].sum() for s in sorted(set(strata))]
        assert totals == pytest.approx([400 / len(totals)] * len(totals))


def test_a_stratum_of_one_percent_is_capped_and_the_rest_makes_up_the_mean() -> None:
    strata = ["common"] * 990 + ["rare"] * 10
    made = capped_weights(even_weights([strata], 1000), 5)
    assert made.n_capped == 10
    assert made.weights.max() == 5
    assert made.weights.mean() == pytest.approx(1)
    # By hand: 10 rows at 5 leave 950 for 990 rows.
    assert made.weights[:990] == pytest.approx(np.full(990, 950 / 990))
    # Kish: 1000² / (990 (950/990)² + 10 · 25)
    assert effective_sample_size(made.weights).value == pytest.approx(
        1000**2 / (950**2 / 990 + 250)
    )


def test_nothing_is_capped_where_nothing_is_rare() -> None:
    made = capped_weights([1.0, 2.0, 3.0], 5)
    assert made.n_capped == 0
    assert made.weights == pytest.approx([0.5, 1.0, 1.5])


@pytest.mark.parametrize("cap", [1, 1.5, 3, 100])
def test_no_weight_exceeds_the_cap_whatever_came_in(cap: float) -> None:
    raw = np.random.default_rng(2).lognormal(0, 3, 200)
    made = capped_weights(raw, cap)
    assert made.weights.max() <= cap
    assert made.weights.mean() == pytest.approx(1)
    order = np.argsort(raw)
    assert (np.diff(made.weights[order]) >= -1e-12).all()


def test_too_few_positive_weights_stand_at_the_cap() -> None:
    assert capped_weights([0, 0, 0, 1], 2).weights.tolist() == [0, 0, 0, 2]
    assert capped_weights([], 2).weights.tolist() == []


def test_a_vote_counts_half_after_the_half_life() -> None:
    assert recency_weights([0, 30, 60], 30).tolist() == [1, 0.5, 0.25]
    with pytest.raises(ValueError, match="half_life"):
        recency_weights([1], 0)


def test_what_a_small_stratum_lacks_the_others_give() -> None:
    assert even_allocation([100, 3, 50], 33).tolist() == [15, 3, 15]
    assert even_allocation([2, 2], 10).tolist() == [2, 2]
    assert even_allocation([5, 5, 5], 4).tolist() == [2, 1, 1]
    assert even_allocation([], 4).tolist() == []


def test_a_rater_who_uses_twice_the_scale_counts_like_the_others() -> None:
    rng = np.random.default_rng(3)
    truth = rng.choice([-1.0, 1.0], 400) * rng.choice([0.5, 1.0], 400)
    grades = np.concatenate([truth, 2 * truth])
    scaled = scaled_grades(grades, ["ana"] * 400 + ["wide"] * 400)
    assert scaled[400:] == pytest.approx(scaled[:400], rel=0.02)
    assert np.sign(scaled).tolist() == np.sign(grades).tolist()


def test_one_grade_of_a_newcomer_is_not_blown_up() -> None:
    scaled = scaled_grades([1.0] * 50 + [2.0], ["ana"] * 50 + ["new"])
    assert 1.0 < scaled[-1] < 2.0
    assert scaled_grades([0.0, 0.0], ["a", "b"]).tolist() == [0, 0]


# What a kept pair costs.


def cost(times: int = 1, **more):
    given = {"n_kept": 80, "active_seconds": 3000.0 * times, "timed": 100 * times}
    purposes = {
        "first": 240 * times,
        "extra": 30 * times,
        "repeat": 20 * times,
        "audit": 10 * times,
    }
    return label_cost(purposes, **given | {"vote_price": 0.25} | more)


def test_a_kept_pair_costs_all_votes_over_all_kept_pairs():
    found = cost()
    assert found.n_votes == 300
    assert found.n_again == 60
    assert found.votes_per_kept.value == pytest.approx(3.75)
    assert found.money.value == pytest.approx(75)
    assert found.money_per_kept.value == pytest.approx(0.9375)
    # 30 s a vote where it is known, 300 votes: 9,000 s
    assert found.hours.value == pytest.approx(2.5)
    assert found.seconds_per_kept.value == pytest.approx(112.5)


def test_twice_the_votes_cost_twice():
    once, twice = cost(), cost(2)
    for name in ("votes_per_kept", "money", "money_per_kept", "hours", "seconds_per_kept"):
        assert getattr(twice, name).value == pytest.approx(2 * getattr(once, name).value)


def test_what_is_not_known_is_said_and_not_zero():
    assert cost(vote_price=0.0).money.undefined == "no_price"
    assert cost(vote_price=0.0).money_per_kept.value is None
    assert cost(timed=0, active_seconds=0.0).hours.undefined == "no_times"
    assert cost(n_kept=0).money_per_kept.undefined == "none_kept"
    assert cost(n_kept=0).money.value == pytest.approx(75)


def test_impossible_counts_are_refused():
    with pytest.raises(ValueError, match="known time"):
        cost(timed=301)
    with pytest.raises(ValueError, match="negative"):
        cost(vote_price=-1.0)

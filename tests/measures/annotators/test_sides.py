"""The pull of a side on each person is found back, and those with few votes are drawn in."""

import numpy as np
import pytest

from measures.annotators.sides import pulls_of


def crowd(seed, *, b=0.3, spread=0.5, pairs=600, people=12, votes=4, merit=1.5):
    rng = np.random.default_rng(seed)
    gain = rng.normal(0, merit, pairs)
    pull = b + rng.normal(0, spread, people)
    pair = np.repeat(np.arange(pairs), votes)
    who = np.argsort(rng.random((pairs, people)), axis=1)[:, :votes].ravel()
    a_left = rng.random(len(pair)) < 0.5
    logit = pull[who] + np.where(a_left, 1, -1) * gain[pair]
    left = (rng.random(len(pair)) < 1 / (1 + np.exp(-logit))).astype(int)
    return (who, pair, left, a_left, people), pull


@pytest.mark.parametrize("shape", [{}, {"votes": 2}, {"merit": 2.5}, {"people": 60}])
def test_planted_pulls_lie_in_their_intervals_as_often_as_they_should(shape):
    inside, centres = [], []
    for seed in range(10):
        votes, planted = crowd(seed, **shape)
        found = pulls_of(*votes)
        inside += list((found.low <= planted) & (planted <= found.high))
        centres.append(found.centre)
    assert np.mean(inside) >= 0.9
    assert np.mean(centres) == pytest.approx(0.3, abs=0.1)


def test_people_who_do_not_differ_are_drawn_together():
    votes, _ = crowd(1, spread=0.0, people=100)
    found = pulls_of(*votes)
    assert np.std(found.value) < 0.1  # as counted, about 24 votes each, they differ by 0.5
    assert found.spread < 0.25


def test_a_left_clicker_stands_apart():
    (who, pair, left, a_left, people), _ = crowd(2, b=0.0, spread=0.1)
    left = np.where(who == 0, 1, left)
    found = pulls_of(who, pair, left, a_left, people)
    assert found.low[0] > 1
    assert found.value[0] > np.delete(found.high, 0).max()


def test_who_has_no_vote_is_where_the_project_is():
    votes, _ = crowd(3)
    found = pulls_of(*votes[:4], 13)
    assert found.n[12] == 0
    assert found.value[12] == pytest.approx(found.centre, abs=0.05)


def test_without_known_sides_there_is_nothing_and_it_says_so():
    found = pulls_of(*(np.array(x) for x in ([0, 1], [0, 0], [-1, -1], [True, False])), 2)
    assert found.undefined == "no vote has a known side"
    assert np.isnan(found.value).all()

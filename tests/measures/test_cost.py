"""What a kept pair costs."""

import pytest

from measures.cost import label_cost


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
    assert cost(vote_price=0.0).money.undefined == "no price of a vote is stated"
    assert cost(vote_price=0.0).money_per_kept.value is None
    assert cost(timed=0, active_seconds=0.0).hours.undefined.startswith("the active time")
    assert cost(n_kept=0).money_per_kept.undefined == "no pair is kept yet"
    assert cost(n_kept=0).money.value == pytest.approx(75)


def test_impossible_counts_are_refused():
    with pytest.raises(ValueError, match="known time"):
        cost(timed=301)
    with pytest.raises(ValueError, match="negative"):
        cost(vote_price=-1.0)

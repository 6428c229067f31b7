"""More people or more votes of the same people."""

import numpy as np
import pytest

from measures.people import LEAST_PEOPLE, crowd_of, spread_of


def test_equal_shares_are_as_many_people_as_there_are_and_one_busy_person_is_few() -> None:
    even = crowd_of([50] * 8)
    assert (even.people, even.votes, even.busiest, even.effective) == (8, 400, 1 / 8, 8)
    busy = crowd_of([900, 50, 50, 0])
    assert (busy.people, busy.busiest) == (3, 0.9)
    assert busy.effective == pytest.approx(1.227, abs=0.001), "1000² / (900² + 2 · 50²)"
    assert crowd_of([]).effective is None
    with pytest.raises(ValueError, match="counted from 0"):
        crowd_of([5, -1])


def test_the_spread_between_people_is_found_again_and_votes_do_not_wash_it_out() -> None:
    """200 people whose own share differs by 0.10, 100 votes each."""
    rng = np.random.default_rng(0)
    p = np.clip(rng.normal(0.6, 0.1, size=200), 0, 1)
    mean = rng.binomial(100, p) / 100
    error = np.sqrt(np.maximum(mean * (1 - mean), 0.01) / 100)
    spread, between = spread_of(mean.tolist(), error.tolist(), [100] * 200)
    assert spread is not None
    assert between.value == pytest.approx(0.1, abs=0.015)
    assert spread.within == pytest.approx(np.sqrt(0.6 * 0.4), abs=0.03)
    twenty = spread.error(effective=20, votes=2_000)
    crowds = np.clip(rng.normal(0.6, 0.1, size=(4_000, 20)), 0, 1)
    scatter = np.std(rng.binomial(100, crowds).mean(axis=1) / 100)
    assert twenty == pytest.approx(scatter, rel=0.1), "as simulated crowds of twenty scatter"
    more_votes = spread.error(effective=20, votes=20_000)
    more_people = spread.error(effective=40, votes=2_000)
    assert more_people < more_votes < twenty, "twice the people beat ten times the votes"


def test_people_who_are_alike_have_no_spread_and_few_people_none_that_is_known() -> None:
    alike, between = spread_of([0.6] * 10, [0.05] * 10, [100] * 10)
    assert between.value == 0
    assert alike is not None
    few = LEAST_PEOPLE - 1
    spread, unknown = spread_of([0.6] * few, [0.05] * few, [100] * few)
    assert spread is None
    assert unknown.undefined == f"too_few unit=people n={few} least={LEAST_PEOPLE}"
    with pytest.raises(ValueError, match="above 0"):
        spread_of([0.6] * 5, [0.0] * 5, [100] * 5)

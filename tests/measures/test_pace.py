"""When a queue will be empty."""

import pytest

from measures.pace import LEAST_VOTES, Finish, daily_pace, finish, forecast


def test_the_pace_of_the_last_days_is_carried_on() -> None:
    found = forecast(to_go=300, recent=400, days_since_first=4.0)
    assert (found.per_day, found.days, found.why_not) == (100, 3, "")


def test_a_first_morning_counts_as_a_whole_day() -> None:
    assert forecast(to_go=300, recent=100, days_since_first=0.1).days == 3


@pytest.mark.parametrize(
    ("to_go", "recent"), [(100, 0), (100, 1), (100, LEAST_VOTES - 1), (0, 50), (10**6, 20)]
)
def test_there_is_no_date_without_a_pace_an_end_or_work(to_go: int, recent: int) -> None:
    found = forecast(to_go=to_go, recent=recent, days_since_first=2.0)
    assert found.days is None
    assert found.why_not


def test_counts_are_not_negative() -> None:
    with pytest.raises(ValueError, match="counted from 0"):
        forecast(to_go=-1, recent=0, days_since_first=0.0)


def test_a_steady_pace_has_a_date_and_a_swaying_one_a_range() -> None:
    steady = daily_pace([100] * 28)
    assert finish(300, steady) == Finish(days=3, soonest=3, latest=3)
    swaying = daily_pace([200, 0] * 14)
    found = finish(1_000, swaying)
    assert found.days == 10
    assert found.soonest is not None
    assert found.latest is not None
    assert 7 < found.soonest < 9
    assert 12 < found.latest < 18
    assert finish(0, steady).days == 0


def test_a_standstill_of_two_weeks_is_no_pace() -> None:
    assert finish(100, daily_pace([50] * 14 + [0] * 14)).why_not == "none_lately"
    assert finish(100, daily_pace([50] * 15 + [0] * 13)).days is not None
    assert finish(100, daily_pace([0] * 28)).why_not == "no_votes"
    assert finish(100, daily_pace([])).why_not == "no_votes"
    assert finish(100, daily_pace([3] * 3)).why_not == "few_votes"
    assert finish(10**6, daily_pace([10] * 28)).why_not == "too_far"


def test_few_days_give_a_date_without_a_range() -> None:
    pace = daily_pace([40, 60])
    assert (pace.per_day.value, pace.per_day.no_interval) == (50, "too_few unit=days n=2 least=10")
    assert finish(100, pace) == Finish(days=2)


def test_a_range_that_may_never_end_has_no_latest_day() -> None:
    found = finish(100, daily_pace([0] * 27 + [300]))
    assert found.days is not None
    assert found.latest is None
    with pytest.raises(ValueError, match="counted from 0"):
        daily_pace([-1])
    with pytest.raises(ValueError, match="counted from 0"):
        finish(-1, daily_pace([10]))

"""When a queue will be empty."""

import pytest

from measures.pace import LEAST_VOTES, forecast


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

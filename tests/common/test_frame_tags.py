"""Times, durations, sizes and figures in words."""

from datetime import UTC, datetime, timedelta
from math import inf, nan

import pytest
from django.utils import timezone

from apps.common import numbers
from apps.common.templatetags import frame


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.7131, "0.713"),
        (1.0, "1.00"),
        (12.345, "12.3"),
        (-0.5, "−0.500"),
        (-0.0000312, "−3.1e-05"),
        (-12, "−12"),
        (0.0, "0.000"),
        (0.001854, "0.00185"),
        (0.0000312, "3.1e-05"),
        (1204.4, "1,204"),
        (10967, "10,967"),
        (nan, "not a number"),
        (inf, "∞"),
        (None, "—"),
        ("soft", "soft"),
        (True, "True"),
    ],
)
def test_a_figure_keeps_what_was_measured_and_no_more(value, words):
    assert numbers.figure(value) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.00438, "0.004"),
        (-0.0621, "−0.062"),
        (-0.0001, "0.000"),
        (None, "—"),
        (nan, "not a number"),
    ],
)
def test_numbers_that_stand_in_a_column_align_on_the_point(value, words):
    assert numbers.fixed(value) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (48, "48 s"), (90, "1 min 30 s"), (720, "12 min"), (12_000, "3 h 20 min"),
     (187_200, "2 d 4 h"), (None, "—")],
)  # fmt: skip
def test_a_duration_is_said_as_people_say_it(seconds, words):
    assert numbers.duration(seconds) == words


@pytest.mark.parametrize(
    ("age", "words"),
    [
        (timedelta(seconds=2), "just now"),
        (timedelta(seconds=45), "45 s ago"),
        (timedelta(minutes=4), "4 min ago"),
        (timedelta(hours=5), "5 h ago"),
        (timedelta(days=3), "3 d ago"),
        (timedelta(hours=-2, minutes=-1), "in 2 h"),
    ],
)
def test_a_time_is_relative_with_the_exact_one_on_hover(age, words):
    at = timezone.now() - age
    text = frame.ago(at)
    assert f">{words}</time>" in text
    assert f"{at:%Y-%m-%d %H:%M:%S}" in text


def test_an_old_time_is_a_date():
    assert ">1 Mar 2020</time>" in frame.ago(datetime(2020, 3, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("size", "words"), [(0, "0 B"), (999, "999 B"), (14_200, "14.2 kB"), (3_100_000, "3.1 MB")]
)
def test_a_size_has_its_unit(size, words):
    assert numbers.filesize(size) == words

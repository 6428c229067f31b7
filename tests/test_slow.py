"""The list of slow tests names tests that there are."""

import re
from pathlib import Path

from tests.slow import LEAST, listed, seconds_of

ROOT = Path(__file__).parents[1]


def test_every_slow_test_is_there() -> None:
    for name in listed():
        path, _, function = name.partition("::")
        assert re.search(rf"^def {function}\(", (ROOT / path).read_text(), re.MULTILINE), name


def test_the_seconds_of_a_test_are_those_of_all_its_parts() -> None:
    printed = """
12.50s call     tests/a.py::test_one[GET /x y]
0.40s setup    tests/a.py::test_one[other]
1.00s teardown tests/b.py::test_two
FAILED tests/b.py::test_two
"""
    found = seconds_of([printed, "2.00s call     tests/b.py::test_two\n"])
    assert found == {"tests/a.py::test_one": 12.9, "tests/b.py::test_two": 3.0}
    assert LEAST >= 1

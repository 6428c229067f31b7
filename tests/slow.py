"""Tests that take over `LEAST` seconds, all their parameters together: `tests/slow.txt` lists them,
`make test-spread` runs them, and `make test` leaves them out.

Written from what both print, on a machine that does nothing else:

    make test ONLY="--durations 0 --durations-min 0.02" > quick.log
    make test-spread ONLY="--durations 0 --durations-min 0.02" > spread.log
    python -m tests.slow quick.log spread.log
"""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

LEAST = 1.0
FILE = Path(__file__).with_name("slow.txt")
_LINE = re.compile(r"^([\d.]+)s (?:call|setup|teardown)\s+(\S+?::[^\[\s]+)", re.MULTILINE)


def listed() -> frozenset[str]:
    return frozenset(FILE.read_text().split())


def seconds_of(outputs: Iterable[str]) -> Mapping[str, float]:
    """{test: seconds, with its fixtures and of all its parameters} of what pytest printed."""
    found: Counter[str] = Counter()
    for text in outputs:
        for seconds, name in _LINE.findall(text):
            found[name] += float(seconds)
    return found


def main() -> None:
    from tests.conftest import SPREAD

    took = seconds_of(Path(name).read_text() for name in sys.argv[1:])
    slow = sorted(
        name
        for name, seconds in took.items()
        if seconds >= LEAST and not any(place in name for place in SPREAD)
    )
    FILE.write_text("".join(f"{name}\n" for name in slow))
    sys.stdout.write(f"{len(slow)} of {len(took)} tests take {LEAST} s or more\n")


if __name__ == "__main__":
    main()

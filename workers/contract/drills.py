"""What of a drill is for tests alone: it starts processes, crashes, and writes where it is told.

`DRILL_FOLDER` is set on a machine of tests, for the web side and the workers; files that a drill
is told to write lie below it. Where it is not set, these options do not exist.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

VARIABLE = "DRILL_FOLDER"
# Each with the value that asks for nothing.
ONLY_IN_TESTS: dict[str, Any] = {
    "fault": "none",
    "hold_file": None,
    "children": 0,
    "ignore_stop": False,
    "witness": None,
}


def drill_folder() -> Path | None:
    """Where the drills of this machine's tests may write; None on any other machine."""
    told = os.environ.get(VARIABLE, "").strip()
    return Path(told).resolve() if told else None


def refused_option(kind: str, config: Mapping[str, Any]) -> str | None:
    """The first option that may not be used here; None when all may."""
    if kind != "drill" or drill_folder() is not None:
        return None
    return next((n for n, idle in ONLY_IN_TESTS.items() if config.get(n, idle) != idle), None)

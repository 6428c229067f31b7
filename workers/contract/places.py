"""Where things of a run may lie: its id is part of paths, so it is checked before one is made."""

import re
from pathlib import PurePosixPath

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")


def is_run_id(value: object) -> bool:
    """Whether `value` names one folder, and nothing above or beside it."""
    return isinstance(value, str) and _RUN_ID.fullmatch(value) is not None


def is_below_run(uri: str, run: str) -> bool:
    """Whether `uri`, a path in the artifact store in its plainest spelling, lies in the run's
    folder."""
    path = PurePosixPath(uri)
    plain = str(path) == uri and ".." not in path.parts and not re.search(r"[\\:\x00]", uri)
    return plain and path.parts[:2] == ("runs", run) and len(path.parts) > 2

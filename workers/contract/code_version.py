"""Which code runs here: that a run was launched with, and that a worker has."""

import importlib.metadata
import subprocess
from functools import cache
from pathlib import Path

UNKNOWN = "unknown"
DIRTY = "-dirty"  # ends a revision whose files were changed since
_ROOT = Path(__file__).resolve().parents[2]


@cache
def code_version() -> str:
    """The git revision (`-dirty` with local changes), else the package's version. Never fails."""
    try:
        answer = subprocess.run(
            ["git", "-C", str(_ROOT), "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True,
            text=True,
            timeout=5,
        )
    except (OSError, subprocess.SubprocessError):
        answer = None
    if answer is not None and answer.returncode == 0 and answer.stdout.strip():
        return answer.stdout.strip()[:80]
    try:
        return f"concord {importlib.metadata.version('concord-server')}"
    except importlib.metadata.PackageNotFoundError:
        return UNKNOWN

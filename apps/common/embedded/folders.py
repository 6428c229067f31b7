"""A folder of ours in the temporary folder, for sockets whose paths must be short."""

import os
import tempfile
from pathlib import Path

from apps.common.embedded.errors import EmbeddedServerError


def temporary_path() -> Path:
    return Path(tempfile.gettempdir()) / f"concord-{os.getuid()}"


def temporary_folder() -> Path:
    """Made, if need be. Others can guess its name and make it first: then it is not used."""
    folder = temporary_path()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise EmbeddedServerError(
            f"{folder}, where sockets and locks would lie, belongs to somebody else. Remove it, or "
            "set TMPDIR to a folder of your own."
        )
    return folder

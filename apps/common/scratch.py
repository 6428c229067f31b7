"""Files that are needed for the length of one piece of work.

All of them lie below `VAR_DIR/scratch`, readable by their owner only, and are deleted with the work
they belong to. What a killed process leaves behind goes with the next sweep.
"""

import contextlib
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from apps.common import environment as env

KEEP_SECONDS = 24 * 3600.0


def scratch_dir() -> Path:
    """`VAR_DIR/scratch`, made where it is missing."""
    folder = env.var_dir() / "scratch"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & 0o067:
        folder.chmod(mode & 0o710)  # below root PostgreSQL's account, in our group, has to pass
    return folder


@contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """A folder of one's own for as long as the block lasts."""
    folder = Path(tempfile.mkdtemp(prefix=f"{prefix}-", dir=scratch_dir()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def scratch_sweep(*, older_than: float = KEEP_SECONDS) -> int:
    """Delete what nobody has touched for so many seconds; returns how many entries went."""
    oldest, gone = time.time() - older_than, 0
    for path in scratch_dir().iterdir():
        with contextlib.suppress(FileNotFoundError):
            if path.lstat().st_mtime >= oldest:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()
            gone += 1
    return gone

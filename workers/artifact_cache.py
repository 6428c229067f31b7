"""Local copies of what lies in a remote artifact store, by content hash: fetched once per machine.

    cache/<sha256>/…      the files of one tree, or one file
    cache/<sha256>.fetch  locked by whoever looks for what is missing there
    cache/<sha256>.use    locked, shared, as long as a process that uses it lives

Locks are the kernel's (flock), so those of a process that was killed are gone with it.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

FETCH, USE = ".fetch", ".use"
DEFAULT_GB = 100.0
_held: dict[Path, IO[str]] = {}  # for as long as this process lives


def cache_folder() -> Path:
    """ARTIFACTS_CACHE, else `cache` beside the attempts that work on this machine."""
    if told := os.environ.get("ARTIFACTS_CACHE"):
        return Path(told).expanduser().resolve()
    work = os.environ.get("WORK_DIR") or Path(os.environ.get("VAR_DIR") or "var") / "work"
    return Path(work).expanduser().resolve() / "cache"


@contextmanager
def filling(cache: Path, sha256: str) -> Iterator[Path]:
    """The folder of one content, while no other process fetches it; afterwards it stays until this
    process is gone. Makes room first, if there is not enough (ARTIFACTS_CACHE_GB)."""
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / sha256
    with _opened(folder, FETCH) as fetching:
        fcntl.flock(fetching, fcntl.LOCK_EX)
        if folder not in _held:
            using = _opened(folder, USE)
            fcntl.flock(using, fcntl.LOCK_SH)
            _held[folder] = using
        if not folder.exists():
            make_room(cache, float(os.environ.get("ARTIFACTS_CACHE_GB") or DEFAULT_GB) * 1e9)
        folder.mkdir(exist_ok=True)
        os.utime(folder)  # the time of its last use
        yield folder


def make_room(cache: Path, most_bytes: float) -> None:
    """Delete what is not in use, what was not used for longest first, down to `most_bytes`."""
    entries = sorted(
        (path for path in cache.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime
    )
    sizes = {path: _size(path) for path in entries}
    for path in entries:
        if sum(sizes.values()) <= most_bytes:
            return
        with _opened(path, FETCH) as fetching, _opened(path, USE) as using:
            if _locks(fetching) and _locks(using):
                shutil.rmtree(path)
                del sizes[path]


def _opened(folder: Path, suffix: str) -> IO[str]:
    return folder.with_name(folder.name + suffix).open("a")


def _locks(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())

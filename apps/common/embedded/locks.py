"""Who uses the embedded servers. The kernel drops a lock with the last process that holds its
file, so a `kill -9` leaves nothing to clean up.
"""

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

_shared: set[int] = set()


def shared_descriptors() -> tuple[int, ...]:
    """The files through which this process counts as a user of the servers.

    A child that is given them (`pass_fds`) counts as one too, so the servers outlive a killed
    supervisor until its last worker has ended in order.
    """
    return tuple(_shared)


class UsersLock:
    """Two locks: `start` serialises starting and stopping, `users` counts who is in."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> "UsersLock":
        self._users = (self._folder / "servers.lock").open("a")
        self._start = (self._folder / "servers.start").open("a")
        return self

    @contextlib.contextmanager
    def exclusive_start(self) -> Iterator[None]:
        fcntl.flock(self._start, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._users, fcntl.LOCK_SH)
            _shared.add(self._users.fileno())
            yield
        finally:
            fcntl.flock(self._start, fcntl.LOCK_UN)

    def is_last_user(self) -> bool:
        """True when nobody else is in; then newcomers wait until this process has left."""
        fcntl.flock(self._start, fcntl.LOCK_EX)
        if lock_taken(self._users):
            return True
        fcntl.flock(self._start, fcntl.LOCK_UN)
        return False

    def wait_until_unused(self) -> None:
        """Returns when nobody is in; then newcomers wait until this process has left."""
        while True:
            fcntl.flock(self._users, fcntl.LOCK_EX)
            # Never wait for `start` while holding `users`: a newcomer takes them the other way.
            if lock_taken(self._start):
                return
            fcntl.flock(self._users, fcntl.LOCK_UN)
            fcntl.flock(self._start, fcntl.LOCK_EX)
            fcntl.flock(self._start, fcntl.LOCK_UN)

    def __exit__(self, *exc: object) -> None:
        _shared.discard(self._users.fileno())
        self._users.close()
        self._start.close()


def lock_taken(file: object) -> bool:
    """Take the lock exclusively unless somebody has it; whether it was taken."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # type: ignore[arg-type] # anything with a descriptor
    except BlockingIOError:
        return False
    return True


# What goes wrong with an embedded server, in words for whoever started it.


class EmbeddedServerError(RuntimeError):
    """An embedded server did not start; the text says which, why, and what to do."""


# A folder of ours in the temporary folder, for sockets whose paths must be short.


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

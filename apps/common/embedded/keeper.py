"""Starts an embedded server again that died, and leaves alone one that is only slow."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Set
from pathlib import Path

from apps.common import environment as env
from apps.common.embedded.locks import EmbeddedServerError, UsersLock, lock_taken
from apps.common.embedded.postgres import ensure_postgres, postgres_runs, stop_postgres
from apps.common.embedded.redis_server import ensure_redis, redis_is_gone, stop_redis

_EVERY = 2.0  # seconds
_PARTS = (
    ("Redis", redis_is_gone, ensure_redis),
    ("PostgreSQL", lambda folder: not postgres_runs(folder), ensure_postgres),
)


class ServerKeeper:
    """A thread of its own: a start may take half a minute, in which other programs may die too."""

    def __init__(self, folder: Path, names: Set[str], *, echo: Callable[[str, str], None]) -> None:
        """names: of PostgreSQL and Redis those that are ours to start."""
        self._folder = folder
        self._echo = echo
        self._stop = threading.Event()
        self._said: dict[str, str] = {}
        self._parts = [part for part in _PARTS if part[0] in names]
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "ServerKeeper":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(_EVERY):
            self.check()

    def check(self) -> None:
        """Start what is gone; what cannot start is tried again, and said once."""
        for name, is_gone, ensure in self._parts:
            try:
                if not is_gone(self._folder):
                    self._said.pop(name, None)
                    continue
                self._say(name, f"{name} is gone: starting it again")
                ensure(self._folder)
                self._say(name, f"{name} runs again")
            except (EmbeddedServerError, OSError, subprocess.SubprocessError) as error:
                self._say(name, str(error))

    def _say(self, name: str, text: str) -> None:
        if self._said.get(name) != text:
            self._said[name] = text
            self._echo("concord", text)


# Stops the embedded servers of a folder when their last user was killed.
#
# `python -m apps.common.embedded FOLDER` is started once per folder beside the servers. It waits
# for the users' lock, so it costs nothing while it runs.

_LOCK = "servers.watch"


def ensure_watched(folder: Path) -> None:
    """Start the process unless it runs."""
    with (folder / _LOCK).open("a") as lock:
        if not lock_taken(lock):
            return
    subprocess.Popen(
        [sys.executable, "-m", "apps.common.embedded", str(folder)],
        cwd=env.ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C and a killed terminal are not for it
    ).returncode = 0  # it outlives this process: no ResourceWarning about that


def watch(folder: Path) -> None:
    os.chdir("/")
    with (folder / _LOCK).open("a") as lock:
        if not lock_taken(lock):
            return
        with UsersLock(folder) as users:
            users.wait_until_unused()
            if (folder / _LOCK).exists():  # else the folder was removed, as tests do
                stop_redis(folder)
                stop_postgres(folder)

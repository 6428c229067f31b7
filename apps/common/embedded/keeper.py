"""Starts an embedded server again that died, and leaves alone one that is only slow."""

import subprocess
import threading
from collections.abc import Callable, Set
from pathlib import Path

from apps.common.embedded.errors import EmbeddedServerError
from apps.common.embedded.postgres import ensure_postgres, postgres_runs
from apps.common.embedded.redis_server import ensure_redis, redis_is_gone

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

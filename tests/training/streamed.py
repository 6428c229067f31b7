"""The process of event streams, as a thread of the tests' process, and a watcher of it."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlencode

import uvicorn
from django.conf import settings

from apps.common.streams import EventStreams
from apps.training.models import Run
from apps.training.streams import RunFeed

PATIENCE_S = 20.0


@contextmanager
def streams(*, most: int = 100, port: int = 0) -> Iterator[int]:
    """Yields its port."""
    config = uvicorn.Config(
        EventStreams(RunFeed(), most=most), ws="none", log_level="error", lifespan="on"
    )
    config.timeout_graceful_shutdown = 1
    server = uvicorn.Server(config)
    listener = socket.create_server(("127.0.0.1", port))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(20)
        listener.close()


class Watching:
    """A connection to the stream of a run, as a browser that has signed in holds it."""

    def __init__(
        self,
        port: int,
        run: Run,
        session: str = "",
        headers: dict[str, str] | None = None,
        **query: str,
    ) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        sent = dict(headers or {})
        if session:
            sent["Cookie"] = f"{settings.SESSION_COOKIE_NAME}={session}"
        path = f"/p/{run.project.slug}/runs/{run.pk}/stream?{urlencode(query)}"
        self._connection.request("GET", path, headers=sent)
        self.answer = self._connection.getresponse()

    @property
    def status(self) -> int:
        return self.answer.status

    def event(self, name: str) -> dict[str, Any]:
        """The next event of this name; its data and its id. Raises EOFError at the stream's end."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            lines = list(iter(self._line, ""))
            fields = dict(line.split(": ", 1) for line in lines if ": " in line)
            if fields.get("event") == name:
                return json.loads(fields["data"]) | {"id": fields.get("id", "")}
        raise TimeoutError(name)

    def ends(self) -> bool:
        """Reads to the end of the stream."""
        try:
            while True:
                self._line()
        except EOFError:
            return True

    def _line(self) -> str:
        line = self.answer.readline()
        if not line:
            raise EOFError
        return line.decode().rstrip("\n")

    def close(self) -> None:
        self.answer.close()
        self._connection.close()


@contextmanager
def watching(port: int, run: Run, session: str = "", **more: Any) -> Iterator[Watching]:
    with closing(Watching(port, run, session, **more)) as one:
        yield one

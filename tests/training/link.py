"""A network between a worker and its broker that a test can break."""

import contextlib
import socket
import threading
from collections.abc import Iterator


class Link:
    """A TCP port on the loopback interface that leads to Redis's unix socket.

    `cut` lets nothing through: connections stay open and say nothing, and so do new ones, as when
    a cable is pulled. `repair` resets those and lets new ones through.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._whole = True
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._door = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._door.getsockname()[1]}/0"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._whole = False

    def repair(self) -> None:
        with self._lock:
            self._whole = True
            broken, self._sockets = self._sockets, []
        for one in broken:
            _shut(one)

    def close(self) -> None:
        self._door.close()
        self.repair()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._door.accept()
                with self._lock:
                    self._sockets.append(near)
                    if not self._whole:
                        continue
                    far = socket.socket(socket.AF_UNIX)
                    far.connect(self._path)
                    self._sockets.append(far)
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    def _pump(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                if self._whole:
                    other.sendall(data)
        if self._whole:
            _shut(one)
            _shut(other)


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()


@contextlib.contextmanager
def link_to(redis_url: str) -> Iterator[Link]:
    link = Link(redis_url.removeprefix("unix://").partition("?")[0])
    with contextlib.closing(link):
        yield link

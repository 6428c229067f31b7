"""An end to everything that a thread reads from a service, however it comes.

A timeout of httpx is that of one read: who sends a header line now and then keeps a request for as
long as it likes, and no answer is there yet at which anybody could look. Here each read and write
of the thread that asked waits no longer than what is left.
"""

import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore2
import httpx2

_asking = threading.local()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """What this thread reads and writes meanwhile, over a client that was `hurried`, ends after so
    many seconds as `httpx2.TimeoutException`."""
    _asking.until = time.monotonic() + seconds
    try:
        yield
    finally:
        _asking.until = None


def hurried(by: httpx2.Client) -> httpx2.Client:
    """The same client, which keeps to `within`. httpx lets nobody choose the backend of its pools
    and still read the proxies of the environment, hence the private names; transports of another
    kind, as tests have them, are left alone."""
    for transport in (by._transport, *by._mounts.values()):
        pool = getattr(transport, "_pool", None)
        if pool is not None:
            pool._network_backend = _Backend(pool._network_backend)
    return by


def _left(timeout: float | None, error: type[httpcore2.TimeoutException]) -> float | None:
    until = getattr(_asking, "until", None)
    if until is None:
        return timeout
    left = until - time.monotonic()
    if left <= 0:
        raise error("the time is up")
    return left if timeout is None else min(timeout, left)


class _Backend(httpcore2.NetworkBackend):
    def __init__(self, own: httpcore2.NetworkBackend) -> None:
        self._own = own

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        left = _left(timeout, httpcore2.ConnectTimeout)
        return _Stream(self._own.connect_tcp(host, port, left, local_address, socket_options))

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore2.NetworkStream:
        left = _left(timeout, httpcore2.ConnectTimeout)
        return _Stream(self._own.connect_unix_socket(path, left, socket_options))

    def sleep(self, seconds: float) -> None:
        self._own.sleep(seconds)


class _Stream(httpcore2.NetworkStream):
    def __init__(self, own: httpcore2.NetworkStream) -> None:
        self._own = own

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._own.read(max_bytes, _left(timeout, httpcore2.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._own.write(buffer, _left(timeout, httpcore2.WriteTimeout))

    def close(self) -> None:
        self._own.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.NetworkStream:
        left = _left(timeout, httpcore2.ConnectTimeout)
        return _Stream(self._own.start_tls(ssl_context, server_hostname, left))

    def get_extra_info(self, info: str) -> Any:
        return self._own.get_extra_info(info)

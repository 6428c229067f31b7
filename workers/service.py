"""A service elsewhere that is asked over HTTP and believed nothing: what rewards by a service and
inference servers have in common.

Only hosts that a variable of the worker names are asked, a redirect is followed nowhere, a body has
an end and an answer a deadline, and a token is never part of an error.
"""

import logging
import os
import random
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpcore2
import httpx2

from workers.contract.events import Fault, RecipeError

# An end to everything that a thread reads from a service, however it comes.
#
# A timeout of httpx is that of one read: who sends a header line now and then keeps a request for
# as
# long as it likes, and no answer is there yet at which anybody could look. Here each read and
# write
# of the thread that asked waits no longer than what is left.

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


logging.getLogger("httpx2").setLevel(logging.WARNING)  # a line per request buries a run's log
MOST_BYTES = 8_000_000  # of an answer
FIRST_PAUSE_S, LONGEST_PAUSE_S, LONGEST_ASKED_S = 0.5, 30.0, 60.0


class TryAgain(Exception):
    """Something that may pass; `after`: seconds the service asked for."""

    def __init__(self, what: str, after: float = 0.0) -> None:
        super().__init__(what)
        self.after = after


class TooLong(Exception):
    """A body over `MOST_BYTES`."""


class Encoded(Exception):
    """A body in a form that was not asked for."""


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: httpx2.Headers
    body: bytes

    def excerpt(self, secret: str = "") -> str:
        """What it says, on one line, at most 200 characters, never with `secret` in it."""
        text = " ".join(self.body[:400].decode(errors="replace").split())[:200]
        return text.replace(secret, "…") if secret else text

    def told(self, secret: str = "") -> str:
        return f"{self.status} {self.excerpt(secret)}".strip()

    def raise_if_passing(self, secret: str = "") -> None:
        """`TryAgain` for 429 and 5xx, after what `Retry-After` asks for, within reason."""
        if self.status == 429 or self.status >= 500:
            raise TryAgain(self.told(secret), _seconds(self.headers.get("Retry-After", "")))


def client(
    *, token: str, timeout_s: float, at_once: int, transport: httpx2.BaseTransport | None = None
) -> httpx2.Client:
    """For `at_once` threads; one for all of them, since each would read all certificates again.

    Compressed answers are not asked for: their length would say nothing of what they become.
    """
    headers = {"Accept-Encoding": "identity", "Accept": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    by = httpx2.Client(
        headers=headers,
        timeout=httpx2.Timeout(timeout_s, connect=min(10.0, timeout_s)),
        limits=httpx2.Limits(max_connections=at_once, max_keepalive_connections=at_once),
        follow_redirects=False,
        transport=transport,
    )
    return hurried(by)


def request(
    by: httpx2.Client,
    method: str,
    url: httpx2.URL,
    *,
    data: Any = None,
    seconds: float,
    expired: Callable[[], str | None] = lambda: None,
    arrived: Callable[[int, httpx2.Headers, bytes], bool] = lambda status, headers, part: False,
) -> Reply:
    """The whole reply, whatever its status, `seconds` after the request at the latest. `expired`
    says why it comes too late, if it does. `arrived` gets each part of the body, and says
    whether the rest is not wanted.

    Raises `TryAgain` then, `TooLong`, `Encoded`, and `httpx2.TransportError` when the connection
    fails.
    """
    try:
        with within(seconds), by.stream(method, url, json=data) as response:
            _require_plain(response.headers)
            body = bytearray()
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > MOST_BYTES:
                    raise TooLong(f"the answer is longer than {MOST_BYTES:,} bytes")
                if (late := expired()) is not None:
                    raise TryAgain(late)
                if arrived(response.status_code, response.headers, chunk):
                    break
    except httpx2.TimeoutException as error:
        if (late := expired()) is not None:
            raise TryAgain(late) from error
        raise
    return Reply(response.status_code, response.headers, bytes(body))


def _require_plain(headers: httpx2.Headers) -> None:
    """A kilobyte may become a gigabyte in one piece, before anybody could count it."""
    coding = headers.get("Content-Encoding", "").strip().lower()
    if coding not in ("", "identity"):
        raise Encoded(f"the answer is encoded as {coding[:40]}, which was not asked for")


def pause_before(attempt: int, dice: random.Random) -> float:
    """Seconds before try `attempt` + 1: exponential, between half of it and all of it, so that
    callers do not come back at once together."""
    longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**attempt)
    return longest * (0.5 + 0.5 * dice.random())


def token_of(name: str | None, *, field: str) -> str:
    """The worker's variable `name`, empty without one. `RecipeError` where it is not set."""
    if name is None:
        return ""
    token = os.environ.get(name, "").strip()
    if not token:
        told = f"the worker has no {name}, which {field} names"
        raise RecipeError("no_token", Fault.MACHINE, told)
    return token


def require_allowed(url: httpx2.URL, *, variable: str, field: str, what: str) -> None:
    """A configuration must not send a worker anywhere: whoever runs the worker says where to."""
    hosts = [name.strip() for name in os.environ.get(variable, "").split(",")]
    if url.host not in hosts and f"{url.host}:{url.port}" not in hosts:
        raise RecipeError(
            "host_not_allowed",
            Fault.CONFIGURATION,
            f"{field}: this worker may not ask {url.host}. Whoever runs it lists the hosts of "
            f"{what} in {variable}.",
        )


def _seconds(text: str) -> float:
    """Retry-After in seconds, within reason; a date is not read."""
    return min(LONGEST_ASKED_S, float(text)) if text.isdecimal() else 0.0

"""How requests are sent: one session, repeats with pauses, files in both directions."""

import asyncio
import io
import json
import random
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from concord.errors import ConcordError, Unreachable, error_from
from concord.operations import Operation

T = TypeVar("T")
Progress = Callable[[int, int], None]  # bytes that are through, bytes of all

# What a proxy answers while the server behind it restarts, and a server that asks to slow down.
_AGAIN = frozenset({429, 502, 503, 504})
_LONGEST_PAUSE = 30.0  # seconds


class Transport:
    """Sends operations to one site; `AsyncClient` says what its arguments mean."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        timeout: float,
        tries: int,
        first_pause: float,
        connections: int,
    ) -> None:
        if tries < 1:
            raise ValueError("tries: at least 1")
        self._api = url.rstrip("/") + "/api/v1"
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        # A file takes as long as it takes, unless nothing moves.
        self._file_timeout = aiohttp.ClientTimeout(total=None, sock_read=timeout)
        self._tries = tries
        self._first_pause = first_pause
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections; the next request would open new ones."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def send(self, operation: Operation[T], on_progress: Progress | None = None) -> T:
        """What the server answers. Refusals are never repeated; `_may_repeat` says what is."""
        pauses = self._pauses()
        for left in reversed(range(self._tries)):
            try:
                status, data, wait = await self._once(operation, on_progress)
            except (aiohttp.ClientError, TimeoutError) as error:
                # Where no connection was made, nothing was sent.
                unsent = isinstance(error, aiohttp.ClientConnectorError)
                if not left or not (operation.repeatable or unsent):
                    sent = self._tries - left
                    words = str(error) or type(error).__name__
                    raise Unreachable(
                        f"No answer from {self._api} in {sent} tries: {words}"
                    ) from error
                wait = None
            else:
                if status < 400:
                    if isinstance(data, NotJson):
                        raise data.error(operation)
                    return operation.read(data)
                if not left or not _may_repeat(operation, status, wait):
                    raise error_from(status, data.text if isinstance(data, NotJson) else data)
            # Clients that were cut off together do not come back together.
            await asyncio.sleep(min(wait or next(pauses), _LONGEST_PAUSE))
        raise AssertionError("unreachable")

    async def download(self, operation: Operation[None], file: "PartialFile") -> None:
        """The answer's bytes in `file`. What breaks off continues where it was; `Unreachable` is
        raised after so many tries in a row that brought nothing."""
        left, pauses = self._tries, self._pauses()
        while True:
            before, wait = file.size, None
            try:
                async with self._opened().request(
                    operation.method,
                    self._api + operation.path,
                    params=operation.query,
                    headers=file.headers,
                    timeout=self._file_timeout,
                ) as answer:
                    if answer.status < 400:
                        await file.take(answer)
                    if answer.status < 400 or answer.status == 416:  # nothing was missing
                        return
                    status, data, wait = await _read(answer)
            except (aiohttp.ClientError, TimeoutError) as error:
                words = str(error) or type(error).__name__
                refusal: ConcordError = Unreachable(f"The download broke off: {words}")
            else:
                refusal = error_from(status, data.text if isinstance(data, NotJson) else data)
                if status not in _AGAIN:
                    raise refusal
            if file.size > before:
                left, pauses = self._tries, self._pauses()
            else:
                left -= 1
            if not left:
                raise refusal
            await asyncio.sleep(min(wait or next(pauses), _LONGEST_PAUSE))

    async def _once(
        self, operation: Operation[Any], on_progress: Progress | None
    ) -> tuple[int, Any, float | None]:
        """(status, decoded body, seconds the server asks to wait)."""
        if operation.file is None:
            sent: dict[str, Any] = {"json": operation.body}
        else:
            # aiohttp closes it when it is sent; its size is known, as the server requires.
            opened = CountedFile(operation.file, on_progress)
            form = aiohttp.FormData(dict(operation.form))
            form.add_field("file", opened, filename=operation.file.name)
            sent = {"data": form, "timeout": self._file_timeout}
        async with self._opened().request(
            operation.method, self._api + operation.path, params=operation.query, **sent
        ) as answer:
            return await _read(answer)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers=self._headers,
                timeout=self._timeout,
                connector=aiohttp.TCPConnector(limit=self._connections),
            )
        return self._session

    def _pauses(self) -> Iterator[float]:
        """Seconds, each about twice the one before."""
        pause = self._first_pause
        while True:
            yield pause * (0.5 + random.random())
            pause *= 2


def _may_repeat(operation: Operation[Any], status: int, wait: float | None) -> bool:
    """Whether to send again what was answered so. Concord answers 429, and 503 with Retry-After,
    before it has done anything; after a proxy's words only the operation itself can know."""
    if operation.repeatable:
        return status in _AGAIN
    return status == 429 or (status == 503 and wait is not None)


async def _read(answer: aiohttp.ClientResponse) -> tuple[int, Any, float | None]:
    text = await answer.text()
    wait = answer.headers.get("Retry-After", "")
    try:
        data = json.loads(text) if text else None
    except ValueError:
        data = NotJson(text)
    return answer.status, data, float(wait) if wait.isdecimal() else None


class NotJson:
    """A body that is no JSON: a proxy's page, or a file."""

    def __init__(self, text: str) -> None:
        self.text = text[:500]

    def error(self, operation: Operation[Any]) -> ConcordError:
        return ConcordError(
            f"{operation.method} {operation.path} answered with a file, not with JSON: `save` "
            "writes it to a path.",
            status=200,
            code="not_json",
            details=self.text,
        )


class CountedFile(io.BufferedReader):
    """A file that says how much of it has been read."""

    def __init__(self, path: Path, on_progress: Progress | None) -> None:
        super().__init__(io.FileIO(path))
        self._total, self._on_progress = path.stat().st_size, on_progress

    def read(self, size: int | None = -1, /) -> bytes:
        block = super().read(size)
        if self._on_progress is not None and block:
            self._on_progress(self.tell(), self._total)
        return block


class PartialFile:
    """A file that arrives in parts, in `path` with its ETag beside it, over several calls."""

    def __init__(self, path: Path, on_progress: Progress | None) -> None:
        self._path, self._etag = path, path.with_suffix(".etag")
        self._on_progress = on_progress

    @property
    def size(self) -> int:
        """Bytes that are here and can be continued; 0 where the server named no version."""
        known = self._path.exists() and self._etag.exists() and self._etag.read_text()
        return self._path.stat().st_size if known else 0

    @property
    def headers(self) -> dict[str, str]:
        if not self.size:
            return {}
        return {"Range": f"bytes={self.size}-", "If-Range": self._etag.read_text()}

    async def take(self, answer: aiohttp.ClientResponse) -> None:
        """What the answer brings, behind what is here if it continues that."""
        continues = answer.status == 206
        start = self.size if continues else 0
        total = start + (answer.content_length or 0)
        with self._path.open("ab" if continues else "wb") as file:
            self._etag.write_text(answer.headers.get("ETag", ""))
            async for block in answer.content.iter_chunked(1 << 20):
                file.write(block)
                if self._on_progress is not None:
                    self._on_progress(file.tell(), max(total, file.tell()))

    def unpack(self) -> Path:
        """The folder of the tar that has arrived; the tar is deleted."""
        try:
            with tarfile.open(self._path) as archive:
                folder = archive.getnames()[0].partition("/")[0]
                archive.extractall(self._path.parent, filter="data")
        finally:
            self._path.unlink()
            self._etag.unlink()
        return self._path.parent / folder

    def rename(self, path: Path) -> Path:
        """What has arrived, under its own name."""
        self._etag.unlink()
        return self._path.replace(path)

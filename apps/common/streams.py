"""Server-sent events for many watchers in one process: what they watch is read once for all.

Whoever watches the same *topic* gets the same bytes. One task asks for the state of all topics at
once; a topic that has changed is read and written once, in a thread, however many watch it. A
watcher holds no thread and no database connection, and of what it has not been sent yet the newest
event of each name. Who may watch is asked at the beginning and once a minute.
"""

import asyncio
import contextlib
import heapq
import json
import logging
import random
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol, TypeVar

from django.conf import settings

logger = logging.getLogger(__name__)

LOOK_S = 0.5  # how often the state of all topics is asked
PUSH_S = 1.0  # between two readings of a topic, at least
HEARTBEAT_S = 20.0
CHECK_S = 60.0  # how long one watches, at most, without being asked again who one is
AWAY_S = 10.0  # topics could not be read for so long: everybody polls, and sees the error there
# On every answer, as on those of the pages.
_EVERY = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; base-uri 'none'; frame-ancestors 'none'"),
    *(
        ((b"strict-transport-security", b"max-age=%d; includeSubDomains" % HSTS),)
        if (HSTS := settings.SECURE_HSTS_SECONDS)
        else ()
    ),
)
RETRY_MS = (2000, 6000)  # after which a browser connects again, drawn for each connection
PER_PERSON = 20
CHECKERS, READERS = 3, 2  # threads, each with one database connection at most
MOST_UNCHECKED = 2000  # connections that wait to be asked who they are
POLLS_A_SECOND = 50.0  # of all watchers together, when the stream fails
FETCHES_A_SECOND = 20.0  # of a topic's watchers together, when an event sends them to fetch
BATCHES_KEPT = 20  # for those who come back

T = TypeVar("T")
Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

_STALE = b"event: stale\ndata: {}\n\n"  # something is missing: fetch the whole
_END = b"event: end\ndata: {}\n\n"


@dataclass(frozen=True, slots=True)
class Event:
    """`data` becomes JSON. Without `adds` a newer event of the same name makes it superfluous; with
    it, a watcher that has missed one must fetch the whole."""

    name: str
    data: dict[str, Any]
    adds: bool = False


@dataclass(frozen=True, slots=True)
class Admitted:
    """Who watches what. `seen`: the state that the watcher has."""

    person: str
    topic: Hashable
    seen: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Reader(Protocol):
    """Reads one topic, in a thread, never twice at once."""

    ended: bool

    def news(self) -> list[Event]:
        """What has changed since it was read last."""

    def whole(self) -> list[Event]:
        """For a watcher who knows another state than any that was read."""


class Feed(Protocol):
    """What can be watched. Each method is called in a thread, and leaves no connection open."""

    def admit(self, scope: Scope) -> Admitted | int:
        """Who asks and for what, or the HTTP status of the refusal."""

    def states(self, topics: Collection[Any]) -> dict[Any, str]:
        """What changes whenever a topic does, of those that still exist."""

    def reader(self, topic: Any) -> Reader: ...


@dataclass(frozen=True, slots=True)
class _Written:
    name: str
    adds: bool
    frame: bytes


@dataclass(slots=True, eq=False)
class _Watcher:
    person: str
    topic: Hashable
    scope: Scope
    pending: dict[str, bytes] = field(default_factory=dict)  # name of an event -> the newest
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    closed: bool = False

    def push(self, one: _Written) -> None:
        if one.adds and (one.name in self.pending or "stale" in self.pending):
            self.pending.pop(one.name, None)
            self.pending["stale"] = _STALE
        else:
            self.pending[one.name] = one.frame
        self.ready.set()

    def close(self) -> None:
        self.closed = True
        self.ready.set()

    def take(self) -> bytes:
        self.ready.clear()
        frames = b"".join(self.pending.values())
        self.pending.clear()
        return frames


@dataclass(slots=True, eq=False)
class _Topic:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # held while it is read
    watchers: set[_Watcher] = field(default_factory=set)
    reader: Reader | None = None
    state: str = ""
    read_at: float = 0.0
    batches: deque[tuple[str, list[_Written]]] = field(
        default_factory=lambda: deque(maxlen=BATCHES_KEPT)
    )  # (the state before, what was sent)
    whole: tuple[str, bytes] = ("", b"")  # (the state, what it is)

    def since(self, seen: str) -> bytes | None:
        """What was sent after this state; None where that is not known any more."""
        if seen == self.state:
            return b""
        befores = [before for before, _ in self.batches]
        if seen not in befores:
            return None
        missed = [one for _, batch in list(self.batches)[befores.index(seen) :] for one in batch]
        newest = {one.name: one.frame for one in missed if not one.adds}
        return b"".join([*(one.frame for one in missed if one.adds), *newest.values()])


class EventStreams:
    """An ASGI application that answers the addresses of its feed and no others."""

    def __init__(self, feed: Feed, *, most: int) -> None:
        self._feed = feed
        self._most = most
        self._checkers = ThreadPoolExecutor(CHECKERS, "check")
        self._readers = ThreadPoolExecutor(READERS, "read")
        self._topics: dict[Hashable, _Topic] = {}
        self._persons: Counter[str] = Counter()
        self._unchecked = 0
        self._due: list[tuple[float, int, _Watcher]] = []  # a heap: when each is checked again
        self._turn = count()
        self._tasks: list[asyncio.Task[None]] = []
        self._away_since: float | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        """From the start of the process to its end."""
        await receive()
        self._tasks = [asyncio.create_task(self._look()), asyncio.create_task(self._check())]
        await send({"type": "lifespan.startup.complete"})
        await receive()
        for task in self._tasks:
            task.cancel()
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = await self._admitted(scope)
        if isinstance(found, int):
            await _refuse(found, send)
            return
        watcher = _Watcher(found.person, found.topic, scope)
        self._persons[found.person] += 1
        try:
            first = await self._join(watcher, found.seen)
        except Exception:
            logger.exception("%s cannot be read", found.topic)
            self._leave(watcher)
            await _refuse(503, send)
            return
        try:
            await self._stream(watcher, found, first, receive, send)
        finally:
            self._leave(watcher)

    async def _admitted(self, scope: Scope) -> Admitted | int:
        if scope["method"] != "GET":
            return 405
        if self._unchecked >= MOST_UNCHECKED:
            return 503
        self._unchecked += 1
        try:
            found = await self._ask(scope)
        finally:
            self._unchecked -= 1
        if isinstance(found, int):
            return found
        full = self._persons.total() >= self._most or self._persons[found.person] >= PER_PERSON
        return 503 if full else found

    async def _ask(self, scope: Scope) -> Admitted | int:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._checkers, self._feed.admit, scope)

    async def _read(self, act: Callable[..., T], *given: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._readers, act, *given)

    # --- watchers ---

    async def _join(self, watcher: _Watcher, seen: str) -> bytes:
        """Adds it to its topic. Returns what brings it up to date."""
        topic = self._topics.setdefault(watcher.topic, _Topic())
        topic.watchers.add(watcher)
        self._check_later(watcher)
        async with topic.lock:
            if topic.reader is None:
                # The reader first: what comes in between is read once more, not missed.
                reader = await self._read(self._feed.reader, watcher.topic)
                states = await self._read(self._feed.states, [watcher.topic])
                topic.reader, topic.state = reader, states.get(watcher.topic, "")
            watcher.pending.clear()  # what came while it waited is in what follows
            missed = topic.since(seen)
            if missed is None:
                missed = await self._whole(topic, topic.reader)
            if topic.reader.ended:
                watcher.close()
                missed += _END
        return missed

    async def _whole(self, topic: _Topic, reader: Reader) -> bytes:
        if topic.whole[0] != topic.state:
            events = await self._read(reader.whole)
            frames = b"".join(one.frame for one in self._write(topic, events))
            topic.whole = (topic.state, frames)
        return topic.whole[1]

    def _leave(self, watcher: _Watcher) -> None:
        self._persons[watcher.person] -= 1
        if not self._persons[watcher.person]:
            del self._persons[watcher.person]
        watcher.close()
        topic = self._topics.get(watcher.topic)
        if topic is not None:
            topic.watchers.discard(watcher)
            if not topic.watchers:
                del self._topics[watcher.topic]

    async def _stream(
        self, watcher: _Watcher, found: Admitted, first: bytes, receive: Receive, send: Send
    ) -> None:
        headers = [
            (b"content-type", b"text/event-stream"),
            *_EVERY,
            (b"x-accel-buffering", b"no"),
            *found.headers,
        ]
        gone = asyncio.create_task(_wait_until_gone(receive, watcher))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            hello = f"retry: {random.randint(*RETRY_MS)}\n".encode() + _frame(
                "hello", self._paces()
            )
            await _send_on(send, hello + first)
            with contextlib.suppress(asyncio.CancelledError):  # the process ends
                await self._send_news(watcher, send)
            await send({"type": "http.response.body", "body": watcher.take()})
        finally:
            gone.cancel()

    async def _send_news(self, watcher: _Watcher, send: Send) -> None:
        while not watcher.closed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_S):
                    await watcher.ready.wait()
            if frames := watcher.take():
                await _send_on(send, frames)
            elif not watcher.closed:
                await _send_on(send, b":\n\n")

    # --- what changes ---

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            if not self._topics:
                continue
            try:
                states = await self._read(self._feed.states, list(self._topics))
            except Exception:
                self._away()
                continue
            self._away_since = None
            now = time.monotonic()
            changed = [
                (key, topic, states.get(key))
                for key, topic in self._topics.items()
                if topic.reader and states.get(key) != topic.state and now - topic.read_at >= PUSH_S
            ]
            await asyncio.gather(*(self._push(key, topic, new) for key, topic, new in changed))

    def _away(self) -> None:
        now = time.monotonic()
        if self._away_since is None:
            self._away_since = now
            logger.exception("what is watched cannot be read")
        elif now - self._away_since > AWAY_S:
            self._close(watcher for topic in self._topics.values() for watcher in topic.watchers)

    async def _push(self, key: Hashable, topic: _Topic, state: str | None) -> None:
        """Reads the topic and sends what is new to all its watchers. None: it is gone."""
        reader = topic.reader
        if state is None or reader is None:
            self._close(topic.watchers)
            return
        async with topic.lock:
            if state == topic.state:
                return
            topic.read_at = time.monotonic()
            try:
                events = await self._read(reader.news)
            except Exception:
                logger.exception("%s cannot be read: its watchers poll", key)
                self._close(topic.watchers)
                return
            before, topic.state = topic.state, state
            written = self._write(topic, events)
            if reader.ended:
                written.append(_Written("end", False, _END))
            topic.batches.append((before, written))
            for watcher in topic.watchers:
                for one in written:
                    watcher.push(one)
                if reader.ended:
                    watcher.close()

    def _write(self, topic: _Topic, events: Iterable[Event]) -> list[_Written]:
        """With how many seconds a watcher waits at most before it fetches (`spread`), and between
        two polls when the stream fails (`poll`): many must not come at once."""
        paces = self._paces(len(topic.watchers))
        return [
            _Written(one.name, one.adds, _frame(one.name, one.data | paces, topic.state))
            for one in events
        ]

    def _paces(self, watchers: int = 0) -> dict[str, int]:
        return {
            "spread": max(1, round(watchers / FETCHES_A_SECOND)),
            "poll": max(1, round(self._persons.total() / POLLS_A_SECOND)),
        }

    # --- who may still watch ---

    def _check_later(self, watcher: _Watcher) -> None:
        at = time.monotonic() + CHECK_S * random.uniform(0.6, 0.9)
        heapq.heappush(self._due, (at, next(self._turn), watcher))

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(min(1.0, CHECK_S / 10))
            while self._due and self._due[0][0] <= time.monotonic():
                watcher = heapq.heappop(self._due)[2]
                if not watcher.closed:
                    await self._check_one(watcher)

    async def _check_one(self, watcher: _Watcher) -> None:
        try:
            found = await self._ask(watcher.scope)
        except Exception:
            logger.exception("it could not be asked who watches")
            found = 503
        same = isinstance(found, Admitted) and found.person == watcher.person
        if same:
            self._check_later(watcher)
        elif found != 204:  # ended: the last events are on their way
            watcher.close()

    def _close(self, watchers: Iterable[_Watcher]) -> None:
        for watcher in list(watchers):
            watcher.close()


def _frame(name: str, data: dict[str, Any], state: str = "") -> bytes:
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    known = f"id: {state}\n" if state else ""
    return f"{known}event: {name}\ndata: {text}\n\n".encode()


async def _wait_until_gone(receive: Receive, watcher: _Watcher) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    watcher.close()


async def _send_on(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _refuse(status: int, send: Send) -> None:
    headers = [*_EVERY]
    if status != 204:
        headers.append((b"content-length", b"0"))
    if status == 503:
        headers.append((b"retry-after", b"30"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})

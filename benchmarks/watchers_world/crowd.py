"""Thousands of browsers that look at the page of one run: a connection each, in a process apart.

Run: python -m benchmarks.watchers_world.crowd PORT PATH COOKIE SECONDS < sessions
One session a line. Says "open N" once all are connected; reads on for as many seconds, and prints
one JSON object: connections, how many were lost, events, and delays in milliseconds.
"""

import asyncio
import json
import re
import resource
import sys
import time
from dataclasses import dataclass, field

STAMP = re.compile(rb"@(\d+\.\d+)")  # of the head that is sent: when its event was written
TABS = ("overview", "overview", "charts")
OPENING = 50  # at once


@dataclass
class Crowd:
    port: int
    path: str
    cookie: str
    count: int = 0
    lost: int = 0
    events: int = 0
    bytes: int = 0
    counting: bool = False
    delays: list[float] = field(default_factory=list)


class Browser(asyncio.Protocol):
    def __init__(self, crowd: Crowd, session: str, tab: str) -> None:
        self._crowd = crowd
        self._request = (
            f"GET {crowd.path}?tab={tab} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Accept: text/event-stream\r\nCookie: {crowd.cookie}={session}\r\n\r\n"
        )
        self.opened: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request.encode())

    def data_received(self, data: bytes) -> None:
        crowd, now = self._crowd, time.time()
        if not self.opened.done():
            self.opened.set_result(data.startswith(b"HTTP/1.1 200"))
        if crowd.counting:
            crowd.bytes += len(data)
            for stamp in STAMP.findall(data):
                crowd.events += 1
                crowd.delays.append(1000 * (now - float(stamp)))

    def connection_lost(self, _: Exception | None) -> None:
        self._crowd.lost += 1
        if not self.opened.done():
            self.opened.set_result(False)


async def look(crowd: Crowd, sessions: list[str], seconds: float) -> None:
    turn = asyncio.Semaphore(OPENING)

    async def open_one(n: int, session: str) -> bool:
        async with turn:
            tab = TABS[n % len(TABS)]
            _, browser = await asyncio.get_running_loop().create_connection(
                lambda: Browser(crowd, session, tab), "127.0.0.1", crowd.port
            )
            return await browser.opened

    found = await asyncio.gather(*(open_one(n, one) for n, one in enumerate(sessions)))
    crowd.count = sum(found)
    print(f"open {crowd.count}", flush=True)
    await asyncio.sleep(5)  # what was sent to bring them up to date is no news
    crowd.counting = True
    await asyncio.sleep(seconds)


def main() -> None:
    port, path, cookie, seconds = sys.argv[1:]
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    crowd = Crowd(int(port), path, cookie)
    asyncio.run(look(crowd, sys.stdin.read().split(), float(seconds)))
    found = {"open": crowd.count, "lost": crowd.lost, "events": crowd.events, "bytes": crowd.bytes}
    print(json.dumps(found | {"delays": sorted(round(one, 1) for one in crowd.delays)}))


if __name__ == "__main__":
    main()

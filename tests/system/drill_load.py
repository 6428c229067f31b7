"""What one person's flood, and strangers' slow bodies, cost the others.

A web server as `manage.py up` starts it, on servers of its own. Sixteen annotators vote by API,
with a short pause between votes, (1) alone, (2) while one reviewer asks for 300 heavy pages at
once, three times over, (3) while 40 strangers send a sign-in form one byte every two seconds. In
(3) a page is asked for as well. Nothing stands in front of the server.

Run: python -m tests.system.drill_load
"""

import asyncio
import contextlib
import json
import socket
import statistics
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable

import aiohttp

from benchmarks.load.players import ApiPlayer, PagePlayer
from benchmarks.load.server import web_server
from benchmarks.site import site
from concord import ConcordError

VOTERS, PAIRS, REQUESTS, ROUNDS, SLOW = 16, 3000, 300, 3, 40
PAUSE, ALONE_SECONDS, SLOW_SECONDS = 0.3, 8.0, 12.0
MOST_P95 = 0.5  # seconds


def main() -> None:
    port = _free_port()
    with site(port=port) as var:
        from benchmarks.load import projects
        from tests.people import person_make

        played = projects.project_make("load", pairs=PAIRS, annotators=VOTERS)
        keys = projects.tokens(played.annotators)
        person_make("Rita", played.project, "reviewer")
        from django.db import connection

        connection.close()
        with web_server(var, port=port) as server:
            rows = asyncio.run(_drill(server.url, keys))
    print(f"{'votes':<34}{'n':>6}{'p50 ms':>9}{'p95 ms':>9}{'max ms':>9}  others")  # noqa: T201
    for name, times, others in rows:
        cut = statistics.quantiles(times, n=100)
        print(  # noqa: T201
            f"{name:<34}{len(times):>6}{1000 * cut[49]:>9.0f}{1000 * cut[94]:>9.0f}"
            f"{1000 * max(times):>9.0f}  {others}"
        )
    slow = [name for name, times, _ in rows if statistics.quantiles(times, n=100)[94] > MOST_P95]
    if slow:
        sys.exit(f"votes took longer than {MOST_P95} s at p95: {', '.join(slow)}")


async def _drill(url: str, keys: list[str]) -> list[tuple[str, list[float], str]]:
    voters = [ApiPlayer(url, "load", f"load-{n}", key) for n, key in enumerate(keys)]
    reviewer = PagePlayer(url, "load", "rita", "correct-horse-battery")
    try:
        for voter in voters:
            await voter.start()
        await reviewer.start()
        cookies = {cookie.key: cookie.value for cookie in reviewer._session.cookie_jar}
        rows = [await _during("alone", voters, lambda: _quiet(ALONE_SECONDS))]
        rows.append(await _during("one reviewer floods", voters, lambda: _flood(url, cookies)))
        rows.append(await _during("slow bodies", voters, lambda: _slow(url, cookies)))
        return rows
    finally:
        for player in (*voters, reviewer):
            await player.close()


async def _during(
    name: str, voters: list[ApiPlayer], act: Callable[[], Awaitable[str]]
) -> tuple[str, list[float], str]:
    """(name, seconds of each vote meanwhile, what became of the others)."""
    times: list[float] = []
    failed: Counter[str] = Counter()
    stop = asyncio.Event()

    async def vote(voter: ApiPlayer) -> None:
        while not stop.is_set():
            began = time.monotonic()
            try:
                await voter.cycle()
            except ConcordError as error:
                failed[str(error.code)] += 1
            times.append(time.monotonic() - began)
            await asyncio.sleep(PAUSE)

    tasks = [asyncio.create_task(vote(voter)) for voter in voters]
    others = await act()
    stop.set()
    await asyncio.gather(*tasks)
    return name, times, f"{others}; votes failed: {dict(failed) or 0}"


async def _quiet(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "-"


async def _flood(url: str, cookies: dict[str, str]) -> str:
    """In a process of its own, or its work would count as waiting of the voters."""
    asked = json.dumps([url, cookies])
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.system.drill_load", asked), stdout=asyncio.subprocess.PIPE
    )
    told, _ = await process.communicate()
    return told.decode().strip()


async def _ask_all(url: str, cookies: dict[str, str]) -> str:
    statuses: Counter[int] = Counter()
    slowest = 0.0

    async def ask(session: aiohttp.ClientSession, number: int) -> None:
        nonlocal slowest
        began = time.monotonic()
        page = ("comparisons/", "answers/", "agreement/", "comparisons/ambiguous/")[number % 4]
        async with session.get(f"{url}/p/load/{page}") as answer:
            await answer.read()
            statuses[answer.status] += 1
        slowest = max(slowest, time.monotonic() - began)

    for _ in range(ROUNDS):
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(cookies=cookies, connector=connector) as session:
            await asyncio.gather(*(ask(session, n) for n in range(REQUESTS)))
    return f"pages {dict(statuses)}, slowest {slowest:.1f} s"


async def _slow(url: str, cookies: dict[str, str]) -> str:
    host, port = url.removeprefix("http://").split(":")
    head = (  # with an invented CSRF cookie, or the body is not asked for
        f"POST /sign-in/ HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 4000\r\n"
        f"Cookie: concord_csrf_{port}={'a' * 32}\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\n\r\n"
    ).encode()

    async def trickle() -> None:
        _, writer = await asyncio.open_connection(host, int(port))
        with contextlib.suppress(OSError):
            writer.write(head)
            while True:
                writer.write(b"a")
                await writer.drain()
                await asyncio.sleep(2)

    tasks = [asyncio.create_task(trickle()) for _ in range(SLOW)]
    pages: list[float] = []
    jar = {"cookies": cookies, "timeout": aiohttp.ClientTimeout(total=20)}
    async with aiohttp.ClientSession(**jar) as session:
        until = time.monotonic() + SLOW_SECONDS
        while time.monotonic() < until:
            began = time.monotonic()
            with contextlib.suppress(TimeoutError):
                async with session.get(f"{url}/account/") as answer:
                    await answer.read()
            pages.append(time.monotonic() - began)
            await asyncio.sleep(0.5)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return f"{len(pages)} pages, slowest {max(pages):.1f} s"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(asyncio.run(_ask_all(*json.loads(sys.argv[1]))))  # noqa: T201
    else:
        main()

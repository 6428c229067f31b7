"""Annotators who vote as fast as they are answered, each with one kept connection.

`cycle()` sends one vote and has the next pair when it returns the number of the stored vote. Who
votes what is drawn from a seeded generator: mostly the answer whose text is longer, so that
decisions come about, some against it, some ties, so that some pairs are contested and get extra
votes.
"""

import random
import re
from typing import Protocol

import aiohttp

from concord import AsyncClient, Pair

_FIELDS = re.compile(r'<input type="hidden" name="(\w+)" value="([^"]*)"')
_UNDO = re.compile(r'href="\?answer=(\d+)"')
_PANE = re.compile(r'<(article|section) class="pane[ "].*?</\1>', re.DOTALL)
_TIMEOUT = aiohttp.ClientTimeout(total=60)


class Player(Protocol):
    async def start(self) -> None:
        """Sign in and take the first pair."""

    async def cycle(self) -> int:
        """Vote on the pair in hand; returns the vote's number, and holds the next pair."""

    async def close(self) -> None: ...


class Refused(RuntimeError):
    """The server did not take a vote, or had nothing more to judge."""


def opinion(draw: random.Random, left: int, right: int) -> str:
    """left, right or tie, given the lengths of the texts shown."""
    liked, other = ("left", "right") if left >= right else ("right", "left")
    return draw.choices((liked, other, "tie"), (0.7, 0.2, 0.1))[0]


class PagePlayer:
    """The label screen as a browser drives it: sign-in, session, CSRF token, form, HTML."""

    def __init__(self, url: str, project: str, username: str, password: str) -> None:
        self._root = f"/p/{project}/label/"
        self._username, self._password = username, password
        self._draw = random.Random(username)
        # The cookie jar of a browser; cookies for an address instead of a name need `unsafe`.
        self._session = aiohttp.ClientSession(
            base_url=url,
            cookie_jar=aiohttp.CookieJar(unsafe=True),
            connector=aiohttp.TCPConnector(limit=1),
            timeout=_TIMEOUT,
        )
        self._fields: dict[str, str] = {}
        self._answer = ""

    async def start(self) -> None:
        fields = dict(_FIELDS.findall(await self._get("/sign-in/")))
        who = {"login": self._username, "password": self._password}
        async with self._session.post("/sign-in/", data=fields | who) as answer:
            if "/sign-in/" in str(answer.url):
                raise Refused(f"{self._username} cannot sign in")
        self._read(await self._get(self._root))

    async def cycle(self) -> int:
        sent = self._fields | {"answer": self._answer, "active_ms": "900", "wall_ms": "1000"}
        async with self._session.post(
            self._root + "vote/",
            data=sent,
            headers={
                "HX-Request": "true",
                "HX-Target": "pair",
                "HX-Current-URL": str(self._session._base_url) + self._root[1:],
                "X-CSRFToken": sent["csrfmiddlewaretoken"],
            },
        ) as answer:
            html = await answer.text()
            if answer.status != 200:
                raise Refused(f"{answer.status}: {html[:300]}")
        stored = _UNDO.search(html)
        if stored is None or self._fields["slot"] == dict(_FIELDS.findall(html)).get("slot"):
            raise Refused(f"not stored: {html[:1500]}")
        self._read(html)
        return int(stored[1])

    async def close(self) -> None:
        await self._session.close()

    async def _get(self, path: str) -> str:
        async with self._session.get(path) as answer:
            answer.raise_for_status()
            return await answer.text()

    def _read(self, html: str) -> None:
        self._fields = dict(_FIELDS.findall(html))
        panes = [len(pane[0]) for pane in _PANE.finditer(html)]
        if "slot" not in self._fields or len(panes) != 2:
            raise Refused(f"no pair on the page: {html[:1500]}")
        self._answer = opinion(self._draw, *panes)


class ApiPlayer:
    """The same by token, through the Python client."""

    def __init__(self, url: str, project: str, username: str, token: str) -> None:
        self._client = AsyncClient(url, token, connections=1, tries=1)
        self._project = project
        self._draw = random.Random(username)
        self._pair: Pair | None = None

    async def start(self) -> None:
        got = await self._client.next(self._project)
        self._pair = got.pair

    async def cycle(self) -> int:
        pair = self._pair
        if pair is None:
            raise Refused("nothing more to judge")
        lengths = (sum(len(m.content) for m in side) for side in (pair.left, pair.right))
        stored = await self._client.vote(
            pair, opinion(self._draw, *lengths), active_ms=900, wall_ms=1000
        )
        if stored.replayed:
            raise Refused("a vote was stored before it was sent")
        self._pair = stored.pair
        return stored.vote

    async def close(self) -> None:
        await self._client.close()


class OneStatementPlayer:
    """The bare view: no session, no checks, JSON."""

    def __init__(self, url: str, annotator: int) -> None:
        self._annotator = annotator
        self._session = aiohttp.ClientSession(
            base_url=url, connector=aiohttp.TCPConnector(limit=1), timeout=_TIMEOUT
        )
        self._slot = 0

    async def start(self) -> None:
        await self.cycle()

    async def cycle(self) -> int:
        sent = {"slot": str(self._slot), "annotator": str(self._annotator)}
        async with self._session.post("/bare/", data=sent) as answer:
            answer.raise_for_status()
            got = await answer.json()
        self._slot = got["slot"]
        return got["vote"] or 0

    async def close(self) -> None:
        await self._session.close()

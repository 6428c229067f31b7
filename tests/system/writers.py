"""People who write prompts, each with a draft before it is submitted, and one who accepts them."""

import asyncio
from typing import Any

import aiohttp

from tests.system.a_site import Asking, as_json

PAUSE = 1.0  # seconds between two texts of one person


class Writers(Asking):
    """Each sends a text again until it is acknowledged, also when they are to stop."""

    def __init__(self, url: str, slug: str, tokens: list[str], reviewer: str) -> None:
        super().__init__(url, slug)
        self._tokens, self._reviewer = tokens, reviewer
        self.acknowledged: list[tuple[int, int, str]] = []  # text, version, words
        self.accepted: list[int] = []
        self.replayed = 0
        self.nothing: list[str] = []  # why there was none to write

    async def _all(self) -> None:
        async with self.session(self._reviewer) as session:
            await asyncio.gather(
                self._review(session), *(self._write(n, one) for n, one in enumerate(self._tokens))
            )

    async def _write(self, person: int, token: str) -> None:
        turn = 0
        async with self.session(token) as session:
            while not self._stopping:
                await asyncio.sleep(PAUSE)
                got = await self.until(session, "POST", "writing/next", as_json({}))
                if got is None or got["text"] is None:
                    self.nothing += [got["nothing"]["code"]] if got else []
                    continue
                turn += 1
                held = got["text"]
                words = f"Which of the plans would writer {person} follow at turn {turn}, and why?"
                path = f"writing/texts/{held['text']}"
                draft = {"body": words[:20], "number": held["draft_number"], "editor": "drill"}
                await self.until(session, "PUT", f"{path}/draft", as_json(draft))
                await self._submit(session, path, words, held)

    async def _submit(
        self, session: aiohttp.ClientSession, path: str, words: str, held: dict[str, Any]
    ) -> None:
        sent = {"body": words, "idempotency_key": held["key"], "confirm_personal": True}
        done = await self.until(session, "POST", f"{path}/submit", as_json(sent))
        if done is not None:
            self.acknowledged.append((held["text"], done["version"], words))
            self.replayed += done["replayed"]

    async def _review(self, session: aiohttp.ClientSession) -> None:
        while not self._stopping:
            await asyncio.sleep(PAUSE)
            path = "writing/texts?state=waiting&limit=20"
            page = await self.until(session, "GET", path, as_json(None))
            for one in page["items"] if page else ():
                said = {"version": one["version"], "verdict": "accepted"}
                path = f"writing/texts/{one['text']}/review"
                done = await self.until(session, "POST", path, as_json(said))
                if done is None and self.errors[-1][2].startswith("reviewed_already"):
                    done = one  # an answer of before did not arrive
                if done is not None:
                    self.accepted.append(one["text"])

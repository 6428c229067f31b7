"""What a hostile neighbour asks for, all at once and without pause, as members of its own project.

Each of its people has a session and a token. Requests are drawn from `ASKED`: pages that read much,
files of everything, lists of the API, recomputation, imports and large bodies. Run as a program of
its own, so that its work is not counted as waiting of those who label.
"""

import asyncio
import json
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import aiohttp

IMPORTED_ROWS = 2_000  # of a file that is uploaded
BODY_MB = 15  # of JSON, below what forms and JSON may have


@dataclass(frozen=True, slots=True)
class Asked:
    """One request. `path` is below the project's pages, or with `api` below its API."""

    path: str
    api: bool = False
    method: str = "GET"
    body: str = ""  # "form", "file" or "json": what is sent

    @property
    def kind(self) -> str:
        if self.body in ("file", "json"):
            return "uploads"
        if self.body == "form":
            return "recomputing"
        if "format=" in self.path or self.path.endswith(".csv"):
            return "downloads"
        return "API" if self.api else "pages"


ASKED = (
    Asked("overview/"),
    Asked("agreement/"),
    Asked("agreement/slices/"),
    Asked("agreement/matrix/"),
    Asked("agreement/decisions/"),
    Asked("agreement/annotators/"),
    Asked("results/"),
    Asked("comparisons/?q=answer+question"),
    Asked("comparisons/?sort=-votes&at=end"),
    Asked("comparisons/ambiguous/"),
    Asked("disputes/"),
    Asked("audits/"),
    Asked("datasets/new/"),
    Asked("comparisons/results/?format=csv"),
    Asked("comparisons/votes/?format=jsonl"),
    Asked("agreement/decisions.csv"),
    Asked("agreement/annotators.csv"),
    Asked("hours.csv"),
    Asked("audit-log.csv"),
    Asked("comparisons?limit=500&q=answer", api=True),
    Asked("results?format=jsonl", api=True),
    Asked("results/votes?format=parquet", api=True),
    Asked("decisions", api=True),
    Asked("agreement", api=True),
    Asked("ranking", api=True),
    Asked("disputes", api=True),
    Asked("agreement/refresh/", method="POST", body="form"),
    Asked("agreement/annotators/refresh/", method="POST", body="form"),
    Asked("imports", api=True, method="POST", body="file"),
    Asked("comparisons/import", api=True, method="POST", body="json"),
)


@dataclass(frozen=True, slots=True)
class Member:
    """One of the neighbour's people: a browser's cookies and a token."""

    cookies: dict[str, str]
    csrf: str
    token: str


@dataclass(frozen=True, slots=True)
class Attack:
    url: str
    project: str
    members: list[Member]
    at_once: int  # requests of each member
    seconds: float
    body_mb: int = BODY_MB


@dataclass(slots=True)
class Came:
    """What became of it: answers by kind and status, the slowest, and what broke off."""

    statuses: dict[str, Counter[int]] = field(default_factory=dict)
    slowest_s: float = 0.0
    broken: int = 0

    def add(self, kind: str, status: int, seconds: float) -> None:
        self.statuses.setdefault(kind, Counter())[status] += 1
        self.slowest_s = max(self.slowest_s, seconds)


def address(asked: Asked, attack: Attack) -> str:
    below = f"/api/v1/projects/{attack.project}/" if asked.api else f"/p/{attack.project}/"
    return f"{attack.url}{below}{asked.path}"


def file_of_rows(number: int, rows: int = IMPORTED_ROWS) -> bytes:
    """A file for import; rows of another number are other rows."""
    lines = (
        {
            "id": f"n{number}-{row}",
            "prompt": f"Question {number} {row}",
            "response_a": f"One answer to it. {row * 7}",
            "response_b": f"Another answer to it. {row * 13}",
        }
        for row in range(rows)
    )
    return "\n".join(json.dumps(line) for line in lines).encode()


def large_body(megabytes: int) -> bytes:
    """JSON that is too large to be good and is read before that is known: rows without answers."""
    row = {"id": "x", "prompt": "p" * 400}
    one = json.dumps(row).encode() + b","
    return (
        b'{"rows": [' + one * (megabytes * 1_000_000 // len(one)) + json.dumps(row).encode() + b"]}"
    )


async def attack_run(attack: Attack) -> Came:
    came = Came()
    until = time.monotonic() + attack.seconds
    large = large_body(attack.body_mb)
    await asyncio.gather(
        *(
            _ask_on(attack, member, random.Random(100 * n + k), until, large, came)
            for n, member in enumerate(attack.members)
            for k in range(attack.at_once)
        )
    )
    return came


async def _ask_on(
    attack: Attack, member: Member, draw: random.Random, until: float, large: bytes, came: Came
) -> None:
    wait = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(timeout=wait) as session:
        while (began := time.monotonic()) < until:
            asked = draw.choice(ASKED)
            try:
                status = await _ask(session, attack, member, asked, draw, large)
            except (aiohttp.ClientError, TimeoutError):
                came.broken += 1
                continue
            came.add(asked.kind, status, time.monotonic() - began)
            if status in (429, 503):
                await asyncio.sleep(0.05)  # it does not wait as it is told to


async def _ask(
    session: aiohttp.ClientSession,
    attack: Attack,
    member: Member,
    asked: Asked,
    draw: random.Random,
    large: bytes,
) -> int:
    more: dict[str, Any] = {"allow_redirects": False}
    if asked.api:
        more["headers"] = {"Authorization": f"Bearer {member.token}"}
    else:
        more["headers"] = {"X-CSRFToken": member.csrf, "Referer": attack.url}
        more["cookies"] = member.cookies
    if asked.body == "file":
        form = aiohttp.FormData()
        form.add_field("file", file_of_rows(draw.randrange(10**9)), filename="rows.jsonl")
        more["data"] = form
    elif asked.body == "json":
        more["data"] = large
        more["headers"]["Content-Type"] = "application/json"
    elif asked.body == "form":
        more["data"] = {"page": "results"}
    async with session.request(asked.method, address(asked, attack), **more) as answer:
        async for _ in answer.content.iter_chunked(1 << 18):
            pass  # what is sent is not kept
        return answer.status


def main() -> None:
    """Reads an attack from standard input, runs it, prints what came of it."""
    said = json.loads(sys.stdin.read())
    said["members"] = [Member(**member) for member in said["members"]]
    came = asyncio.run(attack_run(Attack(**said)))
    statuses = {kind: dict(counts) for kind, counts in came.statuses.items()}
    told = {"statuses": statuses, "slowest_s": came.slowest_s, "broken": came.broken}
    print(json.dumps(told))


if __name__ == "__main__":
    main()

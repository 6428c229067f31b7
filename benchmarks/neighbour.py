"""Labeling in one project while a hostile neighbour asks for all that is expensive in another.

The web side as `manage.py up` starts it: two web servers, the events worker and the imports worker,
on PostgreSQL and Redis of their own, with the limits that a site has unless it sets others. In the
project "quiet" annotators vote through the pages with a pause between two votes. In the project
"neighbour", which is in the middle of its work, a few people with sessions and tokens ask without
pause for pages, downloads, lists of the API, recomputation, imports and large bodies
(benchmarks/neighbour_world/hostile.py), many at once. In turns, so that both meet the same machine:
alone, with the neighbour, alone, with the neighbour …

The figure is the p95 of labeling with the neighbour over that without; the goal is at most 2. The
neighbour's own program runs at a low priority, since its clients would be elsewhere; what it takes
of the processors all the same counts against the site.

Run: python -m benchmarks.neighbour [--seconds 30] [--turns 2] [--annotators 8] [--pairs 20000]
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.labeling import free_port
from benchmarks.load.players import PagePlayer, Refused
from benchmarks.load.server import web_side
from benchmarks.neighbour_world.hostile import Attack, Member
from benchmarks.report import print_report, print_table, versions
from benchmarks.site import site

PAUSE_S = (0.3, 0.7)  # between two votes of an annotator; people take longer
PEOPLE, AT_ONCE = 5, 12  # of the neighbour, and requests of each
WARM_UP_S = 3.0
GOAL = 2.0


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--seconds", type=float, default=30.0, help="of each measurement")
    arguments.add_argument("--turns", type=int, default=2, help="with and without, so many times")
    arguments.add_argument(
        "--annotators", type=int, default=8, help="who label in the quiet project"
    )
    arguments.add_argument("--pairs", type=int, default=20_000, help="of the neighbour")
    chosen = arguments.parse_args()
    port = free_port()
    with site(port=port) as var:
        from benchmarks.load import projects

        quiet = projects.project_make("quiet", pairs=4_000, annotators=chosen.annotators)
        url = f"http://127.0.0.1:{port}"
        members = neighbour_make(chosen.pairs)
        with limits_of_a_site(), web_side(var, port=port):
            names = [user.username for user in quiet.annotators]
            alone, beside, came, votes = asyncio.run(
                turns(url, names, projects.PASSWORD, members, chosen.seconds, chosen.turns)
            )
        checked = projects.checked(quiet.project, votes)
    report(alone, beside, came, checked, chosen)


@contextmanager
def limits_of_a_site() -> Iterator[None]:
    """Benchmarks ask more than a site's limits let them; the servers started inside have them."""
    names = ("API_RATE", "API_RATE_UNKNOWN", "HEAVY_RATE", "HEAVY_RATE_PROJECT")
    kept = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)


def neighbour_make(pairs: int) -> list[Member]:
    """The neighbour's project and its people, all of whom administer it."""
    from apps.accounts.models import Membership, User
    from apps.accounts.services import token_create
    from apps.labeling.models import Annotator
    from benchmarks.labeling_world.build import project_build
    from benchmarks.load.projects import signed_in

    project = project_build("neighbour", pairs).project
    found = []
    for number in range(PEOPLE):
        user = User.objects.create_user(f"neighbour-admin-{number}", password=None)
        Membership.objects.create(project=project, user=user, role="admin")
        Annotator.objects.create(project=project, user=user, acknowledged_version=1)
        cookies, csrf = signed_in(user)
        scopes = ["read", "label", "write", "admin"]
        _, token = token_create(user=user, name="hostile", scopes=scopes, days=1)
        found.append(Member(cookies, csrf, token))
    return found


async def turns(
    url: str, names: list[str], password: str, members: list[Member], seconds: float, n: int
) -> tuple[list[float], list[float], list[dict[str, Any]], list[int]]:
    """Milliseconds of votes alone and beside the neighbour, what came of its requests, and the
    numbers of all votes that were acknowledged."""
    votes: list[int] = []
    alone: list[float] = []
    beside: list[float] = []
    came = []
    players = [PagePlayer(url, "quiet", name, password) for name in names]
    try:
        for player in players:
            await player.start()
        await label(players, WARM_UP_S, votes)
        for _ in range(n):
            alone += await label(players, seconds, votes)
            attack = Attack(url, "neighbour", members, AT_ONCE, seconds + 2 * WARM_UP_S)
            fight = asyncio.create_task(attacked(attack))
            await label(players, WARM_UP_S, votes)  # until all of its requests are under way
            beside += await label(players, seconds, votes)
            came.append(await fight)
    finally:
        for player in players:
            await player.close()
    return alone, beside, came, votes


async def label(players: Sequence[PagePlayer], seconds: float, votes: list[int]) -> list[float]:
    """Everybody votes with pauses for so long; the milliseconds of each vote and its next pair."""
    took: list[float] = []
    until = time.monotonic() + seconds

    async def vote_on(player: PagePlayer, draw: random.Random) -> None:
        await asyncio.sleep(draw.uniform(0, PAUSE_S[1]))
        while (began := time.monotonic()) < until:
            votes.append(await player.cycle())
            took.append((time.monotonic() - began) * 1000)
            await asyncio.sleep(draw.uniform(*PAUSE_S))

    await asyncio.gather(*(vote_on(player, random.Random(n)) for n, player in enumerate(players)))
    return took


async def attacked(attack: Attack) -> dict[str, Any]:
    """The attack in a process of its own, at a low priority: its clients would be elsewhere."""
    process = await asyncio.create_subprocess_exec(
        *("nice", "-n", "10", sys.executable, "-m", "benchmarks.neighbour_world.hostile"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).resolve().parents[1],
    )
    told, _ = await process.communicate(json.dumps(asdict(attack)).encode())
    if process.returncode:
        raise Refused(f"the neighbour ended with status {process.returncode}")
    found: dict[str, Any] = json.loads(told.decode().splitlines()[-1])
    return found


def quantiles(took: Sequence[float]) -> dict[str, float]:
    cut = statistics.quantiles(took, n=100)
    return {f"p{percent} ms": round(cut[percent - 1], 1) for percent in (50, 95, 99)}


def statuses(came: Sequence[dict[str, Any]]) -> dict[str, Counter[str]]:
    """{kind of request: {status: how many}} over all turns."""
    found: dict[str, Counter[str]] = {}
    for one in came:
        for kind, counts in one["statuses"].items():
            found.setdefault(kind, Counter()).update(counts)
    return found


def report(
    alone: Sequence[float],
    beside: Sequence[float],
    came: Sequence[dict[str, Any]],
    checked: dict[str, Any],
    chosen: argparse.Namespace,
) -> None:
    by_kind = statuses(came)
    every: Counter[str] = sum(by_kind.values(), Counter())
    seen = sorted(every)
    print_table(
        "What the neighbour asked for, and how it was answered",
        [
            {"asked for": kind, "requests": counts.total()}
            | {status: counts.get(status, 0) for status in seen}
            for kind, counts in sorted(by_kind.items())
        ],
    )
    rows = [
        {"labeling": name, "votes": len(took)} | quantiles(took) | {"max ms": round(max(took))}
        for name, took in (("alone", alone), ("beside the neighbour", beside))
    ]
    ratio = rows[1]["p95 ms"] / rows[0]["p95 ms"]
    print_report(
        "Labeling beside a hostile neighbour",
        rows,
        {
            "p95_ratio": round(ratio, 2),
            "goal": GOAL,
            "reached": ratio <= GOAL,
            "alone_ms": quantiles(alone),
            "beside_ms": quantiles(beside),
            "neighbour_requests": every.total(),
            "neighbour_answers": dict(every),
            "neighbour_429": every["429"],
            "neighbour_broken_off": sum(one["broken"] for one in came),
            "neighbour_slowest_s": round(max(one["slowest_s"] for one in came), 1),
            "neighbour_people": PEOPLE,
            "neighbour_at_once": PEOPLE * AT_ONCE,
            "alternative": "the same annotators on the same site in the same run, without it",
            "annotators": chosen.annotators,
            "pairs_of_the_neighbour": chosen.pairs,
            "check": checked,
            "versions": versions("django", "granian", "psycopg", "aiohttp"),
        },
    )


if __name__ == "__main__":
    main()

"""Annotators voting without pause on a running server, through the pages and through the API.

One cycle is one request: a vote, whose answer carries the next pair. 1, 8 and 32 annotators play it
against granian as `manage.py up` starts it, on PostgreSQL and Redis of its own: through the pages
(session, CSRF token, membership check, form in, HTML out) and through the API (token, the Python
client, JSON). Afterwards no comparison may have more votes than its overlap, no annotator may have
met one twice, and the votes stored must be the votes acknowledged.

Named alternatives on the same server, in the same run, with 8 annotators:
- plain ORM: the same page cycle written as one would first (benchmarks/plain_orm.py), sessions in
  the database; its page is smaller than Concord's (no Markdown, undo, flags, count of the rest);
- bare view: one statement, nobody asked who they are, nothing decided, nothing rendered: the most
  that Django gives here.
Label Studio's 8 cycles/s were measured on another day on a machine like ours, not in this run.

CPU ms are those of the server's processes per cycle; `players` is this program, which shares the
cores; `others` is what foreign work took meanwhile, in cores. Figures of a busy machine are no
good: look there first, and compare CPU rather than cycles.

Run: python -m benchmarks.labeling [--seconds 8] [--pairs 6000]
"""

import argparse
import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any

from benchmarks.load.measure import Stage, play
from benchmarks.load.players import ApiPlayer, OneStatementPlayer, PagePlayer, Player
from benchmarks.load.server import Running, web_server
from benchmarks.report import print_report, versions
from benchmarks.site import site

ANNOTATORS = (1, 8, 32)
AT = 8  # annotators at which paths are compared
LABEL_STUDIO = 8.0  # cycles/s, two requests a cycle, PostgreSQL; measured elsewhere
WARM_UP = 2.0  # seconds


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    arguments.add_argument("--pairs", type=int, default=6000, help="of each project")
    chosen = arguments.parse_args()
    port = free_port()
    with site(port=port) as var:
        from benchmarks.load import projects

        played = {
            slug: projects.project_make(slug, pairs=chosen.pairs, annotators=max(ANNOTATORS))
            for slug in ("pages", "api", "plain", "bare")
        }
        keys = projects.tokens(played["api"].annotators)
        people = {slug: [user.username for user in of.annotators] for slug, of in played.items()}
        ids = [user.pk for user in played["bare"].annotators]

        def by_page(slug: str) -> Callable[[str, int], Player]:
            return lambda url, n: PagePlayer(url, slug, people[slug][n], projects.PASSWORD)

        def measure(
            running: Running, path: str, counts: tuple[int, ...], make: Callable[[str, int], Player]
        ) -> list[Stage]:
            async def stage(count: int) -> Stage:
                players = [make(running.url, n) for n in range(count)]
                return await play(
                    path, players, running.servers, warm_up=WARM_UP, seconds=chosen.seconds
                )

            return [asyncio.run(stage(count)) for count in counts]

        with web_server(var, port=port) as running:
            pages = measure(running, "pages", ANNOTATORS, by_page("pages"))
            api = measure(
                running,
                "API",
                ANNOTATORS,
                lambda url, n: ApiPlayer(url, "api", people["api"][n], keys[n]),
            )
        with web_server(var, port=port, settings="benchmarks.load.plain_settings") as running:
            plain = measure(running, "plain ORM", (AT,), by_page("plain"))
        with web_server(var, port=port, settings="benchmarks.load.bare_settings") as running:
            bare = measure(
                running, "bare view", (AT,), lambda url, n: OneStatementPlayer(url, ids[n])
            )
        kept = {
            slug: projects.checked(played[slug].project, [v for stage in of for v in stage.votes])
            for slug, of in (("pages", pages), ("api", api))
        }
    report(pages, api, plain, bare, kept, chosen.pairs)


def report(
    pages: list[Stage],
    api: list[Stage],
    plain: list[Stage],
    bare: list[Stage],
    kept: dict[str, Any],
    pairs: int,
) -> None:
    def at(stages: list[Stage]) -> Stage:
        return next(stage for stage in stages if stage.annotators == AT)

    by_page, by_api, by_plain, by_bare = map(at, (pages, api, plain, bare))
    elsewhere = {"path": "Label Studio, elsewhere", "cycles/s": LABEL_STUDIO, "CPU ms": 140.0}
    print_report(
        "Vote and get the next pair: annotators on a running server",
        [*(stage.row() for stage in (*pages, *api, *plain, *bare)), elsewhere],
        {
            "pages": {stage.annotators: stage.figures() for stage in pages},
            "api": {stage.annotators: stage.figures() for stage in api},
            "alternative": f"the page cycle in plain ORM, same server and run, {AT} annotators",
            "plain_orm": by_plain.figures(),
            "bare_view": by_bare.figures(),
            "ratio_pages_to_plain_orm": ratio(by_page, by_plain),
            "ratio_cpu_plain_orm_to_pages": round(by_plain.server_ms / by_page.server_ms, 2),
            "ratio_pages_to_bare_view": ratio(by_page, by_bare),
            "ratio_api_to_bare_view": ratio(by_api, by_bare),
            "times_label_studio_measured_elsewhere": {
                "pages": round(by_page.per_second / LABEL_STUDIO, 1),
                "api": round(by_api.per_second / LABEL_STUDIO, 1),
            },
            "check": kept,
            "pairs": pairs,
            "load_average": round(os.getloadavg()[0], 2),
            "versions": versions("django", "granian", "psycopg", "aiohttp"),
        },
    )


def ratio(one: Stage, other: Stage) -> float:
    return round(one.per_second / other.per_second, 2)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main()

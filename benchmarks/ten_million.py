"""One project of a million comparisons and ten million votes: labeling, pages, tasks, a backup.

A million pairs with searched texts, eleven votes on each of ten elevenths of them by a thousand
people (benchmarks/labeling_world/), beside a project of 10,000 pairs of the same shape, on the web
side as `manage.py up` starts it. Measured in both projects in turns: 16 people who vote through the
pages without pause; pages by an admin, the first time and the median of the next; the tasks of the
workers, each in a process of its own, with its memory at most; then what the tables and indexes
take, what a vacuum of each takes after all that, and a backup.

The alternative is the small project in the same run: ratio is p95 of a vote in the large one over
that in the small one.

Run: python -m benchmarks.ten_million [--pairs 1000000] [--seconds 20] [--turns 2] [--no-backup]
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.labeling import free_port
from benchmarks.load.measure import Stage, play
from benchmarks.load.players import PagePlayer
from benchmarks.load.server import Running, web_side
from benchmarks.report import print_report, print_table, versions
from benchmarks.site import site

ROOT = Path(__file__).resolve().parent.parent
SMALL = 10_000
OVERLAP, CROWD, AT_ONCE = 11, 1_000, 16
WARM_UP = 3.0
AGAIN = 4  # times that a page is asked for after the first
PAGES = {
    "overview": "overview/",
    "comparisons, first page": "comparisons/",
    "comparisons, last page": "comparisons/?at=end",
    "comparisons by votes": "comparisons/?sort=votes",
    "comparisons of one person": "comparisons/?annotator={person}",
    "comparisons, a word": "comparisons/?search={word}",
    "a comparison": "comparisons/{comparison}/",
    "disputes": "disputes/",
    "agreement": "agreement/",
    "agreement by segment": "agreement/slices/",
    "agreement by pair of people": "agreement/matrix/",
    "decisions": "agreement/decisions/",
    "annotators": "agreement/annotators/",
    "an annotator": "agreement/annotators/{person}/",
    "results": "results/",
    "audits": "audits/",
    "people": "people/",
    "people who label": "annotators/",
    "one who labels": "annotators/{person}/",
    "votes of a person": "annotators/{person}/votes/",
    "hours": "hours/",
    "my answers": "answers/",
    "label": "label/",
    "datasets": "datasets/",
    "a new dataset": "datasets/new/",
    "data readiness": "ready/",
    "notifications": "notifications/",
    "activity (audit log)": "audit-log/",
    "monitoring of people": "monitoring/people/",
}
SITE_PAGES = {"projects": "/projects/", "metrics": "/metrics"}
TASKS = (
    "sweeps",
    "agreement_report",
    "annotator_reports",
    "voters_model",
    "decisions_again",
    "import_pairs",
    "import_votes",
    "freeze",
)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--pairs", type=int, default=1_000_000, help="of tens")
    arguments.add_argument("--seconds", type=float, default=20.0, help="of each turn of labeling")
    arguments.add_argument("--turns", type=int, default=2, help="in each project")
    arguments.add_argument("--no-backup", action="store_true")
    chosen = arguments.parse_args()
    port = free_port()
    with site(port=port) as var:
        from benchmarks.labeling_world.build import Shape, project_build
        from benchmarks.load import projects

        shape = Shape(
            overlap=OVERLAP,
            voted=10 / OVERLAP,
            crowd=CROWD,
            texts=True,
            password=projects.PASSWORD,
        )
        began = time.perf_counter()
        built = {"small": project_build("small", SMALL, shape)}
        built["large"] = project_build("large", chosen.pairs, shape)
        build_s = time.perf_counter() - began
        votes, newest = votes_stored()
        sizes = table_sizes()
        people = {
            slug: [user.username for user in of.crowd[:AT_ONCE]] for slug, of in built.items()
        }
        tasks = [task("sweeps", "large")]
        with web_side(var, port=port) as running:
            pages = page_times(running, built)
            stages = asyncio.run(labeling(running, people, chosen.seconds, chosen.turns))
        kept = {
            slug: projects.checked(
                built[slug].project, [v for stage in of for v in stage.votes], since=newest
            )
            for slug, of in stages.items()
        }
        tasks += [task(name, slug) for name in TASKS for slug in built]
        tasks.append({**task("agreement_report", "large"), "task": "agreement_report again"})
        vacuums = vacuum_times()
        if not chosen.no_backup:
            with tempfile.TemporaryDirectory(prefix="concord-bench-backup-") as folder:
                tasks.append(task("backup", "large", folder))
    report(chosen, votes, build_s, sizes, vacuums, pages, stages, tasks, kept)


def votes_stored() -> tuple[int, int]:
    """How many there are, and the newest."""
    from django.db.models import Count, Max

    from apps.labeling.models import Vote

    found = Vote.objects.aggregate(n=Count("pk"), newest=Max("pk"))
    return found["n"], found["newest"]


async def labeling(
    running: Running, people: dict[str, list[str]], seconds: float, turns: int
) -> dict[str, list[Stage]]:
    """In turns, so that both projects meet the same machine."""
    from benchmarks.load.projects import PASSWORD

    stages: dict[str, list[Stage]] = {slug: [] for slug in people}
    for _ in range(turns):
        for slug, names in people.items():
            players = [PagePlayer(running.url, slug, name, PASSWORD) for name in names]
            stages[slug].append(
                await play(slug, players, running.servers, warm_up=WARM_UP, seconds=seconds)
            )
    return stages


def page_times(running: Running, built: dict[str, Any]) -> list[dict[str, Any]]:
    """Milliseconds of every page in both projects, by their admin."""
    from apps.labeling.models import Comparison
    from benchmarks.load.projects import signed_in

    rows = []
    cookies = {slug: signed_in(of.new)[0] for slug, of in built.items()}
    about = {
        slug: {
            "person": of.crowd[3].pk,
            "word": of.words[60],
            "comparison": Comparison.objects.filter(project=of.project, state="decided")
            .order_by("pk")
            .values_list("pk", flat=True)[SMALL // 4],
        }
        for slug, of in built.items()
    }
    for name, path in (PAGES | SITE_PAGES).items():
        row: dict[str, Any] = {"page": name}
        for slug in built:
            address = path if path.startswith("/") else f"/p/{slug}/{path.format(**about[slug])}"
            first, *rest = (
                answered(running.url + address, cookies[slug]) for _ in range(1 + AGAIN)
            )
            ms = statistics.median(ms for ms, _ in rest)
            row |= {f"{slug}, first ms": round(first[0]), f"{slug}, ms": round(ms)}
            row["answer"] = first[1]
        rows.append(row)
    return rows


def answered(url: str, cookies: dict[str, str]) -> tuple[float, int]:
    """Milliseconds until the last byte, and the status."""
    sent = "; ".join(f"{name}={value}" for name, value in cookies.items())
    request = urllib.request.Request(url, headers={"Cookie": sent})  # noqa: S310 - our own address
    began = time.perf_counter()
    try:
        with urllib.request.urlopen(request, timeout=700) as answer:  # noqa: S310
            answer.read()
            status = answer.status
    except urllib.error.HTTPError as error:
        error.read()
        status = error.code
    return (time.perf_counter() - began) * 1000, status


def task(name: str, slug: str, *rest: str) -> dict[str, Any]:
    """One task in a process of its own, and what it says of itself."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.ten_million_world.jobs", name, slug, *rest],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    row = {"task": name, "project": slug}
    if done.returncode:
        return row | {"failed": done.stderr.strip().splitlines()[-1:] or done.returncode}
    return row | json.loads(done.stdout.splitlines()[-1])


def table_sizes() -> list[dict[str, Any]]:
    """Tables of over 20 MB and their indexes, the largest first."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(_SIZES)
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


_SIZES = """
select c.relname as name, case c.relkind when 'i' then 'index' else 'table' end as kind,
       c.reltuples::bigint as rows,
       round((case c.relkind when 'i' then pg_relation_size(c.oid)
              else pg_table_size(c.oid) end) / 1e6)::int as "MB"
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'public' and c.relkind in ('r', 'i') and pg_relation_size(c.oid) > 20e6
order by 4 desc
"""


def vacuum_times() -> list[dict[str, Any]]:
    """Of the tables that votes change, after the votes and imports of this run."""
    from django.db import connection

    rows = []
    with connection.cursor() as cursor:
        for table in ("labeling_answer", "labeling_slot", "labeling_task", "labeling_decision"):
            began = time.perf_counter()
            cursor.execute(f"vacuum {table}")
            vacuum_s = time.perf_counter() - began
            began = time.perf_counter()
            cursor.execute(f"analyze {table}")
            rows.append(
                {
                    "table": table,
                    "vacuum s": round(vacuum_s, 2),
                    "analyze s": round(time.perf_counter() - began, 2),
                }
            )
    return rows


def report(
    chosen: argparse.Namespace,
    votes: int,
    build_s: float,
    sizes: list[dict[str, Any]],
    vacuums: list[dict[str, Any]],
    pages: list[dict[str, Any]],
    stages: dict[str, list[Stage]],
    tasks: list[dict[str, Any]],
    kept: dict[str, Any],
) -> None:
    print_table("Tables and indexes over 20 MB", sizes)
    print_table("Vacuum and analyze after this run", vacuums)
    print_table("Pages", pages)
    print_table("Tasks", [flat(row) for row in tasks])
    p95 = {slug: quantiles(of)["p95"] for slug, of in stages.items()}
    print_report(
        f"{votes:,} votes on {chosen.pairs:,} comparisons",
        [{"project": slug, **stage.row()} for slug, of in stages.items() for stage in of],
        {
            "votes": votes,
            "comparisons": chosen.pairs,
            "people": CROWD,
            "build_s": round(build_s),
            "database_mb": sum(row["MB"] for row in sizes),
            "label_ms": {slug: quantiles(of) for slug, of in stages.items()},
            "ratio": round(p95["large"] / p95["small"], 2),
            "alternative": f"a project of {SMALL:,} comparisons on the same site, in turns",
            "pages_ms": {row["page"]: [row["small, ms"], row["large, ms"]] for row in pages},
            "pages_over_1_s": sum(row["large, ms"] > 1_000 for row in pages),
            "tasks": {f"{row['task']}, {row['project']}": row.get("seconds") for row in tasks},
            "peak_mb": max(row.get("peak_mb", 0) for row in tasks),
            "check": kept,
            "versions": versions("django", "granian", "psycopg"),
        },
    )


def quantiles(stages: Sequence[Stage]) -> dict[str, float]:
    every = statistics.quantiles([ms for one in stages for ms in one.latencies_ms], n=100)
    return {f"p{percent}": round(every[percent - 1], 1) for percent in (50, 95, 99)}


def flat(row: dict[str, Any]) -> dict[str, Any]:
    """Figures of their own in one cell."""
    known = ("task", "project", "seconds", "cpu_seconds", "database_cpu_seconds", "peak_mb")
    rest = {key: value for key, value in row.items() if key not in known}
    words = ", ".join(f"{key} {value}" for key, value in rest.items())
    return {key: row[key] for key in known if key in row} | {"and": words}


if __name__ == "__main__":
    main()

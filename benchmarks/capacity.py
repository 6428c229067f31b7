"""What grows with annotators, runs and requests, and when: a capacity model from measured figures.

Measures one page cycle of labeling and one batch of a run's events, on servers of its own: CPU of
web, PostgreSQL and Redis, commands, bytes of log and of storage. From these follow cores, traffic
and storage for 10, 1,000 and 100,000 annotators with 1 and 100 runs. What GPUs are needed for is
calculated, not measured (benchmarks/capacity_world/gpus.py): serving 100,000 requests a second and
a PPO step.

The named alternative of the tables about GPUs is their first row.

Run: python -m benchmarks.capacity [--cycles 1000] [--write: measured.json and docs/scale.md again]
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.capacity_world.people import Measured
from benchmarks.capacity_world.tables import TABLES, marked
from benchmarks.report import print_report, print_table
from benchmarks.site import site

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "benchmarks/capacity_world/measured.json"
PAGE = ROOT / "docs/scale.md"
STEPS = 4_000  # of the run whose events are applied, a batch each
BATCHES = 1_000  # of these, whose cost is taken


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--cycles", type=int, default=1000)
    arguments.add_argument("--write", action="store_true")
    chosen = arguments.parse_args()
    os.environ["DATABASE_POOL"] = "1"
    with site() as var:
        found = measured(var, chosen.cycles)
    if chosen.write:
        RECORD.write_text(json.dumps(asdict(found), indent=1) + "\n")
    tables: Mapping[str, Sequence[Mapping[str, object]]] = {
        title: make(found) for title, make in TABLES.items()
    }
    if chosen.write:
        PAGE.write_text(marked(PAGE.read_text(), tables))
    *first, last = tables
    for title in first:
        print_table(title, tables[title])
    print_report(last, tables[last], {"measured": asdict(found), "cycles": chosen.cycles})


def measured(var: Path, cycles: int) -> Measured:
    """One page cycle and one batch of events."""
    vote = vote_costs(var, cycles)
    batch = batch_costs(var)
    return Measured(**vote, **batch)


def vote_costs(var: Path, cycles: int) -> dict[str, float]:
    from benchmarks.labeling_cycle import cycles_of, repeat
    from benchmarks.load import projects

    played = projects.project_make("capacity", pairs=4 * cycles, annotators=2)
    cycle = cycles_of(played)
    repeat(cycle, 50)  # plans, templates and pools are warm
    before = labeling_bytes()
    spent = costs(var, lambda: repeat(cycle, cycles))
    stored = labeling_bytes() - before
    return {
        "vote_web_ms": spent["web_ms"] / cycles,
        "vote_postgres_ms": spent["postgres_ms"] / cycles,
        "vote_redis_ms": spent["redis_ms"] / cycles,
        "vote_redis_commands": spent["redis_commands"] / cycles,
        "vote_wal_bytes": spent["wal_bytes"] / cycles,
        "vote_stored_bytes": stored / cycles,
    }


def batch_costs(var: Path) -> dict[str, float]:
    """As the event worker applies them, without Celery's own work."""
    from apps.accounts.models import Project
    from apps.training.dispatch import ack_send
    from benchmarks.events import apply, run_make, sizes, vacuum
    from benchmarks.events_world.trainers import METRICS, curves, names

    project = Project.objects.create(slug="runs", name="Runs")
    run = run_make(project, "capacity")
    several = [
        {"steps": [step], "values": {n: [v] for n, v in zip(names(), row, strict=True)}}
        for step, row in enumerate(curves(STEPS, seed=2).tolist(), 1)
    ]
    before = sizes()

    def take(first: int, last: int) -> None:
        for seq in range(first, last):
            apply(run, seq, several[seq - 1])
            ack_send(run.pk, 1, seq)

    take(1, 50)
    spent = costs(var, lambda: take(50, 50 + BATCHES))
    take(50 + BATCHES, len(several) + 1)
    vacuum("training_metricblock")
    stored = sizes()["training_metricblock"] - before["training_metricblock"]
    return {
        "batch_web_ms": spent["web_ms"] / BATCHES,
        "batch_postgres_ms": spent["postgres_ms"] / BATCHES,
        "batch_redis_commands": spent["redis_commands"] / BATCHES,
        "batch_wal_bytes": spent["wal_bytes"] / BATCHES,
        "batch_points": METRICS,
        "million_points_bytes": stored / (STEPS * METRICS / 1e6),
    }


def costs(var: Path, work: Callable[[], Any]) -> dict[str, float]:
    """What `work` took of this process and of the servers."""
    from django.db import connection

    from benchmarks.load.cpu import Servers

    servers = Servers.of(web=os.getpid(), var=var)
    commands, log, used = redis_commands(), wal_bytes(connection), servers.used()
    cpu = time.process_time()
    work()
    web = (time.process_time() - cpu) * 1000
    spent = servers.used().since(used)
    return {
        "web_ms": web,
        "postgres_ms": spent.postgres,
        "redis_ms": spent.redis,
        "redis_commands": redis_commands() - commands - 1,
        "wal_bytes": wal_bytes(connection) - log,
    }


def redis_commands() -> int:
    import redis

    client = redis.Redis.from_url(os.environ["REDIS_URL"])
    return int(client.info("stats")["total_commands_processed"])


def wal_bytes(connection: Any) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')")
        return int(cursor.fetchone()[0])


def labeling_bytes() -> int:
    """Of all tables of the labeling app and of its history, indexes included."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sum(pg_total_relation_size(relid)) FROM pg_stat_user_tables "
            "WHERE relname LIKE 'labeling_%'"
        )
        return int(cursor.fetchone()[0])


if __name__ == "__main__":
    main()

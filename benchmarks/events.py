"""Metric points of 20 runs at once: storing and reading them, beside one JSON row an event.

Three parts, in both layouts in turns on the same servers: points in compressed blocks (ours), and
as before, one row with a JSON body per Metrics event.

    ingest   20 runs report 50 metrics at 10 steps a second (10,000 points a second) through the
             real path: RunContext → spool → the supervisor's relay → Redis → the event worker
             (one process, as `up` starts it) → PostgreSQL. The trainers are loops in this process;
             their CPU time is told apart. CPU figures are process time from /proc: shares of one
             core that other work on the machine does not change.
    storage  a run of a million points (50 × 20,000) in batches of ten steps, applied in this
             process: rows, bytes with indexes and TOAST, CPU time.
    reading  the run's page and its curves, whole requests by Django's test client as an engineer,
             in milliseconds and in CPU time of this process; also of 100,000 steps × 50, once.

Four fifths of the metrics are float32 values, as torch gives them; all are noise around a walk, so
neither layout profits from repetition. Every value read back is compared with the one sent.

Starts PostgreSQL and Redis of its own in a temporary folder.
Run: python -m benchmarks.events [seconds of ingest]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # as the event worker of `up`

import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.events_world.trainers import (
    METRICS,
    STEPS_A_SECOND,
    Trainer,
    curves,
    drain,
    drive,
    names,
)
from benchmarks.report import print_report, versions
from benchmarks.site import site

RUNS, SECONDS = 20, 30
MILLION_STEPS, LONG_STEPS, BATCH_STEPS = 20_000, 100_000, 10
READS = 7
LAYOUTS = {"blocks": "config.celery", "JSON rows": "benchmarks.events_world.before"}
TABLES = ("training_metricblock", "training_runevent")


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    with site() as var:
        project, client = world()
        ingest = [ingested(name, app, project, var, seconds) for name, app in LAYOUTS.items()]
        runs, storage = stored(project)
        reading = read(client, project, runs)
        reading += read(client, project, long_runs(project), "100,000 steps × 50", reads=1)
    report(ingest, storage, reading, seconds)


def world() -> tuple[Any, Any]:
    """(project, a client signed in as its engineer)."""
    from django.test import Client

    from apps.accounts.models import Membership, Project, User

    project = Project.objects.create(slug="events", name="Events")
    emil = User.objects.create(username="emil", is_active=True)
    Membership.objects.create(project=project, user=emil, role="engineer")
    client = Client(headers={"host": "localhost"})
    client.force_login(emil)
    return project, client


def run_make(project: Any, name: str, state: str = "running") -> Any:
    from django.utils import timezone

    from apps.training.models import Run, RunAttempt

    ended = {"ended_at": timezone.now()} if state == "finished" else {}
    run = Run.objects.create(
        project=project, name=name, kind="ppo", state=state, attempt=1, **ended
    )
    RunAttempt.objects.create(run=run, number=1)
    return run


# --- ingest --------------------------------------------------------------------------------------


def ingested(layout: str, app: str, project: Any, var: Path, seconds: float) -> dict[str, Any]:
    from benchmarks.load.cpu import Servers
    from workers.supervisor.connection import Line

    line = Line(os.environ["REDIS_URL"])
    values = curves(int(seconds * STEPS_A_SECOND) + 1).tolist()
    trainers = []
    for n in range(RUNS):
        folder = var / "spools" / layout / str(n)
        folder.mkdir(parents=True)
        run = run_make(project, f"{layout} {n}")
        trainers.append(Trainer(run.pk, folder, line, values))
    with event_worker(app) as pid:
        drain(trainers, limit_s=300)  # the worker starts; the first message pays for connections
        for trainer in trainers:
            trainer.delays.clear()
        servers = Servers.of(web=pid, var=var)
        written, used = counted(), servers.used()
        started = time.monotonic()
        drive(trainers, seconds)
        took = time.monotonic() - started
        spent = servers.used().since(used)
        waiting = line.batches_waiting()
        behind = sum(len(one.written) - one.acked for one in trainers)
        drained = drain(trainers, limit_s=300)
        inserted = {table: now - written[table] for table, now in counted().items()}
    applied = points_stored([one.run for one in trainers])
    offered = sum(one.step for one in trainers) * METRICS
    assert applied == offered, (applied, offered)
    delays = sorted(delay for one in trainers for delay in one.delays)
    line.close()
    return {
        "layout": layout,
        "points/s offered": round(offered / took),
        "points/s applied": round(applied / (took + drained)),
        "batches waiting at the end": waiting,
        "events not yet in at the end": behind,
        "s to drain": round(drained, 2),
        "event worker, % of a core": round(spent.web / took / 10, 1),
        "PostgreSQL, % of a core": round(spent.postgres / took / 10, 1),
        "Redis, % of a core": round(spent.redis / took / 10, 1),
        "trainers and relays, % of a core": round(spent.players / took / 10, 1),
        "other work on the machine, % of a core": round(spent.others / took / 10, 1),
        "rows of points/s": round(
            inserted[TABLES[0] if layout == "blocks" else "metrics events"] / took, 1
        ),
        "p50 s": round(delays[len(delays) // 2], 2),
        "p95 s": round(delays[int(0.95 * len(delays))], 2),
    }


@contextlib.contextmanager
def event_worker(app: str) -> Any:
    argv = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        app,
        "worker",
        "-Q",
        "events,default",
        "-n",
        "events@%h",
        "-P",
        "prefork",
        "-c",
        "1",
        "--without-gossip",
        "--without-mingle",
        "--loglevel",
        "ERROR",
    ]
    process = subprocess.Popen(argv)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(20)


def counted() -> dict[str, int]:
    """Rows ever inserted, by table; of the events also those of points."""
    from django.db import connection

    time.sleep(1.2)  # PostgreSQL tells its counts once a second
    with connection.cursor() as cursor:
        cursor.execute("SELECT relname, n_tup_ins FROM pg_stat_user_tables")
        found = dict(cursor.fetchall())
        cursor.execute("SELECT count(*) FROM training_runevent WHERE type = 'Metrics'")
        (events,) = cursor.fetchone()
    return {table: found.get(table, 0) for table in TABLES} | {"metrics events": events}


def points_stored(runs: list[str]) -> int:
    from django.db.models import Sum

    from apps.training.models import MetricBlock, RunEvent

    blocks = MetricBlock.objects.filter(run__in=runs).aggregate(n=Sum("points"))["n"] or 0
    bodies = RunEvent.objects.filter(run__in=runs, type="Metrics").values_list("body", flat=True)
    return blocks + sum(len(b["steps"]) * len(b["values"]) for b in bodies.iterator())


# --- storage -------------------------------------------------------------------------------------


def stored(project: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A run of a million points in each layout, and what that took."""
    from apps.training.models import MetricBlock, RunEvent
    from benchmarks.events_world.before import old_storage

    values = curves(MILLION_STEPS, seed=1)
    runs, rows = {}, []
    for layout, around in (("blocks", contextlib.nullcontext), ("JSON rows", old_storage)):
        runs[layout] = run = run_make(project, f"a million, {layout}")
        before, cpu = sizes(), time.process_time()
        with around():
            for seq, batch in enumerate(batches(run, values), 1):
                apply(run, seq, batch)
            finish(run, seq + 1)
        spent = time.process_time() - cpu
        table = TABLES[0] if layout == "blocks" else TABLES[1]
        model = MetricBlock if layout == "blocks" else RunEvent
        vacuum(table)
        rows.append(
            {
                "layout": layout,
                "rows per million points": model.objects.filter(run=run)
                .exclude(**({} if layout == "blocks" else {"type": "Finished"}))
                .count(),
                "MB per million points": round((sizes()[table] - before[table]) / 1e6, 2),
                "CPU s of this process": round(spent, 2),
            }
        )
    return runs, rows


def batches(run: Any, values: Any) -> Any:
    for start in range(0, len(values), BATCH_STEPS):
        some = values[start : start + BATCH_STEPS]
        steps = list(range(start + 1, start + 1 + len(some)))
        columns = some.T.tolist()
        yield {"steps": steps, "values": dict(zip(names(), columns, strict=True))}


def apply(run: Any, seq: int, body: dict[str, Any], kind: str = "Metrics") -> None:
    from apps.training.services import events_apply

    event = {
        "version": 1,
        "type": kind,
        "event": body,
        "run": run.pk,
        "attempt": 1,
        "seq": seq,
        "at": 1_795_000_000.0,
    }
    found = events_apply(batch={"version": 1, "run": run.pk, "attempt": 1, "events": [event]})
    assert found.applied == 1, found


def finish(run: Any, seq: int) -> None:
    apply(run, seq, {"step": MILLION_STEPS, "summary": {}, "stopped_early": False}, "Finished")
    run.refresh_from_db()


def sizes() -> dict[str, int]:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname, pg_total_relation_size(oid) FROM pg_class WHERE relname = ANY(%s)",
            [list(TABLES)],
        )
        return dict(cursor.fetchall())


def vacuum(table: str) -> None:
    """What a merge left behind goes, as autovacuum does it sooner or later."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(f"VACUUM FULL {table}")


# --- reading -------------------------------------------------------------------------------------


def long_runs(project: Any) -> dict[str, Any]:
    """Five million points in each layout, stored in the quickest way."""
    from django.utils import timezone

    from apps.training.models import RunEvent
    from apps.training.services import metrics_store

    values = curves(LONG_STEPS, seed=2)
    ours, theirs = (run_make(project, f"long, {name}", "finished") for name in LAYOUTS)
    steps = range(1, LONG_STEPS + 1)
    for name, row in zip(names(), values.T.tolist(), strict=True):
        metrics_store(run=ours, attempt=1, series={name: list(zip(steps, row, strict=True))})
    RunEvent.objects.bulk_create(
        (
            RunEvent(run=theirs, attempt=1, seq=n, at=timezone.now(), type="Metrics", body=body)
            for n, body in enumerate(batches(theirs, values), 1)
        ),
        batch_size=200,
    )
    return dict(zip(LAYOUTS, (ours, theirs), strict=True))


def read(
    client: Any,
    project: Any,
    runs: dict[str, Any],
    size: str = "20,000 steps × 50",
    reads: int = READS,
) -> list[dict[str, Any]]:
    """Milliseconds of whole requests, in turns; the layouts must show the same."""
    from apps.training import selectors
    from benchmarks.events_world import before

    ways: dict[str, Callable[..., Any]] = {
        "blocks": selectors.metric_series,
        "JSON rows": before.metric_series,
    }
    pages = {
        "curves, thinned to 1,000 points": "metrics.json",
        "first page": "",
    }
    rows = []
    for what, where in pages.items():
        wall: dict[str, list[float]] = {layout: [] for layout in runs}
        cpu: dict[str, list[float]] = {layout: [] for layout in runs}
        shown: dict[str, Any] = {}
        for _ in range(reads):
            for layout, run in runs.items():
                selectors.metric_series = ways[layout]
                started, worked = time.perf_counter(), time.process_time()
                answer = client.get(f"/p/{project.slug}/runs/{run.pk}/{where}")
                wall[layout].append(1000 * (time.perf_counter() - started))
                cpu[layout].append(1000 * (time.process_time() - worked))
                assert answer.status_code == 200, answer
                if where == "metrics.json":
                    shown[layout] = answer.json()["series"]
        selectors.metric_series = ways["blocks"]
        assert not shown or shown["blocks"] == shown["JSON rows"], "the curves differ"
        ms = {layout: statistics.median(times) for layout, times in wall.items()}
        worked_ms = {layout: statistics.median(times) for layout, times in cpu.items()}
        rows.append(
            {
                "run": size,
                "read": what,
                **{f"{layout}, ms": round(value, 1) for layout, value in ms.items()},
                **{f"{layout}, CPU ms": round(value, 1) for layout, value in worked_ms.items()},
                "CPU, times less": round(worked_ms["JSON rows"] / worked_ms["blocks"], 1),
            }
        )
    return rows


# --- report --------------------------------------------------------------------------------------


def report(
    ingest: list[dict[str, Any]],
    storage: list[dict[str, Any]],
    reading: list[dict[str, Any]],
    seconds: float,
) -> None:
    shown = [
        {"part": part, "figure": key, **{row["layout"]: row[key] for row in rows}}
        for part, rows in (("ingest", ingest), ("storage", storage))
        for key in rows[0]
        if key != "layout"
    ]
    shown += [
        {"part": "reading", "figure": f"{row['run']}: {row['read']}, {unit}"}
        | {layout: row[f"{layout}, {unit}"] for layout in LAYOUTS}
        for row in reading
        for unit in ("ms", "CPU ms")
    ]
    print_report(
        "Metric points: compressed blocks against one JSON row per event",
        shown,
        {
            "runs": RUNS,
            "metrics": METRICS,
            "steps_per_second": STEPS_A_SECOND,
            "seconds": seconds,
            "alternative": "one row with a JSON body per Metrics event, same run",
            "ingest": ingest,
            "storage": storage,
            "bytes_ratio": round(
                storage[1]["MB per million points"] / storage[0]["MB per million points"], 1
            ),
            "reading": reading,
            "versions": versions("django", "psycopg", "numpy"),
        },
    )


if __name__ == "__main__":
    main()

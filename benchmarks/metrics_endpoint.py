"""What `/metrics` takes with live runs: 0, 50 and 200 of them, each with the most small blocks.

Each run has 50 metrics: one merged block of 1,000 steps, and 31 blocks of ten steps, which is what
a run has just before its next merge. Nothing is cached. The middle of seven reads in this process,
wall time and CPU time; the database's own CPU time is in the wall time alone.

Starts PostgreSQL and Redis of its own in a temporary folder.
Run: python -m benchmarks.metrics_endpoint
"""

import statistics
import time
from typing import Any

from benchmarks.report import print_report, versions
from benchmarks.site import site

RUNS = (0, 50, 200)
SMALL_BLOCKS, METRICS, READS = 31, 50, 7


def main() -> None:
    with site():
        rows = []
        for n in RUNS:
            made(n)
            rows.append(measured(n))
    print_report(
        "/metrics with live runs",
        rows,
        {
            "blocks_per_run": 1 + SMALL_BLOCKS,
            "metrics": METRICS,
            "rows": rows,
            "versions": versions("django", "psycopg", "numpy", "prometheus-client"),
        },
    )


def made(n: int) -> None:
    """As many live runs as that."""
    import numpy as np
    from django.utils import timezone

    from apps.accounts.models import Project
    from apps.monitoring.selectors.run_gauges import METRICS as SHOWN
    from apps.training.metric_blocks import Column, block_fields
    from apps.training.models import MetricBlock, Run

    project, _ = Project.objects.get_or_create(slug="bench", name="Bench")
    # Some figure is always missing, as in every kind of run, so all heads are looked through.
    names = [name for name in SHOWN if "margin" not in name]
    names += [f"other/{k}" for k in range(METRICS - len(names))]
    noise, now = np.random.default_rng(1), timezone.now()

    def block(first: int, steps: int) -> dict[str, Any]:
        at = np.arange(first, first + steps)
        points = {name: Column(at, noise.normal(size=steps)) for name in names}
        return block_fields(points, at=now.timestamp())

    # The same numbers for all: what is measured is their reading.
    blocks = [block(0, 1000), *(block(1000 + 10 * k, 10) for k in range(SMALL_BLOCKS))]
    for _ in range(n - Run.objects.count()):
        run = Run.objects.create(
            project=project, name="r", kind="ppo", state="running", started_at=now, heard_at=now
        )
        MetricBlock.objects.bulk_create(
            MetricBlock(run=run, attempt=1, first_seq=seq, last_seq=seq, **fields)
            for seq, fields in enumerate(blocks, 1)
        )


def measured(n: int) -> dict[str, float]:
    from django.conf import settings
    from django.db import connection
    from django.test.utils import CaptureQueriesContext
    from django.utils import timezone

    from apps.monitoring.selectors.run_gauges import run_families
    from apps.monitoring.views.metrics import exposition

    settings.METRICS_RUNS = max(n, 1)
    with CaptureQueriesContext(connection) as queries:
        text = exposition()
    wall, used, own = [], [], []
    for _ in range(READS):
        began, busy = time.perf_counter(), time.process_time()
        exposition()
        wall.append(1000 * (time.perf_counter() - began))
        used.append(1000 * (time.process_time() - busy))
        began = time.perf_counter()
        list(run_families(timezone.now()))
        own.append(1000 * (time.perf_counter() - began))
    return {
        "live runs": n,
        "queries": len(queries),
        "series": sum(not line.startswith("#") for line in text.splitlines()),
        "kB": round(len(text) / 1000),
        "ms": round(statistics.median(wall)),
        "CPU ms": round(statistics.median(used)),
        "of it the runs, ms": round(statistics.median(own)),
    }


if __name__ == "__main__":
    main()

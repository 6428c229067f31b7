"""From an event in a trainer to the receiver of its alert: p50 and p95, beside a dead receiver.

Batches as supervisors send them go through the broker to a real event worker, which stores the
alert, settles its incident and writes the messages; the default queue sends them to a receiver on
this machine. Each alert is of a run of its own, so each opens an incident. The project has a second
channel that never answers, which must hold up nothing. First the alerts come one by one, then all
at once. `Envelope.at` is stamped right before a batch is sent; what a supervisor adds, since it
collects events for up to half a second, is added to the figures as a whole.

Starts PostgreSQL, Redis, the event worker and the scheduler, as `manage.py up` does, in a
temporary folder.
Run: python -m benchmarks.alert_delay [alerts of each kind, 120]
"""

import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import print_report
from benchmarks.site import site

BETWEEN_S = 0.25  # one by one: seconds between alerts
COLLECTED_S = 0.5  # how long a supervisor collects events, at most
LONGEST_S = 300.0
LIMIT_S = 60.0  # SPEC F11, at the 95 % quantile


class Arrivals:
    """When the first message of each run arrived, in Unix seconds."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}
        self.messages = 0

    def take(self, run: str) -> None:
        self.messages += 1
        self.at.setdefault(run, time.time())


@contextmanager
def receiver(arrivals: Arrivals) -> Iterator[str]:
    import json

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            arrivals.take(body["run"]["id"])
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()


@contextmanager
def deaf() -> Iterator[str]:
    """An address that takes connections and never answers: the costliest kind of dead."""
    with socket.create_server(("127.0.0.1", 0), backlog=1000) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"


@contextmanager
def program(folder: Path, name: str) -> Iterator[None]:
    """One of the programs of `manage.py up`, as it starts it."""
    from apps.common.processes import programs

    found = next(p for p in programs(port=0, log_level="WARNING") if p.name == name)
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            found.argv, stdout=log, stderr=log, env=os.environ | found.environment
        )
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:  # a busy machine; nothing of it is kept
                process.kill()
                process.wait()


def batch_of(run: str) -> dict[str, Any]:
    from apps.training.signing import secret_of
    from workers.contract import Alert, Envelope, Evidence, envelope_to_json
    from workers.contract.signing import signed
    from workers.contract.wire import VERSION

    alert = Alert("critic_dead", "critical", 40, "It explains nothing.", -0.2, 0.0)
    proof = Evidence("critic", "critic_dead", "trend", 40, -0.2, "over 0", onset=30)
    now = time.time()
    events = [
        envelope_to_json(Envelope(run, 1, seq, now, event))
        for seq, event in enumerate((alert, proof), 1)
    ]
    batch = {"version": VERSION, "run": run, "attempt": 1, "events": events}
    return signed(batch, secret_of(run, 1))


def runs_make(project: Any, n: int) -> list[str]:
    from apps.training.models import Run, RunAttempt

    runs = Run.objects.bulk_create(
        Run(project=project, name=f"run {k}", kind="drill", state="running", attempt=1)
        for k in range(n)
    )
    RunAttempt.objects.bulk_create(RunAttempt(run=run, number=1) for run in runs)
    return [run.pk for run in runs]


def send(runs: list[str], between: float) -> dict[str, float]:
    """{run: when its event was stamped}."""
    from celery import Celery
    from kombu import Exchange, Queue

    from workers.contract import wire
    from workers.contract.broker import sender_settings

    app = Celery("benchmark", set_as_current=False, fixups=[])
    app.conf.update(sender_settings(os.environ["REDIS_URL"]))
    name = wire.QUEUE_EVENTS
    app.conf.task_queues = [Queue(name, Exchange(name, type="direct"), routing_key=name)]
    stamped = {}
    for run in runs:
        batch = batch_of(run)
        stamped[run] = batch["events"][0]["at"]
        app.send_task(wire.TASK_RECORD_EVENTS, args=[batch], queue=name)
        time.sleep(between)
    return stamped


def measure(project: Any, arrivals: Arrivals, n: int, between: float, name: str) -> dict[str, Any]:
    runs = runs_make(project, n)
    stamped = send(runs, between)
    ends = time.monotonic() + LONGEST_S
    while time.monotonic() < ends and not all(run in arrivals.at for run in runs):
        time.sleep(0.1)
    delays = np.array(
        [arrivals.at.get(run, np.inf) - at + COLLECTED_S for run, at in stamped.items()]
    )
    print(f"{name}: {sum(run in arrivals.at for run in runs)} of {n} arrived", file=sys.stderr)
    p50, p95 = (float(np.quantile(delays, q, method="higher")) for q in (0.5, 0.95))
    return {
        "alerts": name,
        "n": n,
        "arrived": int(np.isfinite(delays).sum()),
        "p50 s": round(p50, 2),
        "p95 s": round(p95, 2),
        "longest s": round(float(delays.max()), 2),
    }


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 120
    os.environ["WEBHOOK_HOSTS"] = "127.0.0.1"
    arrivals = Arrivals()
    with ExitStack() as stack:
        folder = stack.enter_context(site())
        good, dead = stack.enter_context(receiver(arrivals)), stack.enter_context(deaf())
        from apps.accounts.models import Project
        from apps.monitoring.models import Channel, Incident

        project = Project.objects.create(slug="bench", name="Bench")
        for url in (dead, good):
            Channel.objects.create(
                project=project, kind="webhook", address=url, secret=secrets.token_urlsafe(16)
            )
        for name in ("events", "scheduler"):
            stack.enter_context(program(folder, name))
        measure(project, arrivals, 1, 0.0, "warm-up")
        rows = [
            measure(project, arrivals, n, BETWEEN_S, "one by one"),
            measure(project, arrivals, n, 0.0, "all at once"),
        ]
        incidents = Incident.objects.count()
    worst = max(row["p95 s"] for row in rows)
    print_report(
        "From event to alert",
        rows,
        {
            "p95_s": worst,
            "limit_s": LIMIT_S,
            "met": worst <= LIMIT_S,
            "incidents": incidents,
            "messages": arrivals.messages,
            "supervisor_s": COLLECTED_S,
        },
    )


if __name__ == "__main__":
    main()

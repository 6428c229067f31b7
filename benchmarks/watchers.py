"""The page of a live run looked at by 3,000 people at once: memory, delays, and other pages.

Granian and the process of event streams run as `manage.py up` starts them (one of the two web
servers), on PostgreSQL and Redis of their own. 3,000 people, each with a session of their own, hold
a stream over loopback, two of three on the overview, the third on the charts; they are one process.
A run of 50 metrics applies a batch of events a second, each stamped right before. Meanwhile one
person opens other pages one after the other. The same pages are measured before without watchers.
Beside it the price of what the streams replace: 3,000 pages that poll every two seconds.

Run: python -m benchmarks.watchers [watchers, 3000] [seconds, 60]
"""

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.load.server import Running, web_server
from benchmarks.report import print_report, versions
from benchmarks.site import site

WATCHERS, SECONDS, QUIET_SECONDS = 3000, 60.0, 20.0
METRICS, EVENT_S, PAUSE_S, POLL_S = 50, 1.0, 0.05, 2.0
LIMIT_MB, LIMIT_MS = 400, 50
PAGES = ("runs/", "models/", "comparisons/", "datasets/", "guidelines/")


def main() -> None:
    watchers = int(sys.argv[1]) if len(sys.argv) > 1 else WATCHERS
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else SECONDS
    port, stream_port = free_port(), free_port()
    os.environ["STREAM_PORT"] = str(stream_port)
    with contextlib.ExitStack() as stack:
        var = stack.enter_context(site(port=port))
        run, sessions = world(watchers)
        web = stack.enter_context(web_server(var, port=port))
        streams = stack.enter_context(stream_server(var, stream_port))
        stack.enter_context(emitting(run))
        visitor = Visitor(port, sessions[0])
        before = memory(streams)
        visitor.pages(5.0)  # every process has answered each page
        quiet = visitor.pages(QUIET_SECONDS)
        load_before, used = os.getloadavg()[0], cpu(streams, web)
        with crowd(run, sessions, stream_port, seconds) as found:
            used, began = cpu(streams, web), time.monotonic()
            busy = visitor.pages(seconds)
            spent, took = cpu(streams, web), time.monotonic() - began
            after = memory(streams)
        poll_ms = visitor.poll(run)
    report(
        watchers,
        before,
        after,
        quiet,
        busy,
        found,
        poll_ms,
        load_before,
        {
            "stream process": share(spent[0] - used[0], took),
            "web": share(spent[1] - used[1], took),
        },
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def world(watchers: int) -> tuple[Any, list[str]]:
    """(a live run, a session for each of so many engineers of its project)."""
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
    from django.contrib.sessions.backends.cached_db import SessionStore

    from apps.accounts.models import Membership, Project, User
    from apps.training.models import Run, RunAttempt

    project = Project.objects.create(slug="bench", name="Bench")
    people = User.objects.bulk_create(
        User(username=f"person-{n}", email=f"p{n}@example.org") for n in range(watchers)
    )
    Membership.objects.bulk_create(
        Membership(project=project, user=one, role="engineer") for one in people
    )
    sessions = []
    for one in people:
        session = SessionStore()
        session[SESSION_KEY] = str(one.pk)
        session[BACKEND_SESSION_KEY] = "apps.accounts.backends.SessionBackend"
        session[HASH_SESSION_KEY] = one.get_session_auth_hash()
        session.save()
        sessions.append(str(session.session_key))
    run = Run.objects.create(
        project=project, name="watched", kind="ppo", state="running", attempt=1, total_steps=10_000
    )
    RunAttempt.objects.create(run=run, number=1)
    return run, sessions


@contextlib.contextmanager
def stream_server(var: Path, port: int) -> Iterator[int]:
    """Yields its pid."""
    from apps.common.processes import end_with_parent, stream_program

    program = stream_program(log_level="WARNING", environment={})
    with (var / "streams.log").open("ab") as output:
        process = subprocess.Popen(
            program.argv,
            env=os.environ | program.environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=end_with_parent(os.getpid()),
        )
    try:
        wait_for(port, process, var / "streams.log")
        yield process.pid
    finally:
        process.terminate()
        process.wait(20)


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    sys.exit(f"the stream process did not start:\n{log.read_text()[-2000:]}")


@contextlib.contextmanager
def emitting(run: Any) -> Iterator[None]:
    """A batch of events a second, applied as the event worker does, until the block ends."""
    over = threading.Event()

    def work() -> None:
        from django.db import connection

        seq = 0
        while not over.wait(EVENT_S):
            emit(run.pk, seq)
            seq += 2
        connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def emit(run: str, seq: int) -> None:
    from apps.training.services.applying import events_apply
    from workers.contract import Envelope, Metrics, Progress, envelope_to_json
    from workers.contract.wire import VERSION

    step, now = seq // 2 + 1, time.time()
    values = {f"bench/metric_{k}": [step / (k + 1)] for k in range(METRICS)}
    events = [Metrics([step], values), Progress(step, 10_000, f"@{now:.3f}", None)]
    sent = [
        envelope_to_json(Envelope(run, 1, number, now, event))
        for number, event in enumerate(events, seq + 1)
    ]
    events_apply(batch={"version": VERSION, "run": run, "attempt": 1, "events": sent})


class Visitor:
    """One person who opens pages one after the other, over a kept connection."""

    def __init__(self, port: int, session: str) -> None:
        from django.conf import settings

        self._port = port
        self._headers = {"Cookie": f"{settings.SESSION_COOKIE_NAME}={session}"}

    def pages(self, seconds: float) -> list[float]:
        """Milliseconds each."""
        return list(self._asked([f"/p/bench/{page}" for page in PAGES], seconds))

    def poll(self, run: Any) -> float:
        """Milliseconds of one poll of the run's page that shows something new, the middle one."""
        self._headers["HX-Request"] = "true"
        found = sorted(self._asked([f"/p/bench/runs/{run.pk}/?tab=overview"], 5.0))
        return found[len(found) // 2]

    def _asked(self, paths: Sequence[str], seconds: float) -> Iterator[float]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        until, n = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            began = time.perf_counter()
            connection.request("GET", paths[n % len(paths)], headers=self._headers)
            answer = connection.getresponse()
            answer.read()
            yield 1000 * (time.perf_counter() - began)
            assert answer.status == 200, (paths[n % len(paths)], answer.status)
            n += 1
            time.sleep(PAUSE_S)
        connection.close()


@contextlib.contextmanager
def crowd(run: Any, sessions: list[str], port: int, seconds: float) -> Iterator[dict[str, Any]]:
    """The watchers; what they saw is in the mapping once the block has ended."""
    from django.conf import settings

    path = f"/p/bench/runs/{run.pk}/stream"
    argv = (str(port), path, settings.SESSION_COOKIE_NAME, str(seconds))
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.watchers_world.crowd", *argv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin
    assert process.stdout
    found: dict[str, Any] = {}
    try:
        began = time.monotonic()
        process.stdin.write("\n".join(sessions))
        process.stdin.close()
        print(process.stdout.readline().strip(), file=sys.stderr)
        found["seconds to open"] = round(time.monotonic() - began, 1)
        yield found
        found |= json.loads(process.stdout.read())
    finally:
        process.kill()
        process.wait()


def memory(pid: int) -> dict[str, float]:
    """Resident now and at its highest, in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return {
        name: round(int(fields[key].split()[0]) / 1000)
        for name, key in (("now", "VmRSS"), ("highest", "VmHWM"))
    }


def cpu(streams: int, web: Running) -> tuple[float, float]:
    """Processor milliseconds of the stream process and of the web server's."""
    from benchmarks.load.cpu import Servers

    servers = Servers(streams, web.servers.postgres, web.servers.redis)
    return servers.used().web, web.servers.used().web


def share(ms: float, seconds: float) -> float:
    return round(ms / seconds / 10, 1)


def quantile(values: Sequence[float], q: float) -> float:
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(q * len(ordered)))], 1)


def report(
    watchers: int,
    before: dict[str, float],
    after: dict[str, float],
    quiet: list[float],
    busy: list[float],
    found: dict[str, Any],
    poll_ms: float,
    load_before: float,
    cores: dict[str, float],
) -> None:
    delays = found.pop("delays")
    rows = [
        {"pages of one person": name, "n": len(one), "p50 ms": quantile(one, 0.5)}
        | {"p95 ms": quantile(one, 0.95), "longest ms": round(max(one), 1)}
        for name, one in (("without watchers", quiet), (f"with {watchers:,} watchers", busy))
    ]
    print_report(
        "A run page with watchers",
        rows,
        {
            "watchers": watchers,
            **found,
            "stream_process_mb": after["now"],
            "stream_process_highest_mb": after["highest"],
            "stream_process_before_mb": before["now"],
            "limit_mb": LIMIT_MB,
            "delay_p50_ms": quantile(delays, 0.5),
            "delay_p95_ms": quantile(delays, 0.95),
            "delay_longest_ms": max(delays),
            "other_pages_p95_ms": quantile(busy, 0.95),
            "limit_ms": LIMIT_MS,
            "percent_of_a_core": cores,
            "load_average_before": round(load_before, 2),
            "one_poll_ms": round(poll_ms, 1),
            "cores_that_polls_would_take": round(watchers / POLL_S * poll_ms / 1000, 1),
            "rows": rows,
            "versions": versions("django", "granian", "uvicorn", "h11"),
        },
    )


if __name__ == "__main__":
    main()

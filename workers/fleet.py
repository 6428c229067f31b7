"""A worker tells what machine it stands on and what it is at, every few seconds, and asks whether
it is to take new runs.

The telling hangs on the heartbeat of the worker's main process, as its sign of life does. Nothing
here blocks that loop and nothing imports a library to learn its version: `nvidia-smi` is started
at one beat and read at a later one, and a broker that is away is skipped.
"""

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping
from importlib import metadata
from typing import Any

import redis
from celery import Celery
from celery.signals import heartbeat_sent, worker_ready, worker_shutdown
from celery.worker import state

from workers.config.rewards import installed_functions, runs_code
from workers.contract import fleet
from workers.contract.code_version import code_version
from workers.contract.fleet import Gpu, WorkerReport
from workers.contract.wire import BEAT_EVERY_SECONDS, JOB_HEADER
from workers.machine import COLUMNS, known_to_the_kernel, listed, memory, query, seen

GPUS_EVERY_SECONDS = 15.0
GPUS_GIVEN_UP_SECONDS = 30.0
_MIB = 2**20
_QUERY = (*COLUMNS, "memory.total", "memory.free", "driver_version")


def installed(names: Iterable[str] = fleet.PACKAGES) -> dict[str, str]:
    """The versions of those that are installed, read from their metadata."""
    found = {}
    for name in names:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def gpus_read(text: str, visible: str | None = None) -> tuple[Gpu, ...]:
    """What `nvidia-smi --query-gpu` printed, as far as CUDA_VISIBLE_DEVICES (`visible`) lets a
    trainer of this worker use it. Of a part of a GPU (MIG) the memory is not told."""
    return tuple(
        Gpu(
            name,
            total_bytes=_mebibytes(total) if index else None,
            free_bytes=_mebibytes(free) if index else None,
            driver=driver,
        )
        for index, _, name, total, free, driver in seen(listed(text, _QUERY), visible)
    )


def _mebibytes(text: str) -> int | None:
    """ "[N/A]", which some devices say, is None."""
    with contextlib.suppress(ValueError):
        return int(float(text) * _MIB)
    return None


class Gpus:
    """The GPUs as `nvidia-smi` last listed them; without that program, those that the kernel's
    driver knows, as `workers.machine` counts them for a launcher. `tick` never waits."""

    def __init__(self) -> None:
        self._program = shutil.which("nvidia-smi")
        self._asked: subprocess.Popen[str] | None = None
        self._asked_at = float("-inf")
        self.known: tuple[Gpu, ...] = ()
        if self._program is None:
            rows = seen(known_to_the_kernel(), os.environ.get("CUDA_VISIBLE_DEVICES"))
            self.known = tuple(Gpu(name) for _, _, name in rows)

    def tick(self, now: float) -> None:
        if self._program is None:
            return
        if self._asked is None:
            if now - self._asked_at >= GPUS_EVERY_SECONDS:
                self._ask(self._program, now)
        elif self._asked.poll() is not None:
            text, _ = self._asked.communicate()
            ok, self._asked = self._asked.returncode == 0, None
            # A driver that fails takes its GPUs from the report: a job would not find them either.
            self.known = gpus_read(text, os.environ.get("CUDA_VISIBLE_DEVICES")) if ok else ()
        elif now - self._asked_at > GPUS_GIVEN_UP_SECONDS:
            self._asked.kill()

    def _ask(self, program: str, now: float) -> None:
        self._asked_at = now
        with contextlib.suppress(OSError):
            self._asked = subprocess.Popen(
                [program, *query(_QUERY)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,  # a line for each GPU: far less than a pipe holds
                stderr=subprocess.DEVNULL,
                text=True,
            )

    def close(self) -> None:
        if self._asked is not None:
            self._asked.kill()
            self._asked.communicate()


class Reporter:
    """Writes the report of one worker, at most every few seconds."""

    def __init__(self, redis_url: str, *, name: str, queues: Iterable[str], slots: int) -> None:
        self._client = redis.Redis.from_url(redis_url, socket_timeout=1, socket_connect_timeout=1)
        self._gpus = Gpus()
        self._due = 0.0
        self._name = name
        self.draining = False
        total, _ = memory()
        host, pid = socket.gethostname(), os.getpid()
        # Containers share a host's name and count their processes from 1, hence the last part.
        self._instance = f"{name}/{host}/{pid}/{secrets.token_hex(4)}"
        self._same: dict[str, Any] = {
            "instance": self._instance,
            "name": name,
            "host": host,
            "pid": pid,
            "queues": tuple(sorted(queues)),
            "slots": slots,
            "cpus": len(os.sched_getaffinity(0)),
            "memory_bytes": total,
            "versions": installed(),
            "rewards": installed_functions(),
            "runs_code": runs_code(),
            "code_version": code_version(),
            "started_at": time.time(),
        }

    def beat(self) -> None:
        now = time.monotonic()
        self._gpus.tick(now)
        if now < self._due:
            return
        self._due = now + BEAT_EVERY_SECONDS
        self.draining = told_to_drain(self._client, self._name, else_=self.draining)
        self.tell(self.report())

    def report(self) -> WorkerReport:
        return WorkerReport(
            **self._same,
            at=time.time(),
            memory_free_bytes=memory()[1],
            gpus=self._gpus.known,
            draining=self.draining,
            runs=tuple(sorted(runs_at(request._request_dict for request in _active()))),
        )

    def tell(self, report: WorkerReport) -> None:
        with contextlib.suppress(redis.RedisError, OSError):
            pipe = self._client.pipeline(transaction=False)
            pipe.set(
                fleet.worker_key(self._instance),
                fleet.report_to_json(report),
                ex=fleet.REPORT_SECONDS,
            )
            pipe.zadd(fleet.WORKERS_KEY, {self._instance: report.at})
            pipe.zremrangebyscore(fleet.WORKERS_KEY, "-inf", report.at - fleet.KEPT_SECONDS)
            if report.queues:
                pipe.hset(fleet.HEARD_KEY, mapping=dict.fromkeys(report.queues, report.at))
            pipe.execute()

    def leave(self) -> None:
        """A worker that shuts down in order is no longer counted."""
        self._gpus.close()
        with contextlib.suppress(redis.RedisError, OSError):
            self._client.delete(fleet.worker_key(self._instance))
            self._client.zrem(fleet.WORKERS_KEY, self._instance)


def told_to_drain(client: redis.Redis, name: str, *, else_: bool = False) -> bool:
    """Whether the worker of this name is to take no new run; `else_` if Redis does not answer."""
    try:
        return bool(client.sismember(fleet.DRAINING_KEY, name))
    except (redis.RedisError, OSError):
        return else_


class Intake:
    """The queues that a worker consumes: its own, or none while it is drained. What it is at
    continues.

    `consumer` is Celery's, used as its commands `cancel_consumer` and `add_consumer` use it, in the
    same loop."""

    def __init__(self, consumer: Any, queues: Iterable[str]) -> None:
        self._consumer = consumer
        self._queues = tuple(queues)
        self._open = True

    def set(self, *, open_: bool) -> None:
        if open_ == self._open:
            return
        change = self._consumer.add_task_queue if open_ else self._consumer.cancel_task_queue
        for queue in self._queues:
            change(queue)
        self._open = open_


def _active() -> list[Any]:
    """Requests that a pool process works on; the set may change while it is copied."""
    with contextlib.suppress(RuntimeError):
        return list(state.active_requests)
    return []


def runs_at(headers: Iterable[Mapping[str, Any]]) -> set[str]:
    """The runs that job messages with these headers are of."""
    names = (str(one.get(JOB_HEADER) or "") for one in headers)
    return {name.partition("/")[0] for name in names if name}


def announce(app: Celery) -> None:
    """Connect this worker's signals to its reporter. Called where the app is made."""
    workers: list[tuple[Reporter, Intake]] = []

    def ready(sender: Any = None, **_: object) -> None:
        queues = tuple(app.amqp.queues.consume_from)
        reporter = Reporter(
            os.environ["REDIS_URL"],
            name=sender.hostname,
            queues=queues,
            slots=sender.pool.num_processes,
        )
        workers[:] = [(reporter, Intake(sender, queues))]
        beat()

    def beat(**_: object) -> None:
        for reporter, intake in workers:
            reporter.beat()
            intake.set(open_=not reporter.draining)

    def leave(**_: object) -> None:
        for reporter, _intake in workers:
            reporter.leave()
        workers.clear()

    heartbeat_sent.connect(beat, weak=False)
    worker_ready.connect(ready, weak=False)
    worker_shutdown.connect(leave, weak=False)

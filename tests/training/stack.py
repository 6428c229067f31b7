"""The real stack in small: Celery workers as child processes over the embedded servers.

Every process started here is told by the kernel to die with the test process, and stops with its
`with` block, so that no failing test leaves one behind.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import redis
from django.db import connection

from apps.common import embedded
from workers.supervisor.child import end_with_parent

ROOT = Path(__file__).resolve().parents[2]
LEASE_S = 3  # shorter ones run out on a busy machine
GRACE_S = 1
SILENCE_S = 1.0
QUICK = {
    "RUN_LEASE_SECONDS": LEASE_S,
    "RUN_GRACE_SECONDS": GRACE_S,
    "RUN_RESEND_SECONDS": 1,
    "RUN_SILENCE_SECONDS": SILENCE_S,
}


_FOR_WORKERS = ("RUN_LEASE_SECONDS", "RUN_GRACE_SECONDS")


def database_url() -> str:
    """Of the test database, for processes that are no pytest."""
    name = connection.settings_dict["NAME"]
    return os.environ["DATABASE_URL"].replace("/concord?", f"/{name}?")


class Process:
    """A program that can be killed and started again."""

    def __init__(self, argv: list[str], environment: Mapping[str, str], output: Path) -> None:
        self._argv = argv
        self._environment = dict(os.environ) | dict(environment)
        self.output = output
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        with self.output.open("ab") as file:
            self._process = subprocess.Popen(
                self._argv,
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )

    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """kill -9 of the main process alone."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(10)

    def terminate(self, timeout: float = 15) -> int:
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(timeout)

    def close(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(10)


def celery(app: str, queues: str, name: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "celery",
        "-A",
        app,
        "worker",
        "-Q",
        queues,
        "-n",
        f"{name}@%h",
        "-P",
        "prefork",
        "-c",
        "1",
        "--without-gossip",
        "--without-mingle",
        "-l",
        "INFO",
    ]


class Stack:
    """The two kinds of worker, and what tests want to know about them."""

    def __init__(self, folder: Path) -> None:
        self.artifacts = folder / "artifacts"
        self.work = folder / "work"
        quick = {name: str(int(value)) for name, value in QUICK.items() if name in _FOR_WORKERS}
        shared = quick | {"PYTHONUNBUFFERED": "1", "ARTIFACTS_URL": str(self.artifacts)}
        self.worker = Process(
            celery("workers.celery", "gpu,cpu", "train"),
            shared
            | {"WORK_DIR": str(self.work), "DATABASE_URL": "", "REDIS_URL": worker_redis_url()},
            folder / "worker.log",
        )
        self.events = Process(
            celery("config.celery", "events", "events"),
            shared | {"DATABASE_URL": database_url()},
            folder / "events.log",
        )

    @contextlib.contextmanager
    def running(self) -> Iterator["Stack"]:
        try:
            self.revive()
            yield self
        finally:
            self.worker.close()
            self.events.close()

    def revive(self) -> None:
        """Start what does not run."""
        for process in (self.events, self.worker):
            if not process.runs():
                process.start()

    def trainers(self) -> list[int]:
        """Process ids of live trainers of this stack."""
        return [
            int(folder.name)
            for folder in Path("/proc").iterdir()
            if folder.name.isdigit() and self._is_trainer(folder)
        ]

    def _is_trainer(self, folder: Path) -> bool:
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            return (
                b"workers.train" in words
                and str(self.work).encode() in b" ".join(words)
                and (state != "Z")
            )
        return False

    def log(self) -> str:
        texts = [p.output.read_text() for p in (self.worker, self.events) if p.output.exists()]
        return "\n".join(texts)


def witnessed(path: Path) -> list[dict[str, Any]]:
    """What the drill's trainers wrote: starts, ends, and overlaps (which must never be)."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_until(
    condition: Callable[[], Any],
    *,
    seconds: float = 60,
    meanwhile: Callable[[], Any] = lambda: None,
    what: str = "",
) -> Any:
    """The first true answer; AssertionError with `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if answer := condition():
            return answer
        meanwhile()
        time.sleep(0.05)
    raise AssertionError(f"waited {seconds} s in vain: {what or condition}")


def redis_kill_and_restart(pause: float = 0.0) -> None:
    """kill -9 of the embedded Redis, then a start from its append-only file."""
    folder = Path(os.environ["VAR_DIR"])
    os.kill(int((folder / "redis" / "redis.pid").read_text()), signal.SIGKILL)
    time.sleep(pause)
    embedded.ensure_redis(folder)
    worker_redis_url()


def worker_redis_url() -> str:
    """The address for workers, with the rights that docker/redis/users.acl gives them."""
    lines = (ROOT / "docker/redis/users.acl").read_text().splitlines()
    (rules,) = (line.split()[2:] for line in lines if line.startswith("user concord-worker "))
    (password,) = (rule[1:] for rule in rules if rule.startswith(">"))
    with redis_client() as client:
        client.execute_command("ACL", "SETUSER", "concord-worker", "reset", *rules)
    return os.environ["REDIS_URL"].replace("://", f"://concord-worker:{password}@")


def redis_client() -> redis.Redis:
    return redis.Redis.from_url(os.environ["REDIS_URL"])

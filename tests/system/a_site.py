"""A whole site of its own for a drill: `manage.py up` under a service manager of ours, people who
vote by API without pause, somebody who opens pages, and a run that trains."""

import asyncio
import contextlib
import itertools
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp

from concord import AsyncClient, ConcordError

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 240.0
RESTART_SECONDS = 1.0  # of a service manager


def free_port() -> int:
    """Outside the range from which clients are given ports: one that tries again and again while
    nobody listens would be given this one in the end, and hold it by a connection to itself."""
    while True:
        port = random.randrange(18_000, 30_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="concord-system-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Site:
    """`manage.py up`, started again when it dies, as a service manager does."""

    def __init__(self, var: Path, addresses: Mapping[str, str] | None = None) -> None:
        """addresses: of servers that are not the embedded ones, by the names of the settings."""
        self.var = var
        self._addresses = dict(addresses or {})
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = var.parent / f"{var.name}.log"
        self._environment = os.environ | {
            "VAR_DIR": str(var),
            "PORT": str(self.port),
            # Counted as anywhere, and more than any drill asks.
            "API_RATE": "1000000",
            "API_RATE_UNKNOWN": "1000000",
            "HEAVY_RATE": "100000",
        }
        for name in ("DATABASE_URL", "DATABASE_OWNER_URL", "REDIS_URL", "CACHE_URL", "PRODUCTION"):
            self._environment.pop(name, None)
        self._environment |= self._addresses
        self._wanted = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._manager = threading.Thread(target=self._manage, daemon=True)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> "Site":
        self._wanted.set()
        self._manager.start()
        self.wait_until_well(START_SECONDS)
        return self

    def __exit__(self, *exc: object) -> None:
        self._wanted.clear()
        if self._process is not None:
            self._process.terminate()
            self._process.wait(90)
        self._manager.join(10)

    def _manage(self) -> None:
        with self.log.open("ab") as log:
            while self._wanted.is_set():
                self._process = subprocess.Popen(
                    [sys.executable, "manage.py", "up", "--no-demo"],
                    cwd=ROOT,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
                self._process.wait()
                time.sleep(RESTART_SECONDS)

    def is_well(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/healthz", timeout=5) as answer:  # noqa: S310
                return answer.status == 200
        except OSError:
            return False

    def wait_until_well(self, seconds: float) -> float:
        """Seconds until every part of the site was well; raises after `seconds`."""
        began = time.monotonic()
        while not self.is_well():
            if time.monotonic() - began > seconds:
                tail = self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""
                raise RuntimeError(f"the site was not well after {seconds:.0f} s:\n{tail}")
            time.sleep(0.25)
        return time.monotonic() - began

    def connect(self) -> None:
        """Django in this process on the site's servers, as the application's role."""
        from apps.common import embedded

        os.environ["VAR_DIR"] = str(self.var)
        os.environ["PORT"] = str(self.port)
        os.environ["LOG_LEVEL"] = "ERROR"
        os.environ["DATABASE_URL"] = self._addresses.get("DATABASE_URL") or embedded.postgres_url(
            self.var, embedded.APPLICATION
        )
        os.environ["REDIS_URL"] = f"unix://{embedded.redis_socket(self.var)}?db=0"
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
        import django

        django.setup()

    # --- who runs ---------------------------------------------------------------------------------

    def processes(self, *words: str) -> list[int]:
        """Processes below the supervisor whose command has all the words, parents first."""
        everybody = [self.pid, *descendants(self.pid)]
        return [pid for pid in everybody if all(word in _command(pid) for word in words)]

    def left_behind(self) -> dict[int, str]:
        """Live processes that know this site's folder or port, wherever they hang."""
        marks = (str(self.var), f"--port {self.port}")
        commands = {int(p.name): _command(int(p.name)) for p in Path("/proc").glob("[0-9]*")}
        return {
            pid: command
            for pid, command in commands.items()
            if pid != os.getpid() and any(mark in command for mark in marks)
        }


class Visitor:
    """Opens a page again and again; remembers when it was answered and what was not."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.answered: list[float] = []
        self.failed: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Visitor":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join(20)

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            try:
                with urllib.request.urlopen(f"{self._url}/sign-in/", timeout=15) as answer:  # noqa: S310
                    answer.read()
                self.answered.append(time.monotonic())
            except OSError:
                self.failed.append(time.monotonic())


class Voters:
    """People who vote as fast as they are answered, and send again what was not acknowledged."""

    def __init__(self, url: str, project: str, tokens: list[str]) -> None:
        self._url, self._project, self._tokens = url, project, tokens
        self.acknowledged: list[tuple[float, int]] = []
        self.replayed = 0
        self.errors: dict[str, int] = {}
        self._stopping = False
        self._thread = threading.Thread(target=lambda: asyncio.run(self._all()), daemon=True)

    def __enter__(self) -> "Voters":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopping = True
        self._thread.join(60)

    async def _all(self) -> None:
        await asyncio.gather(*(self._one(n, token) for n, token in enumerate(self._tokens)))

    async def _one(self, number: int, token: str) -> None:
        timeout = aiohttp.ClientTimeout(total=20)
        client = AsyncClient(self._url, token, connections=1, tries=1, timeout=timeout.total)
        pair, turn = None, number
        try:
            while not self._stopping:
                try:
                    if pair is None:
                        pair = (await client.next(self._project)).pair
                    if pair is None:
                        await asyncio.sleep(0.5)
                        continue
                    side = ("left", "right", "left", "tie")[turn % 4]
                    stored = await client.vote(pair, side, active_ms=900, wall_ms=1000)
                except ConcordError as error:
                    self.errors[error.code] = self.errors.get(error.code, 0) + 1
                    if error.code == "lease_lost":
                        pair = None
                    await asyncio.sleep(0.1)
                    continue
                turn += 1
                self.replayed += stored.replayed
                self.acknowledged.append((time.monotonic(), stored.vote))
                pair = stored.pair
        finally:
            await client.close()


def longest_gap(moments: list[float], since: float, until: float) -> float:
    """Seconds, between one answer and the next, of what lies between the two times."""
    inside = [since, *(at for at in moments if since <= at <= until), until]
    return max(after - before for before, after in itertools.pairwise(inside))


def one_of(found: list[int], what: str) -> int:
    if not found:
        raise RuntimeError(f"{what} does not run")
    return found[0]


def descendants(pid: int) -> list[int]:
    """Processes below one, parents first."""
    found, children = [pid], _children()
    for one in found:  # grows while it is read
        found += children.get(one, [])
    return found[1:]


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def wait_for(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited {seconds:.0f} s in vain: {what}")
        time.sleep(0.1)
    return answer


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            found.setdefault(parent, []).append(int(entry.name))
    return found

"""A whole site of its own for a drill: `manage.py up` under a service manager of ours, more workers
beside it, people who vote by API and somebody who opens pages."""

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
from typing import Any, Self

import aiohttp

from concord import AsyncClient, ConcordError
from workers.start import celery_worker

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


class Service:
    """A program that is started again when it dies, as a service manager does."""

    def __init__(self, argv: list[str], environment: Mapping[str, str], log: Path) -> None:
        self._argv, self._environment, self.log = argv, dict(environment), log
        self._wanted = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._manager = threading.Thread(target=self._manage, daemon=True)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        self._wanted.set()
        self._manager.start()

    def stop(self) -> None:
        self._wanted.clear()
        if self._process is not None:
            self._process.terminate()
            self._process.wait(90)
        self._manager.join(10)

    def _manage(self) -> None:
        with self.log.open("ab") as log:
            while self._wanted.is_set():
                self._process = subprocess.Popen(
                    self._argv,
                    cwd=ROOT,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
                self._process.wait()
                time.sleep(RESTART_SECONDS)


class Site:
    """`manage.py up` as a service, and as many more training workers as `workers` says, each as on
    a machine of its own beside it. `environment` is added to that of all of them."""

    def __init__(
        self, var: Path, environment: Mapping[str, str] | None = None, *, workers: int = 0
    ) -> None:
        self.var = var
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = var.parent / f"{var.name}.log"
        self.started_in = 0.0
        self._own = dict(environment or {})
        given = os.environ | {
            "VAR_DIR": str(var),
            "PORT": str(self.port),
            # Counted as anywhere, and more than any drill asks.
            "API_RATE": "1000000",
            "API_RATE_UNKNOWN": "1000000",
            "HEAVY_RATE": "100000",
        }
        for name in ("DATABASE_URL", "DATABASE_OWNER_URL", "REDIS_URL", "CACHE_URL", "PRODUCTION"):
            given.pop(name, None)
        given |= self._own
        up = [sys.executable, "manage.py", "up", "--no-demo"]
        self._up = Service(up, given, self.log)
        self._workers = [self._worker(given, n) for n in range(1, workers + 1)]

    def _worker(self, environment: Mapping[str, str], number: int) -> Service:
        from apps.common.embedded import redis_socket

        name = f"beside-{number}"
        work = Path(environment.get("WORK_DIR") or self.var / "work")
        own = {
            "REDIS_URL": f"unix://{redis_socket(self.var)}?db=0",
            "DATABASE_URL": "",
            "WORK_DIR": str(work.with_name(name)),
        }
        argv = list(celery_worker("workers.celery", name, "cpu"))
        return Service(argv, {**environment, **own}, self.log.with_name(f"{name}.log"))

    @property
    def pid(self) -> int:
        return self._up.pid

    def __enter__(self) -> "Site":
        self._up.start()
        self.started_in = self.wait_until_well(START_SECONDS)
        for worker in self._workers:
            worker.start()
        return self

    def __exit__(self, *exc: object) -> None:
        for service in (*self._workers, self._up):
            service.stop()

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

        os.environ.update(self._own)
        os.environ["VAR_DIR"] = str(self.var)
        os.environ["PORT"] = str(self.port)
        os.environ["LOG_LEVEL"] = "ERROR"
        os.environ["DATABASE_URL"] = self._own.get("DATABASE_URL") or embedded.postgres_url(
            self.var, embedded.APPLICATION
        )
        os.environ["REDIS_URL"] = f"unix://{embedded.redis_socket(self.var)}?db=0"
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
        import django

        django.setup()

    # --- who runs ---------------------------------------------------------------------------------

    def processes(self, *words: str) -> list[int]:
        """Processes of the site whose command has all the words, parents first."""
        roots = [service.pid for service in (self._up, *self._workers)]
        return [pid for pid in tree(*roots) if all(word in command(pid) for word in words)]

    def left_behind(self) -> dict[int, str]:
        """Live processes that know this site's folder or port, wherever they hang."""
        marks = (str(self.var), f"--port {self.port}")
        return {
            pid: command(pid)
            for pid in (int(path.name) for path in Path("/proc").glob("[0-9]*"))
            if pid != os.getpid() and any(m in f"{command(pid)} {_environment(pid)}" for m in marks)
        }

    def still_there(self) -> dict[int, str]:
        """What has not ended some time after the site was stopped."""
        deadline = time.monotonic() + 20
        while (left := self.left_behind()) and time.monotonic() < deadline:
            time.sleep(0.2)
        return left


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


class Players:
    """Clients of the API in a thread of their own; remembers which answers were errors."""

    def __init__(self) -> None:
        self.errors: list[tuple[float, int, str]] = []  # when, status (0: no answer), code
        self._stopping = False
        self._thread = threading.Thread(target=lambda: asyncio.run(self._all()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopping = True
        self._thread.join(60)

    async def _all(self) -> None:
        raise NotImplementedError


class Asking(Players):
    """Players that ask the addresses of one project, and again while the site is in error."""

    def __init__(self, url: str, slug: str) -> None:
        super().__init__()
        self._url, self._slug = url, slug

    def session(self, token: str) -> aiohttp.ClientSession:
        headers = {"Authorization": f"Bearer {token}"}
        timeout = aiohttp.ClientTimeout(total=60)
        return aiohttp.ClientSession(self._url, headers=headers, timeout=timeout)

    async def until(
        self, session: aiohttp.ClientSession, method: str, path: str, body: Callable[[], Any]
    ) -> dict[str, Any] | None:
        """Asked until the answer is no error of the site; None for a refusal."""
        while True:
            status, said = await self.ask(session, method, path, body)
            if 0 < status < 500:
                return said if status < 400 else None
            await asyncio.sleep(0.5)

    async def ask(
        self, session: aiohttp.ClientSession, method: str, path: str, body: Callable[[], Any]
    ) -> tuple[int, dict[str, Any]]:
        try:
            url = f"/api/v1/projects/{self._slug}/{path}"
            async with session.request(method, url, **body()) as answer:
                said = await answer.json(content_type=None)
                status = answer.status
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            status, said = 0, {"code": type(error).__name__}
        if status == 0 or status >= 400:
            self.errors.append((time.monotonic(), status, f"{said.get('code')} ({path[:9]})"))
        return status, said


def as_json(body: Any) -> Callable[[], dict[str, Any]]:
    return lambda: {"json": body} if body is not None else {}


class Voters(Players):
    """People who vote with a pause in between, and send again what was not acknowledged until it
    is, also when they are to stop."""

    def __init__(self, url: str, project: str, tokens: list[str], *, pause: float = 0.0) -> None:
        super().__init__()
        self._url, self._project, self._tokens, self._pause = url, project, tokens, pause
        self.acknowledged: list[tuple[float, int]] = []
        self.replayed = 0

    async def _all(self) -> None:
        await asyncio.gather(*(self._one(n, token) for n, token in enumerate(self._tokens)))

    async def _one(self, number: int, token: str) -> None:
        timeout = aiohttp.ClientTimeout(total=20)
        client = AsyncClient(self._url, token, connections=1, tries=1, timeout=timeout.total)
        pair, turn, asked = None, number, False
        try:
            while not self._stopping or asked:
                try:
                    if pair is None:
                        pair = (await client.next(self._project)).pair
                    if pair is None:
                        await asyncio.sleep(0.5)
                        continue
                    side = ("left", "right", "left", "tie")[turn % 4]
                    asked = True
                    stored = await client.vote(pair, side, active_ms=900, wall_ms=1000)
                except ConcordError as error:
                    self.errors.append((time.monotonic(), error.status, error.code))
                    if 400 <= error.status < 500:  # lease_lost, say: nothing is stored
                        pair, asked = None, False
                    await asyncio.sleep(0.1)
                    continue
                turn += 1
                self.replayed += stored.replayed
                self.acknowledged.append((time.monotonic(), stored.vote))
                pair, asked = stored.pair, False
                await asyncio.sleep(self._pause)
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


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def wait_for(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited {seconds:.0f} s in vain: {what}")
        time.sleep(0.1)
    return answer


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def tree(*roots: int) -> list[int]:
    """These processes and all below them, parents first."""
    found, waiting, children = [], list(roots), _children()
    while waiting:
        found.append(pid := waiting.pop(0))
        waiting += children.get(pid, [])
    return found


def _environment(pid: int) -> str:
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return ""
    return text.replace(b"\0", b" ").decode(errors="replace")


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            pid = int(entry.name)
            found.setdefault(parent(pid), []).append(pid)
    return found

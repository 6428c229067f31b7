"""The processes of a local Concord, kept running under one supervisor.

Each child has its own process group, so that Ctrl-C reaches the supervisor alone and the order of
the stop is ours; each is told by the kernel to end when the supervisor dies (PR_SET_PDEATHSIG), so
that even `kill -9` of the supervisor leaves no orphan. A child that ends by itself is started
again, with growing pauses.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from django.conf import settings

from apps.common import environment as env
from apps.common.embedded import shared_descriptors
from workers import start

PARTS = ("web", "streams", "events", "imports", "scheduler")  # of the web side, one program each
STOP_SECONDS = 25.0  # a trainer writes a checkpoint first
_LONGEST_PAUSE = 30.0
_AFTER_WEB = 20.0  # at most: they start as soon as a page is answered, see `start_delayed`
LOG_BYTES = 20_000_000  # a log that grows past it begins again, as
LOGS_KEPT = 3  # name.log.1, the newest, to name.log.3
_PR_SET_PDEATHSIG = 1
# Looked up here: after a fork is no time to load a library.
_prctl = ctypes.CDLL(None).prctl if sys.platform.startswith("linux") else None


@dataclass(frozen=True, slots=True)
class Program:
    """What to run.

    `once`: its end is not a fault (the demo's builder). `stops_last`: the others still talk to it
    while they stop (the event worker takes what trainers say last). `delay`: seconds after which it
    is started first, so that it does not hold up what people wait for. `at_our_death`: the signal
    it gets when the supervisor is killed.
    """

    name: str
    argv: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    once: bool = False
    stops_last: bool = False
    delay: float = 0.0
    at_our_death: signal.Signals = signal.SIGTERM


def programs(*, port: int, log_level: str) -> list[Program]:
    """Web server, event streams, event and import workers, training workers, scheduler, scorer and
    answerer of a machine."""
    # Several processes of threads that spin for each other slow a small machine many times over.
    few = {} if os.environ.get("OMP_NUM_THREADS") else {"OMP_NUM_THREADS": "1"}
    lean = {"events": few, "imports": few}
    others = [
        *(
            Program(part, argv(part, log_level=log_level), lean.get(part, {}))
            for part in ("events", "imports", "scheduler")
        ),
        *(Program(part, start.argv(part), {"LOG_LEVEL": log_level}) for part in start.PARTS),
    ]
    return [
        *web_programs(port=port, log_level=log_level, environment=few),
        replace(stream_program(log_level=log_level, environment=few), delay=_AFTER_WEB),
        *(
            replace(program, delay=_AFTER_WEB, stops_last=program.name == "events")
            for program in others
        ),
    ]


def argv(part: str, *, log_level: str, host: str = "127.0.0.1") -> tuple[str, ...]:
    """The start line of one of `PARTS`; for `web`, one server with all of its processes."""
    if part == "web":
        return _granian(settings.PORT, _web_workers(), log_level, host=host)
    if part == "streams":
        return _uvicorn(log_level, host=host)
    if part == "scheduler":
        return start.celery("config.celery", "beat")
    # Imports apart, so that a long one or a large fit holds up neither events nor sweeps.
    queues = {"events": "events,default", "imports": "imports,statistics"}[part]
    return start.celery_worker("config.celery", part, queues)


def _web_workers() -> int:
    return env.number("WEB_WORKERS", min(max(os.cpu_count() or 1, 4), 8), low=2, high=128)


def web_programs(*, port: int, log_level: str, environment: dict[str, str]) -> list[Program]:
    """Two web servers on one port, each with half of the processes.

    A process that dies is replaced by its server while the others go on; a server that dies, or
    gives up because one process keeps dying, is replaced by the supervisor while the other runs on.
    """
    workers = _web_workers()
    pool = {"DATABASE_POOL": "1"} | environment
    return [
        # Killed at our death: its port must be free when the next supervisor comes.
        Program(f"web-{n}", _granian(port, half, log_level), pool, at_our_death=signal.SIGKILL)
        for n, half in ((1, workers - workers // 2), (2, workers // 2))
    ]


def stream_program(*, log_level: str, environment: dict[str, str]) -> Program:
    """Event streams of pages that are looked at; one process serves thousands."""
    pool = {"DATABASE_POOL": "1"} | environment
    return Program("streams", _uvicorn(log_level), pool, at_our_death=signal.SIGKILL)


def _uvicorn(log_level: str, *, host: str = "127.0.0.1") -> tuple[str, ...]:
    return (
        *(sys.executable, "-m", "uvicorn", "config.asgi:application"),
        *("--host", host, "--port", str(settings.STREAM_PORT)),
        *("--ws", "none", "--no-access-log", "--no-proxy-headers", "--no-server-header"),
        *("--timeout-graceful-shutdown", "1", "--log-level", log_level.lower()),
    )


def _granian(
    port: int, workers: int, log_level: str, *, host: str = "127.0.0.1"
) -> tuple[str, ...]:
    return (
        sys.executable,
        "-m",
        "config.web",
        "--interface",
        "wsgi",
        "config.wsgi:application",
        "--host",
        host,
        "--port",
        str(port),
        "--workers",
        str(workers),
        "--respawn-failed-workers",
        "--workers-kill-timeout",
        "20",
        # Most threads wait for their turn: apps.common.admission serves few requests at once.
        "--blocking-threads",
        "64",
        "--no-ws",
        "--log-level",
        log_level.lower(),
    )


def signal_at_parents_death(number: signal.Signals) -> None:
    """This process gets `number` when the thread that started it ends (Linux)."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, number)


def end_with_parent(parent: int, number: signal.Signals = signal.SIGTERM) -> Callable[[], None]:
    """For `preexec_fn`: die when the parent thread's process dies."""

    def prepare() -> None:
        signal_at_parents_death(number)
        if os.getppid() != parent:  # it died between fork and here
            os._exit(1)

    return prepare


class RotatedLog:
    """A file that is begun again when it has grown, with a few of its forerunners kept."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, line: bytes) -> None:
        with self._path.open("ab") as file:
            file.write(line)
            grown = file.tell() > LOG_BYTES
        if grown:
            for n in range(LOGS_KEPT, 0, -1):
                older = self._path.with_name(f"{self._path.name}.{n - 1}") if n > 1 else self._path
                if older.exists():
                    older.replace(self._path.with_name(f"{self._path.name}.{n}"))


class Child:
    """One running program with its log."""

    def __init__(self, program: Program, *, log: Path, echo: Callable[[str, str], None]) -> None:
        self.program = program
        self.failures = 0
        self.start_at = 0.0
        self.started = 0.0
        self.ended: int | None = None
        self._log = RotatedLog(log)
        self._echo = echo
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        self.started = time.monotonic()
        self.ended = None
        self._process = subprocess.Popen(
            self.program.argv,
            env=os.environ | {"PYTHONUNBUFFERED": "1"} | self.program.environment,
            cwd=env.ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=end_with_parent(os.getpid(), self.program.at_our_death),
            pass_fds=shared_descriptors(),  # the embedded servers wait for it to end in order
        )
        self._reader = threading.Thread(target=self._copy, args=(self._process,), daemon=True)
        self._reader.start()

    def _copy(self, process: subprocess.Popen[bytes]) -> None:
        with process.stdout as lines:  # type: ignore[union-attr] # piped when it was started
            for line in lines:
                # Reading must go on whatever happens to the file: a full pipe stops the program.
                with contextlib.suppress(OSError):
                    self._log.write(line)
                self._echo(self.program.name, line.decode(errors="replace").rstrip())

    def poll(self) -> int | None:
        """The exit status once ended."""
        if self._process is None:
            return None
        self.ended = self._process.poll()
        return self.ended

    def terminate(self) -> None:
        """Ask the program alone; it stops its own children in its own order."""
        if self._process is not None and self.poll() is None:
            self._process.terminate()

    def close(self) -> None:
        """Leave nothing of the group behind, and the log complete."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._reader is not None:
            self._reader.join(timeout=5)


class Supervisor:
    """Runs programs until `stop` is set."""

    def __init__(
        self,
        programs: Iterable[Program],
        *,
        logs: Path,
        echo: Callable[[str, str], None],
    ) -> None:
        logs.mkdir(parents=True, exist_ok=True)
        self.stop = threading.Event()
        self._echo = echo
        self.children = [self._child(program, logs) for program in programs]
        self._logs = logs

    def _child(self, program: Program, logs: Path) -> Child:
        return Child(program, log=logs / f"{program.name}.log", echo=self._echo)

    def start(self) -> None:
        for child in self.children:
            if child.program.delay:
                child.ended, child.start_at = 0, time.monotonic() + child.program.delay
            else:
                child.start()

    def start_delayed(self) -> None:
        """What waits for its first start begins at the next tick."""
        for child in self.children:
            if child.program.delay and not child.pid:
                child.start_at = time.monotonic()

    def add(self, program: Program) -> Child:
        child = self._child(program, self._logs)
        self.children.append(child)
        child.start()
        return child

    def tick(self) -> None:
        """Restart what ended. Call about once a second from the thread that called `start`."""
        now = time.monotonic()
        for child in self.children:
            if child.ended is not None:  # ended before; wait for its pause
                if not child.program.once and now >= child.start_at:
                    self._echo("concord", f"starting {child.program.name}")
                    child.start()
                continue
            status = child.poll()
            if status is None:
                continue
            child.close()
            if child.program.once:
                if status:
                    self._echo("concord", f"{child.program.name} failed with status {status}")
                continue
            child.failures = 1 if now - child.started > 60 else child.failures + 1
            pause = min(2.0 ** (child.failures - 1), _LONGEST_PAUSE)
            child.start_at = now + pause
            self._echo(
                "concord",
                f"{child.program.name} ended with status {status}; starting again in {pause:.0f} s",
            )

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Tick until `stop` is set or `until()` is true, then shut down."""
        try:
            while not self.stop.is_set() and not (until is not None and until()):
                self.tick()
                self.stop.wait(1.0)
        finally:
            self.shut_down()

    def shut_down(self) -> None:
        """All but the last, then the last; what has not ended in time is killed."""
        self.stop.set()
        for group in (False, True):
            self._end([child for child in self.children if child.program.stops_last == group])

    def _end(self, children: list[Child]) -> None:
        for child in children:
            child.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        while time.monotonic() < deadline and any(c.pid and c.poll() is None for c in children):
            time.sleep(0.1)
        for child in children:
            if child.pid and child.poll() is None:
                self._echo("concord", f"{child.program.name} did not stop in time: killed")
            child.close()


def console(color: bool) -> Callable[[str, str], None]:
    """A printer of `name | line`, one line at a time over all threads."""
    lock = threading.Lock()
    colors = {"events": 33, "scheduler": 35, "train": 32, "short": 32, "demo": 34}

    def echo(name: str, line: str) -> None:
        code = 36 if name.startswith("web") else colors.get(name, 37)
        prefix = f"\033[{code}m{name:<9}\033[0m" if color else f"{name:<9}"
        # Where the output goes to a file, its disk may be full; everything else continues.
        with lock, contextlib.suppress(OSError):
            sys.stdout.write(f"{prefix} | {line}\n")
            sys.stdout.flush()

    return echo

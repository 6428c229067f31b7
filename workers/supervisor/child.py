"""The trainer as a process: started so that it never outlives us, ended politely or not."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_PR_SET_PDEATHSIG = 1
# Loaded before any fork: a child between fork and exec must not take locks.
_LIBC = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
# What a trainer has no business with. It reaches the artifact store, and nothing else.
_WITHHELD = ("REDIS_URL", "CACHE_URL", "DATABASE_URL", "SECRET_KEY")
_CRASHES = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
TAIL_BYTES = 8_000
TAIL_LINES = 60


class Trainer:
    """A child in its own session, so that signals reach its whole process group and nobody else.

    Three things end it when we die, `kill -9` included: the kernel's parent-death signal (to the
    direct child), end of file on its standard input (to every rank below a launcher), and the
    group kill of `close`. Start it from the main thread: the kernel watches the thread.
    """

    def __init__(
        self, argv: list[str], *, output: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """`environment` is added to what the trainer inherits of ours."""
        self._output = output
        self._kills_before = _out_of_memory_kills()
        inherited = {name: v for name, v in os.environ.items() if name not in _WITHHELD}
        inherited.setdefault("HF_HUB_OFFLINE", "1")
        inherited["PYTHONUNBUFFERED"] = "1"
        with output.open("ab") as file:
            self._process = subprocess.Popen(
                argv,
                cwd=ROOT,
                env=inherited | dict(environment or {}),
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_end_with(os.getpid()),
            )
        self.pid = self._process.pid
        self._dead = False
        os.set_blocking(self._process.stdin.fileno(), False)  # type: ignore[union-attr]

    def wait(self, seconds: float) -> int | None:
        """The exit status, or None when it still runs after `seconds`."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        return None

    def terminate(self) -> None:
        self._signal_group(signal.SIGTERM)

    def kill(self) -> None:
        """End the trainer and its ranks, whatever they do; returns when it is dead."""
        self._signal_group(signal.SIGKILL)
        self._process.wait()
        self._dead = True
        with contextlib.suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]

    def reassure(self) -> None:
        """Tell a trainer that counts on it that the lease was renewed (see `--lifeline`)."""
        if not self._dead:
            with contextlib.suppress(OSError):
                os.write(self._process.stdin.fileno(), b".")  # type: ignore[union-attr]

    def _signal_group(self, number: int) -> None:
        # The group may outlive its leader; once both are gone their number is anybody's.
        if self._dead:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def tail(self) -> list[str]:
        """The last lines it printed."""
        try:
            with self._output.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
                return file.read().decode(errors="replace").splitlines()[-TAIL_LINES:]
        except FileNotFoundError:
            return []

    def died_of(self, status: int) -> tuple[str, str]:
        """(failure kind, sentence) for a trainer that ended without a word."""
        if status >= 0:
            return "exited", f"The trainer ended with status {status} and without a word."
        number = -status
        name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
        if number in _CRASHES:
            return "crashed", f"The trainer crashed ({name})."
        if number == signal.SIGKILL and _out_of_memory_kills() > self._kills_before:
            return (
                "out_of_memory",
                "The machine ran out of memory and the kernel ended the trainer.",
            )
        return "killed", f"The trainer was killed from outside ({name})."


def end_with_parent() -> None:
    """Ask the kernel to kill this process when the thread that started it dies (Linux)."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end_with(parent: int) -> Callable[[], None]:
    """For `preexec_fn` in a child of `parent`."""

    def prepare() -> None:
        end_with_parent()
        if os.getppid() != parent:  # it died between fork and here
            os._exit(1)

    return prepare


def _out_of_memory_kills() -> int:
    """How many processes the kernel has ended for want of memory: in our control group where that
    is counted, else on the whole machine."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        group = Path("/proc/self/cgroup").read_text().strip().rpartition(":")[2].lstrip("/")
        counts = _counters(Path("/sys/fs/cgroup") / group / "memory.events")
        if "oom_kill" in counts:
            return counts["oom_kill"]
    with contextlib.suppress(OSError, ValueError):
        return _counters(Path("/proc/vmstat")).get("oom_kill", 0)
    return 0


def _counters(path: Path) -> dict[str, int]:
    lines = (line.split() for line in path.read_text().splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) == 2}

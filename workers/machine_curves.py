"""What the machine gives a run while it works: processor, memory, disk and GPUs, by time.

A thread of the first rank samples and hands `Metrics` events to `write`. Their steps are Unix
seconds: what a machine does between two steps of the training is what one wants to see, and a run
that is resumed does not take back the past of its machine. Other ranks on this machine count as
far as they bear the run's mark; a trainer that was started by hand counts itself alone.

Read from /proc and `nvidia-smi`; a source that is not there gives no curve.
"""

import contextlib
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workers.contract.events import Event, Metrics
from workers.machine import COLUMNS, listed, memory, processes_of, query, seen

EVERY_S = 15.0
_GIB, _MIB = 2**30, 2**20
_GPU_COLUMNS = (*COLUMNS, "utilization.gpu", "memory.used")
_PATIENCE_S = 10.0
_TICKS, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Usage:
    """Of one process: processor seconds since it began, resident bytes, bytes read from and
    written to disk since it began."""

    cpu_s: float
    resident: int
    read: int
    written: int


def usage_of(pid: int) -> Usage | None:
    """None of a process that has ended."""
    folder = Path("/proc") / str(pid)
    try:
        # The name, in brackets, may hold blanks; proc_pid_stat(5) counts from the state on.
        words = (folder / "stat").read_text().rpartition(")")[2].split()
        resident = int((folder / "statm").read_text().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return None
    moved = {"read_bytes": 0, "write_bytes": 0}
    with contextlib.suppress(OSError, ValueError):
        for line in (folder / "io").read_text().splitlines():
            name, _, value = line.partition(":")
            moved[name] = int(value)
    cpu_s = (int(words[11]) + int(words[12])) / _TICKS
    return Usage(cpu_s, resident, moved["read_bytes"], moved["write_bytes"])


def busy_s() -> float | None:
    """Processor seconds that the whole machine has worked since it started: all but idle and
    waiting for disks (proc_stat(5))."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        ticks = [
            int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        ]
        return (sum(ticks) - ticks[3] - ticks[4]) / _TICKS
    return None


def gpu_values(rows: Iterable[Sequence[str]]) -> dict[str, float]:
    """From rows of `_GPU_COLUMNS`; "[N/A]", which parts of a card say, is left out."""
    found: dict[str, float] = {}
    for place, (_, _, _, use, used) in enumerate(rows):
        with contextlib.suppress(ValueError):
            found[f"machine/gpu_use/{place}"] = float(use) / 100
        with contextlib.suppress(ValueError):
            found[f"machine/gpu_memory/{place}"] = float(used) * _MIB / _GIB
    return found


def _gpus() -> dict[str, float]:
    if shutil.which("nvidia-smi") is None:
        return {}
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        told = subprocess.run(
            ["nvidia-smi", *query(_GPU_COLUMNS)],
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=True,
        )
        return gpu_values(
            seen(listed(told.stdout, _GPU_COLUMNS), os.environ.get("CUDA_VISIBLE_DEVICES"))
        )
    return {}


class MachineCurves:
    """Samples every `every_s` seconds until it is stopped. `step` answers which step the training
    has reached, `processes` which processes are the run's."""

    def __init__(
        self,
        write: Callable[[Event], None],
        *,
        run: str,
        attempt: int,
        folder: Path,
        step: Callable[[], int | None],
        every_s: float = EVERY_S,
    ) -> None:
        self._write, self._run, self._attempt = write, run, attempt
        self._folder, self._step, self._every_s = folder, step, every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="machine curves", daemon=True)
        self._at = time.monotonic()
        self._before = self._usage()
        self._busy_before = busy_s()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Afterwards nothing more is written."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _follow(self) -> None:
        while not self._over.wait(self._every_s):
            try:
                self.sample()
            except OSError:  # a full disk ends the run where it reports its steps
                return

    def _usage(self) -> dict[int, Usage]:
        found = {
            pid: usage_of(pid) for pid in (os.getpid(), *processes_of(self._run, self._attempt))
        }
        return {pid: usage for pid, usage in found.items() if usage is not None}

    def sample(self) -> None:
        """Report what was used since the last sample, and what is held now."""
        values = self._values()
        self._write(
            Metrics(
                steps=[int(time.time())], values={name: [value] for name, value in values.items()}
            )
        )

    def _values(self) -> dict[str, float]:
        now, usage, busy = time.monotonic(), self._usage(), busy_s()
        seconds = max(now - self._at, 1e-3)
        values = rates(self._before, usage, seconds)
        values["machine/memory"] = sum(one.resident for one in usage.values()) / _GIB
        if busy is not None and self._busy_before is not None:
            values["machine/cpu_all"] = max(0.0, busy - self._busy_before) / seconds
        whole, free = memory()
        if whole is not None and free is not None:
            values["machine/memory_all"] = (whole - free) / _GIB
        values["machine/disk_free"] = shutil.disk_usage(self._folder).free / _GIB
        step = self._step()
        if step is not None:
            values["machine/step"] = float(step)
        self._at, self._before, self._busy_before = now, usage, busy
        return values | _gpus()


def rates(
    before: Mapping[int, Usage], now: Mapping[int, Usage], seconds: float
) -> dict[str, float]:
    """Per second between two looks. A process that is new counts with all it has done; what one
    did that has ended since the last look is not known any more."""
    nothing = Usage(0.0, 0, 0, 0)
    pairs = [(one, before.get(pid, nothing)) for pid, one in now.items()]
    # A number that was given to another process since would count backwards.
    return {
        "machine/cpu": sum(max(0.0, one.cpu_s - old.cpu_s) for one, old in pairs) / seconds,
        "machine/disk_read": sum(max(0, one.read - old.read) for one, old in pairs)
        / seconds
        / _MIB,
        "machine/disk_written": sum(max(0, one.written - old.written) for one, old in pairs)
        / seconds
        / _MIB,
    }

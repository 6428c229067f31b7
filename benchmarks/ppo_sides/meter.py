"""What a side measures of itself: CPU seconds of each step and its peak of memory.

Standard library only, for it is read by both environments. CPU time is the process's own, user and
system: what else runs on the machine matters little.
"""

import time
from pathlib import Path

MIB = 1024.0  # /proc counts KiB


class Meter:
    """Started before the first step; `step()` after each."""

    def __init__(self) -> None:
        self.steps: list[float] = []  # CPU s
        self.before_mib = 0.0
        self._mark = 0.0

    def start(self) -> None:
        """Memory so far (libraries, models) is the floor; the peak starts again here."""
        Path("/proc/self/clear_refs").write_text("5")
        self.before_mib = _status("VmRSS")
        self._mark = time.process_time()

    def step(self) -> None:
        now = time.process_time()
        self.steps.append(now - self._mark)
        self._mark = now

    def skip(self) -> None:
        """What ran since the last mark belongs to no step."""
        self._mark = time.process_time()

    def figures(self) -> dict[str, object]:
        peak = _status("VmHWM")
        return {
            "cpu_s": self.steps,
            "peak_mib": peak,
            "above_models_mib": peak - self.before_mib,
        }


def _status(field: str) -> float:
    """A field of this process's status, in MiB."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / MIB
    raise OSError(f"this system's status has no {field}")

"""How much memory this machine has for a run."""

import contextlib
from dataclasses import dataclass
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Bytes that this process may hold in all, what it holds already included."""

    bytes: float
    device: str  # cpu | cuda
    name: str


def room() -> Room:
    """The first GPU's memory that others do not use; without one what the system, and the limit of
    this process's control group, leave."""
    import torch  # here, so that words about a ledger need no torch

    if torch.cuda.is_available():
        free, _ = torch.cuda.mem_get_info()
        return Room(
            bytes=float(free + torch.cuda.memory_reserved()),
            device="cuda",
            name=torch.cuda.get_device_name(),
        )
    left = [_available(), _group_left(CGROUP)]
    return Room(
        bytes=own_bytes() + min(bytes_ for bytes_ in left if bytes_ is not None),
        device="cpu",
        name="the processor's memory",
    )


def own_bytes() -> float:
    """Resident memory of this process."""
    with contextlib.suppress(OSError):
        return 4096.0 * int(Path("/proc/self/statm").read_text().split()[1])
    return 0.0


def _available() -> float | None:
    """What the kernel thinks can be had without swapping."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return 1024.0 * int(line.split()[1])
    return None


def _group_left(group: Path) -> float | None:
    """What the control group's limit leaves; pages of files, which can be dropped, do not count."""
    try:
        limit = (group / "memory.max").read_text().strip()
        used = int((group / "memory.current").read_text())
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return None
    if limit == "max":
        return None
    return float(int(limit) - used + int(stat.get("inactive_file", 0)))

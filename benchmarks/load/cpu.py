"""CPU time of whole process trees, read from /proc (Linux). Resolution: one tick, 10 ms."""

import os
from dataclasses import dataclass
from pathlib import Path

_TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Used:
    """CPU milliseconds since the processes began; `busy` is that of the whole machine."""

    web: float
    postgres: float
    redis: float
    players: float  # this process: the annotators
    busy: float

    def since(self, before: "Used") -> "Used":
        return Used(*(getattr(self, n) - getattr(before, n) for n in self.__slots__))

    @property
    def server(self) -> float:
        return self.web + self.postgres + self.redis

    @property
    def others(self) -> float:
        """What other work on the machine took."""
        return max(0.0, self.busy - self.server - self.players)


@dataclass(frozen=True, slots=True)
class Servers:
    """The roots of the three process trees."""

    web: int
    postgres: int
    redis: int

    @classmethod
    def of(cls, *, web: int, var: Path) -> "Servers":
        """web: the server's pid; the embedded servers' pids are in their folders."""
        postgres = int((var / "postgres" / "postmaster.pid").read_text().split()[0])
        redis = int((var / "redis" / "redis.pid").read_text())
        return cls(web, postgres, redis)

    def used(self) -> Used:
        children = _children()
        return Used(
            _tree_ms(self.web, children),
            _tree_ms(self.postgres, children),
            _tree_ms(self.redis, children),
            sum(os.times()[:2]) * 1000,
            _machine_ms(),
        )


def _children() -> dict[int, list[int]]:
    """Children of every process."""
    found: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (stat := _stat(int(entry.name))):
            found.setdefault(int(stat[1]), []).append(int(entry.name))
    return found


def _tree_ms(root: int, children: dict[int, list[int]]) -> float:
    """User and system time of a process and its descendants, those that have ended included."""
    total, waiting = 0, [root]
    while waiting:
        pid = waiting.pop()
        waiting += children.get(pid, [])
        if stat := _stat(pid):
            total += sum(int(value) for value in stat[11:15])  # utime stime cutime cstime
    return total * _TICK_MS


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from `state` on; empty when it has just ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _machine_ms() -> float:
    """Time all cores were at work (not idle, not waiting for disks)."""
    with Path("/proc/stat").open() as lines:
        user, nice, system, _idle, _wait, irq, softirq = map(int, lines.readline().split()[1:8])
    return (user + nice + system + irq + softirq) * _TICK_MS

"""Playing for some seconds and what came of it."""

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.load.cpu import Servers, Used
from benchmarks.load.players import Player

CORES_MS = 1000.0
_SIGN_IN_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Stage:
    """One measurement: so many annotators, `cycles` of them all together in `seconds`."""

    path: str
    annotators: int
    seconds: float
    latencies_ms: list[float]
    votes: list[int]  # numbers the server gave to the votes it acknowledged
    used: Used

    @property
    def cycles(self) -> int:
        return len(self.latencies_ms)

    @property
    def per_second(self) -> float:
        return self.cycles / self.seconds

    def quantile(self, percent: int) -> float:
        return statistics.quantiles(self.latencies_ms, n=100)[percent - 1]

    @property
    def server_ms(self) -> float:
        """CPU milliseconds of web, PostgreSQL and Redis per cycle."""
        return self.used.server / self.cycles

    def row(self) -> dict[str, Any]:
        """A line of the table; *_ms are CPU per cycle, `others` cores taken by other work."""
        used, n = self.used, self.cycles
        return {
            "path": self.path,
            "annotators": self.annotators,
            "cycles/s": round(self.per_second, 1),
            "p50 ms": round(self.quantile(50), 1),
            "p95 ms": round(self.quantile(95), 1),
            "p99 ms": round(self.quantile(99), 1),
            "CPU ms": round(used.server / n, 2),
            "web": round(used.web / n, 2),
            "PostgreSQL": round(used.postgres / n, 2),
            "Redis": round(used.redis / n, 2),
            "players": round(used.players / n, 2),
            "others": round(used.others / self.seconds / CORES_MS, 2),
        }

    def figures(self) -> dict[str, float]:
        row = self.row()
        return {
            "per_second": row["cycles/s"],
            "p50_ms": row["p50 ms"],
            "p95_ms": row["p95 ms"],
            "p99_ms": row["p99 ms"],
            "cpu_ms": row["CPU ms"],
            "web_cpu_ms": row["web"],
            "postgres_cpu_ms": row["PostgreSQL"],
            "redis_cpu_ms": row["Redis"],
            "other_work_cores": row["others"],
        }


async def play(
    path: str, players: Sequence[Player], servers: Servers, *, warm_up: float, seconds: float
) -> Stage:
    """Everybody votes without pause; what the first `warm_up` seconds took is not counted.

    Their votes are: every acknowledged vote must be found in the database afterwards.
    """
    votes: list[int] = []
    latencies: list[float] = []
    # A few at a time: signing in is slow on purpose, and a server turns away what waits too long.
    for first in range(0, len(players), _SIGN_IN_AT_ONCE):
        several = players[first : first + _SIGN_IN_AT_ONCE]
        await asyncio.gather(*(player.start() for player in several))
    measured_from = time.monotonic() + warm_up
    until = measured_from + seconds

    async def vote_on(player: Player) -> None:
        while (began := time.monotonic()) < until:
            votes.append(await player.cycle())
            ended = time.monotonic()
            if began >= measured_from and ended <= until:
                latencies.append((ended - began) * 1000)

    async def watch() -> Used:
        await asyncio.sleep(warm_up)
        before = servers.used()
        await asyncio.sleep(until - time.monotonic())
        return servers.used().since(before)

    try:
        used, *_ = await asyncio.gather(watch(), *(vote_on(player) for player in players))
    finally:
        await asyncio.gather(*(player.close() for player in players))
    return Stage(path, len(players), seconds, latencies, votes, used)

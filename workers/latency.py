"""How long a caller waits for an answer: generation with and without the value head.

A value head beside the policy costs time where answers are served with it (best-of-n by value,
guided decoding), and that must not be found out in production. Both paths answer the same requests
one at a time, warmed up, in turns, so that a machine that slows down slows both.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

WARM_UP = 2  # requests of each path that are answered first and not counted
LEAST_REQUESTS = 20  # under this a p99 is the maximum and says little


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """Times of one path over `requests` requests. Milliseconds; per token: of generated tokens."""

    requests: int
    tokens: int
    p50_ms: float
    p99_ms: float
    p50_ms_per_token: float
    p99_ms_per_token: float

    def to_json(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Both paths; `added_*` is what the value head adds to each (with less without)."""

    without: Path
    with_value: Path

    @property
    def added_p50_ms(self) -> float:
        return self.with_value.p50_ms - self.without.p50_ms

    @property
    def added_p99_ms(self) -> float:
        return self.with_value.p99_ms - self.without.p99_ms

    @property
    def message(self) -> str:
        share = self.added_p50_ms / self.without.p50_ms if self.without.p50_ms else 0.0
        few = (
            f" With {self.without.requests} requests p99 is little more than the slowest."
            if self.without.requests < 100
            else ""
        )
        return (
            f"An answer takes {self.without.p50_ms:.1f} ms (p50) and {self.without.p99_ms:.1f} ms "
            f"(p99) without the value head; the head adds {self.added_p50_ms:.1f} ms "
            f"({100 * share:.0f} %) at p50 and {self.added_p99_ms:.1f} ms at p99, n = "
            f"{self.without.requests} requests.{few}"
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "version": 1,
            "without_value_head": self.without.to_json(),
            "with_value_head": self.with_value.to_json(),
            "added_p50_ms": self.added_p50_ms,
            "added_p99_ms": self.added_p99_ms,
            "message": self.message,
        }


def measure_latency(
    without: Callable[[int], int],
    with_value: Callable[[int], int],
    *,
    requests: int,
    clock: Callable[[], float] = time.perf_counter,
    warm_up: int = WARM_UP,
) -> Latency:
    """Time both paths. Each takes the number of a request, answers it, and returns the number of
    generated tokens; a device must have finished by then. `clock` tells seconds.

    The paths take turns, and who goes first changes with every request.
    """
    if requests < 1:
        raise ValueError(f"requests must be at least 1, not {requests}")
    paths = (without, with_value)
    for number in range(warm_up):
        for answer in paths:
            answer(number)
    seconds: tuple[list[float], list[float]] = ([], [])
    tokens: tuple[list[int], list[int]] = ([], [])
    for number in range(requests):
        order = (0, 1) if number % 2 == 0 else (1, 0)
        for which in order:
            started = clock()
            made = paths[which](number)
            seconds[which].append(clock() - started)
            tokens[which].append(made)
    return Latency(without=_path(seconds[0], tokens[0]), with_value=_path(seconds[1], tokens[1]))


def _path(seconds: Sequence[float], tokens: Sequence[int]) -> Path:
    ms = 1000 * np.asarray(seconds)
    per_token = ms / np.maximum(np.asarray(tokens), 1)
    return Path(
        requests=len(ms),
        tokens=int(sum(tokens)),
        p50_ms=float(np.quantile(ms, 0.5)),
        p99_ms=float(np.quantile(ms, 0.99)),
        p50_ms_per_token=float(np.quantile(per_token, 0.5)),
        p99_ms_per_token=float(np.quantile(per_token, 0.99)),
    )

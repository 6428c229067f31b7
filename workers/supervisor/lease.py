"""This supervisor's hold on its run. The protocol itself: `workers.contract.lease`."""

import secrets
import time
from collections.abc import Callable

import redis

from workers.contract import wire
from workers.contract.lease import CLAIM, RELEASE, RENEW

CLAIMED, HELD, SUPERSEDED = "claimed", "held", "superseded"
RENEWED, WANTED, LOST = "renewed", "wanted", "lost"
UNREACHABLE = "unreachable"
_CLOCKS_DIFFER_BY_S = 5.0


class Lease:
    """Claimed once, renewed until released. `clock` counts seconds also while a machine sleeps,
    so that nobody wakes up believing in a lease that has long run out."""

    def __init__(
        self,
        client: redis.Redis,
        *,
        run: str,
        attempt: int,
        seconds: float,
        clock: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        self._client = client
        self._keys = (wire.lease_key(run), wire.fence_key(run), wire.wanted_key(run))
        self._attempt = attempt
        self._token = secrets.token_hex(8)
        self._seconds = seconds
        self._clock = clock
        self._sure_at: float | None = None

    def age(self) -> float:
        """Seconds since the lease was certainly ours: since before the last renewal was asked."""
        return float("inf") if self._sure_at is None else self._clock() - self._sure_at

    def claim(self, *, created_at: float) -> str:
        """One try: claimed, held, superseded or unreachable. `created_at` (Unix seconds) is when
        this attempt came to be; with a Redis that forgets, attempts older than its start wait."""
        try:
            if self._may_be_forgotten(created_at):
                return HELD
        except redis.RedisError:
            return UNREACHABLE
        return self._ask(CLAIM, CLAIMED)

    def _may_be_forgotten(self, created_at: float) -> bool:
        if self._client.info("persistence").get("aof_enabled"):
            return False
        up = float(self._client.info("server")["uptime_in_seconds"])
        started = time.time() - up
        return created_at < started + _CLOCKS_DIFFER_BY_S and up < self._seconds + 1.0

    def renew(self) -> str:
        """renewed, wanted, lost or unreachable."""
        return self._ask(RENEW, RENEWED, WANTED)

    def _ask(self, script: str, *ours: str) -> str:
        asked_at = self._clock()
        milliseconds = int(self._seconds * 1000)
        try:
            answer = self._client.eval(
                script, len(self._keys), *self._keys, self._attempt, self._token, milliseconds
            )
        except redis.RedisError:
            return UNREACHABLE
        answer = answer.decode() if isinstance(answer, bytes) else str(answer)
        if answer in ours:
            self._sure_at = asked_at
        return answer

    def release(self) -> None:
        """Let the next attempt in. When Redis is away the lease runs out by itself."""
        try:
            self._client.eval(RELEASE, 1, self._keys[0], self._attempt, self._token)
        except redis.RedisError:
            return

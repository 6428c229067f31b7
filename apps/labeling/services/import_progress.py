"""How far a running import is, for its page; and the ways it is told to stop."""

import time
from typing import Any

from django.core.cache import cache

from apps.labeling.models import ImportJob

_EVERY = 0.5  # seconds between two tellings
_KEPT = 120  # seconds after the last one


class Stopped(Exception):
    """The import is to end without a trace: it was cancelled, or another attempt has its place."""

    def __init__(self, *, cancelled: bool) -> None:
        super().__init__("cancelled" if cancelled else "superseded")
        self.cancelled = cancelled


def progress_key(job: str) -> str:
    return f"labeling:import:{job}"


def progress_read(job: str) -> dict[str, Any]:
    """{"step", "done", "total", "seconds"} as last told; empty when nothing is known."""
    return cache.get(progress_key(job)) or {}


class Progress:
    """Told by the running import, at most twice a second; raises Stopped when it is to end.

    The cache carries the figures, since the transaction of the import hides its own writes; the
    wish to cancel is read from the job's row, which others commit.
    """

    def __init__(self, job: str, attempt: int) -> None:
        self.job, self.attempt = job, attempt
        self._due = 0.0
        self._step, self._since = "", time.monotonic()

    def tell(self, step: str, done: int = 0, total: int = 0) -> None:
        """step: what is being done, in words; total is 0 while it is unknown."""
        now = time.monotonic()
        if step != self._step:
            self._step, self._since, self._due = step, now, 0.0
        if now < self._due:
            return
        self._due = now + _EVERY
        state = {"step": step, "done": done, "total": total, "seconds": now - self._since}
        cache.set(progress_key(self.job), state, _KEPT)
        row = ImportJob.objects.filter(pk=self.job).values_list("cancel_wanted", "attempt").first()
        if row is None or row[1] != self.attempt:
            raise Stopped(cancelled=False)
        if row[0]:
            raise Stopped(cancelled=True)

    def forget(self) -> None:
        cache.delete(progress_key(self.job))

"""How a check goes on: in small parts, telling where it is, ending when people or the clock say."""

import time
from collections.abc import Callable, Iterator

from workers.context import RunContext


class Cancelled(Exception):
    """Somebody cancelled: there is nothing to tell."""


class Pace:
    """`over` says that the time was up before everything was looked at."""

    def __init__(
        self,
        context: RunContext,
        *,
        max_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._context = context
        self._clock = clock
        self._ends = clock() + max_seconds
        self.over = False

    def parts(self, total: int, size: int, doing: str) -> Iterator[slice]:
        """Stretches of at most `size` out of `total`, the first whatever the clock says or however
        politely somebody asks to stop. Raises `Cancelled`."""
        for start in range(0, total, size):
            wish = self._context.should_stop()
            if wish == "cancel":
                raise Cancelled
            if start and (wish or self._clock() > self._ends):
                self.over = True
                return
            self._context.progress(0, 1, f"{doing}: {start:,} of {total:,}"[:60])
            yield slice(start, min(start + size, total))

    @property
    def remark(self) -> str:
        """Why fewer were looked at than could have been; empty where all were."""
        return " It was cut short; more seconds (max_seconds) tell more." if self.over else ""

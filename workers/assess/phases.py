"""Where an assessment is, what is left, and whether anybody asked it to end."""

import time
from collections.abc import Callable, Mapping

from workers.context import RunContext


class Phases:
    """`looking.Progress` for a run: its phases in order, each with its size in texts scored.

    The time that remains is what is left of the sizes at the speed so far: an estimate. A wish to
    stop ends the run with what was measured by then; the phases after it may not begin.
    """

    def __init__(self, context: RunContext, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._context = context
        self._clock = clock
        self._sizes: dict[str, float] = {}
        self._began = clock()
        self._current = ""
        self._within = 0.0

    def plan(self, sizes: Mapping[str, float]) -> None:
        self._sizes = dict(sizes)

    def begin(self, name: str) -> bool:
        if self._context.should_stop():
            return False
        self._current, self._within = name, 0.0
        self._report()
        return True

    def done(self, amount: float) -> None:
        """So many texts more of the current phase."""
        self._within += amount
        self._report()

    def finish(self) -> None:
        total = max(1, len(self._sizes))
        self._context.progress(total, total, "done")

    def _report(self) -> None:
        if self._current not in self._sizes:
            return
        names = list(self._sizes)
        at = names.index(self._current)
        behind = sum(self._sizes[name] for name in names[:at])
        behind += min(self._within, self._sizes[self._current])
        left = sum(self._sizes.values()) - behind
        eta = (self._clock() - self._began) / behind * left if behind > 0 else None
        self._context.progress(at, len(names), self._current, eta)

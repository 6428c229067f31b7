"""What a check found, as a run's summary and as the artifact check.json. No torch."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from measures.blocks import Block
from measures.estimate import Interval
from workers.context import RunContext
from workers.contract.reasons import in_words

CONFIRMS, REFUTES, UNDECIDED = "confirms", "refutes", "undecided"
SCORED = "scored"  # there was no suspicion: answers were scored to be looked at
OUTCOMES = (CONFIRMS, REFUTES, UNDECIDED, SCORED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`outcome`: of the suspicion that the check was launched for (workers.rules.experiments
    says what either means). `words`: one or two sentences with numbers, n and interval. `figures`:
    plain numbers, and intervals as {value, low, high, n}. `details`: plain data, rows of tables,
    ids of samples. `evidence`: what a page draws."""

    outcome: str
    words: str
    n: int
    figures: Mapping[str, Any] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    evidence: tuple[Block, ...] = ()

    def __post_init__(self) -> None:
        if self.outcome not in OUTCOMES:
            raise ValueError(f"'{self.outcome}' is none of {', '.join(OUTCOMES)}")


def interval(found: Interval) -> dict[str, Any]:
    """As a summary holds it; what does not exist is left out."""
    return {name: value for name, value in in_words(asdict(found)).items() if value is not None}


def jsonable(value: Any) -> Any:
    """Numbers that are none as None: strict JSON has no word for them."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): jsonable(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(one) for one in value]
    return value


# How a check continues: in small parts, telling where it is, ending when people or the clock say.


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
            command = self._context.should_stop()
            if command == "cancel":
                raise Cancelled
            if start and (command or self._clock() > self._ends):
                self.over = True
                return
            self._context.progress(0, 1, f"{doing}: {start:,} of {total:,}"[:60])
            yield slice(start, min(start + size, total))

    @property
    def remark(self) -> str:
        """Why fewer were looked at than could have been; empty where all were."""
        return " It was cut short; more seconds (max_seconds) tell more." if self.over else ""

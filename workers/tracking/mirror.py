"""The switch `TRACKING`: what a trainer reports goes to other tools too, and never waits for them.

Each tool has a bounded queue and a thread of its own. What does not fit is dropped and counted; a
tool that fails is left alone from then on. Either is one line in the run's log. At the end all
tools together get `END_S` seconds to write what they still have.
"""

import difflib
import os
import queue
import threading
import time
from collections.abc import Mapping
from typing import Any, Protocol

from workers.contract.events import Cancelled, Event, Failed, Finished, Histogram, Log, Metrics
from workers.contract.jobs import JobSpec
from workers.tracking.tool import OUTCOMES, TOOLS, Tool, make_tool, number_of

VARIABLE = "TRACKING"
MOST_WAITING = 5_000  # events; of a tool that cannot keep up, the rest is dropped
END_S = 10.0


class Writer(Protocol):
    """`workers.emitter.Emitter`, or what stands for it."""

    @property
    def step(self) -> int | None: ...

    def write(self, event: Event) -> None: ...


class Mirror:
    """One tool, fed by a queue. `problem` is what to tell of it, once; empty while all is well."""

    def __init__(self, name: str, tool: Tool, *, most_waiting: int = MOST_WAITING) -> None:
        self.name = name
        self.problem = ""
        self.dropped = 0
        self._tool = tool
        self._waiting: queue.Queue[tuple[float, Event]] = queue.Queue(most_waiting)
        self._thread = threading.Thread(target=self._work, name=f"tracking-{name}", daemon=True)
        self._thread.start()

    def take(self, event: Event) -> None:
        """Never waits."""
        if self.problem or not isinstance(event, Metrics | Histogram):
            return
        try:
            self._waiting.put_nowait((time.time(), event))
        except queue.Full:
            self.dropped += 1

    def end(self, outcome: Event, *, within_s: float) -> None:
        """Hand over the outcome and wait for the tool, but no longer than that."""
        deadline = time.monotonic() + within_s
        try:
            self._waiting.put((time.time(), outcome), timeout=max(0.0, within_s))
        except queue.Full:
            self.problem = self.problem or self._words(f"did not keep up within {within_s:.0f} s")
            return
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            self.problem = self.problem or self._words(f"did not end within {END_S:.0f} s")
        elif self.dropped and not self.problem:
            self.problem = self._words(f"was too slow: {self.dropped} events are missing there")

    def _work(self) -> None:
        try:
            self._tool.begin()
            while True:
                at, event = self._waiting.get()
                if isinstance(event, Finished | Failed | Cancelled):
                    self._tool.end(OUTCOMES[type(event).__name__], _summary(event))
                    return
                if isinstance(event, Histogram):
                    self._tool.histogram(event)
                elif isinstance(event, Metrics):
                    self._metric_values(at, event)
        except Exception as error:  # whatever it is, the run is none of its business
            self.problem = self._words(f"failed: {type(error).__name__}: {error}")

    def _metric_values(self, at: float, event: Metrics) -> None:
        for i, step in enumerate(event.steps):
            known = {name: number_of(values[i]) for name, values in event.values.items()}
            self._tool.metrics(step, at, {n: v for n, v in known.items() if v is not None})

    def _words(self, what: str) -> str:
        return _words(self.name, what)


class Mirrored:
    """A writer that mirrors what it writes. The run's own events come first, always."""

    def __init__(self, writer: Writer, mirrors: list[Mirror], problems: list[str]) -> None:
        self._writer = writer
        self._mirrors = mirrors
        self._told: set[str] = set()
        self._early = problems  # what was wrong before there was anything to write

    @property
    def step(self) -> int | None:
        return self._writer.step

    def write(self, event: Event) -> None:
        if isinstance(event, Finished | Failed | Cancelled):
            self.end(event)  # the outcome is the last word, so the tools are heard before it
        self._writer.write(event)
        for mirror in self._mirrors:
            mirror.take(event)
        self._tell()

    def end(self, outcome: Event) -> None:
        """Tell the tools how it ended, without writing it."""
        deadline = time.monotonic() + END_S
        for mirror in self._mirrors:
            mirror.end(outcome, within_s=deadline - time.monotonic())
        self._tell()
        self._mirrors = []

    def _tell(self) -> None:
        """What went wrong with a tool, once for each."""
        problems = [*self._early, *(mirror.problem for mirror in self._mirrors)]
        for problem in problems:
            if problem and problem not in self._told:
                self._told.add(problem)
                self._writer.write(Log(lines=[problem], level="warning"))


def mirrored(writer: Writer, spec: JobSpec, setting: str | None = None) -> Writer:
    """`writer`, and beside it the tools that `TRACKING` names; itself where it names none."""
    setting = os.environ.get(VARIABLE, "") if setting is None else setting
    names = list(dict.fromkeys(name.strip().lower() for name in setting.split(",") if name.strip()))
    mirrors, problems = [], []
    for name in names:
        if name not in TOOLS:
            problems.append(_unknown(name))
            continue
        try:
            mirrors.append(Mirror(name, make_tool(name, spec)))
        except ImportError as error:
            missing = f"its package is not installed here ({error}); docs/tracking.md says how"
            problems.append(_words(name, missing))
        except Exception as error:  # a package may fail in any way while it is imported
            problems.append(_words(name, f"could not begin: {type(error).__name__}: {error}"))
    return Mirrored(writer, mirrors, problems) if names else writer


def _summary(event: Event) -> Mapping[str, Any]:
    """What the tools show of an outcome."""
    if isinstance(event, Finished):
        plain = {n: v for n, v in event.summary.items() if isinstance(v, str | int | float)}
        return {"steps": event.step, **plain}
    if isinstance(event, Failed):
        return {"failure": event.kind, "fault": str(event.fault), "message": event.message}
    return {}


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name, TOOLS, n=1)
    meant = f" (is '{close[0]}' meant?)" if close else ""
    return (
        f"{VARIABLE}: '{name}' is none of {', '.join(TOOLS)}{meant}. The run continues without it."
    )


def _words(name: str, what: str) -> str:
    return f"{VARIABLE}={name}: {what}. The run continues without it."

"""What guardrails and live diagnosis say of a stored run, by the rules of today.

Both look at emitted figures alone, so a run need not be made again when a threshold changes.
"""

from dataclasses import dataclass, field
from typing import Any, cast

from benchmarks.diagnosis_world.records import Record
from workers.config import settings_for
from workers.context import RunContext
from workers.contract.events import Alert, Event, Evidence
from workers.contract.jobs import JobSpec
from workers.rules.engine import live_engine, report

_WORDS = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


@dataclass
class Notebook:
    """Takes what a run tells of."""

    events: list[Event] = field(default_factory=list)

    def emit(self, event: Event) -> None:
        self.events.append(event)

    def all(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def replayed(record: Record) -> Notebook:
    """In the order of the recipe: a step's own figures, then those of its evaluation."""
    settings = settings_for(record.kind, record.config)
    notebook = Notebook()
    context = cast(RunContext, notebook)
    spec = JobSpec(
        run=record.name,
        attempt=1,
        kind=record.kind,
        project="benchmark",
        seed=record.seed,
        artifacts_url="",
        config=record.config,
    )
    engine = live_engine(spec, settings)
    for step, metrics in _looks(record):
        report(context.emit, engine.check(step, metrics))
    return notebook


def evidence_of(record: Record) -> list[Evidence]:
    return replayed(record).all(Evidence)


def alerts_of(record: Record) -> list[Alert]:
    """Those that ask for somebody: not what only informs."""
    return [alert for alert in replayed(record).all(Alert) if alert.severity != "info"]


def _looks(record: Record) -> list[tuple[int, dict[str, float | None]]]:
    """(step, figures), evaluations after the step they are of."""
    found: dict[tuple[int, bool], dict[str, float | None]] = {}
    for name, points in record.curves.items():
        for step, value in points:
            number = _WORDS[value] if isinstance(value, str) else value
            found.setdefault((step, name.startswith("eval/")), {})[name] = number
    return [(step, found[step, evaluation]) for step, evaluation in sorted(found)]

"""Events from a file: what a machine that was cut off could not bring over the wire."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings

from apps.training.services.applying import Applied, events_apply
from workers.artifacts import ArtifactError, Store, StoreUnreachable
from workers.contract.wire import VERSION

BATCH_EVENTS = 200
EVENTS_FILE = "events.jsonl"  # below JobSpec.folder, as workers.emitter writes it


@dataclass(slots=True)
class Imported:
    """What an import did, over all attempts in the file."""

    applied: int = 0
    superseded: int = 0
    skipped: int = 0
    invalid: int = 0
    unreadable: int = 0  # lines that are no events
    problems: list[str] = field(default_factory=list)


def spool_import(*, lines: Iterable[bytes]) -> Imported:
    """Apply a spool. What is in already is skipped, so it may be done again, and with a part."""
    report = Imported()
    for batch in _batches(lines, report):
        _add(report, events_apply(batch=batch))
    return report


def spool_import_stored(*, run_id: str, attempt: int) -> Imported | None:
    """Import the spool of an attempt from the artifact store; None when there is none. Raises
    `StoreUnreachable`: then there may be one."""
    store = Store(settings.ARTIFACTS_URL)
    try:
        with store.open(f"runs/{run_id}/attempt-{attempt}/{EVENTS_FILE}") as file:
            return spool_import(lines=file)
    except StoreUnreachable:
        raise
    except (ArtifactError, OSError):
        return None


def _batches(lines: Iterable[bytes], report: Imported) -> Iterator[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    address: tuple[Any, Any] = (None, None)
    for line in lines:
        event = _event(line)
        if event is None:
            report.unreadable += bool(line.strip())
            continue
        here = (event.get("run"), event.get("attempt"))
        if events and (here != address or len(events) == BATCH_EVENTS):
            yield _batch(address, events)
            events = []
        address = here
        events.append(event)
    if events:
        yield _batch(address, events)


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and type(event.get("seq")) is int else None


def _batch(address: tuple[Any, Any], events: list[dict[str, Any]]) -> dict[str, Any]:
    return {"version": VERSION, "run": address[0], "attempt": address[1], "events": events}


def _add(report: Imported, applied: Applied) -> None:
    report.applied += applied.applied
    report.superseded += applied.kept
    report.skipped += applied.skipped
    report.invalid += applied.invalid
    name = f"run {applied.run or '?'}, attempt {applied.attempt or '?'}"
    if applied.unknown:
        report.problems.append(f"{name}: is not known here")
    if applied.missing is not None:
        report.problems.append(f"{name}: event {applied.missing} is missing; the rest was left")
    if not applied.run:
        report.problems.append("a stretch of events names no run and attempt")

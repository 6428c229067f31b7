"""Batches off the broker, which everybody writes to who reaches it."""

import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db import transaction

from apps.common.transactions import database_away
from apps.training import dispatch
from apps.training.metric_blocks import columns_of, gathered
from apps.training.models import PARKED, Checkpoint, Run, RunAttempt, RunEvent
from apps.training.services.applying import INVALID, Applied, counts, events_apply, has_address
from apps.training.services.attempts import run_locked
from apps.training.services.event_handlers import apply, check_points
from apps.training.services.points import block_add
from apps.training.signing import is_from_its_worker
from workers.artifacts import ArtifactError, Store, StoreUnreachable
from workers.contract.events import (
    EVENT_TYPES,
    TERMINAL,
    CheckpointSaved,
    Envelope,
    Event,
    Metrics,
    Progress,
    envelope_from_json,
)
from workers.contract.wire import VERSION

log = logging.getLogger(__name__)


def batch_receive(*, batch: Any) -> Applied:
    """Apply a batch that the worker of its attempt has signed. Any other is logged and counted, and
    changes nothing."""
    if has_address(batch) and not is_from_its_worker(batch):
        name = f"{batch['run']!r:.40}/{batch['attempt']}"
        log.warning("refused a batch of %s: it is not signed by its worker", name)
        dispatch.refusal_count()
        return Applied(run=batch["run"], attempt=batch["attempt"], refused=True)
    return events_apply(batch=batch)


# Events that an older version of this side could not read, applied once this one can.


def parked_apply() -> int:
    """Apply every parked event that this version reads, in order; returns how many. Each is parked
    until it is applied, so this may be done again, and at any time."""
    readable = RunEvent.objects.filter(
        type=PARKED, body__version__lte=VERSION, body__type__in=list(EVENT_TYPES)
    )
    done = 0
    for run_id in readable.order_by().values_list("run_id", flat=True).distinct():
        with transaction.atomic():
            run = run_locked(run_id, skip_locked=True)
            if run is None:
                continue
            for row in readable.filter(run=run).order_by("attempt", "seq"):
                _unpark(run, row)
                done += 1
            run.save()
    return done


def ends_parked(run: Run) -> bool:
    """Whether the last that was heard of the current attempt cannot be read yet. It may say how the
    attempt ended, so nobody may start another one for want of an upgrade."""
    last = RunAttempt.objects.get(run=run, number=run.attempt).last_seq
    return RunEvent.objects.filter(run=run, attempt=run.attempt, seq=last, type=PARKED).exists()


def _unpark(run: Run, row: RunEvent) -> None:
    attempt = RunAttempt.objects.select_for_update().get(run=run, number=row.attempt)
    try:
        envelope = envelope_from_json(row.body)
        with transaction.atomic():
            _apply_late(run, attempt, envelope)
    except Exception as error:
        if database_away(error):
            raise
        log.exception("run %s/%s: parked event %s", run.pk, row.attempt, row.seq)
        why = f"{type(error).__name__}: {error}"[:2000]
        row.type, row.body = INVALID, {"error": why, "raw": repr(row.body)[:4000]}
    else:
        attempt.save()
        row.type, row.body = type(envelope.event).__name__, row.body["event"]
    if row.type == Metrics.__name__:
        row.delete()  # its points are a block now
    else:
        row.save(update_fields=["type", "body"])


def _apply_late(run: Run, attempt: RunAttempt, envelope: Envelope) -> None:
    event = envelope.event
    if isinstance(event, Metrics):
        check_points(event)
        block_add(
            run_id=run.pk,
            attempt=attempt.number,
            first_seq=envelope.seq,
            columns=gathered([columns_of(event.steps, event.values)]),
            at=datetime.fromtimestamp(envelope.at, UTC),  # it arrived when it could not be read yet
        )
    elif attempt.number == run.attempt and not _is_overtaken(run, attempt, event):
        late = replace(envelope, event=_without_moved_tags(run, event))
        apply(run, attempt, late, datetime.fromtimestamp(envelope.at, UTC))


def _is_overtaken(run: Run, attempt: RunAttempt, event: Event) -> bool:
    """Whether what came after it, and was read before it, has said better."""
    if isinstance(event, TERMINAL):
        return not counts(run, attempt)
    return isinstance(event, Progress) and (not run.is_live or event.step < run.step)


def _without_moved_tags(run: Run, event: Event) -> Event:
    """A tag that a later checkpoint has taken over stays there."""
    if not isinstance(event, CheckpointSaved):
        return event
    later = Checkpoint.objects.filter(run=run, step__gt=event.step).values_list("tags", flat=True)
    taken = {tag for tags in later for tag in tags}
    return replace(event, tags=[tag for tag in event.tags if tag not in taken])


# Events from a file: what a machine that was cut off could not bring over the wire.

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

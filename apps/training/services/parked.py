"""Events that an older version of this side could not read, applied once this one can."""

import logging
from dataclasses import replace
from datetime import UTC, datetime

from django.db import InterfaceError, OperationalError, transaction

from apps.training.metric_blocks import columns_of, gathered
from apps.training.models import PARKED, Checkpoint, Run, RunAttempt, RunEvent
from apps.training.services.applying import INVALID, counts
from apps.training.services.arms import apply, check_points
from apps.training.services.attempts import run_locked
from apps.training.services.points import block_add
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
    except (OperationalError, InterfaceError):
        raise
    except Exception as error:
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
        numbers = {"first_seq": envelope.seq, "last_seq": envelope.seq}
        columns = gathered([columns_of(event.steps, event.values)])
        block_add(run_id=run.pk, attempt=attempt.number, **numbers, columns=columns)
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

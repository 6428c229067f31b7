"""Taking in what trainers report.

Delivery is at least once, in order: an event that is already in is skipped, a gap is refused (the
supervisor sends again from what was acknowledged). So applying is idempotent, and any number of
event workers may be killed at any time.

Every event is a row, but for Metrics: the points of a whole batch are one block.
"""

import logging
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.common.json_limits import storable
from apps.common.transactions import database_away
from apps.training import dispatch
from apps.training.metric_blocks import Column, columns_of, gathered
from apps.training.models import PARKED, Run, RunAttempt, RunEvent
from apps.training.services.attempts import run_end, run_locked
from apps.training.services.event_handlers import OUTSIDE, ROWLESS, OutsideRun, apply, check_points
from apps.training.services.points import BLOCKS_TO_MERGE, block_add, blocks_merge
from workers.contract.events import Envelope, Fault, Metrics, envelope_from_json
from workers.contract.wire import ContractError, NewerPeer

log = logging.getLogger(__name__)
INVALID = "Invalid"  # the type under which an event that breaks the contract is kept
VIOLATION = "contract_violation"
_LONGEST_NOTE = 60


@dataclass(slots=True)
class Applied:
    """What became of a batch. `kept` counts events of superseded attempts or ended runs, which
    are stored and change nothing; `parked` those that only a newer version can read; `missing` is
    the first number of a gap; `refused` says that the batch was not from the attempt's worker."""

    run: str = ""
    attempt: int = 0
    applied: int = 0
    kept: int = 0
    skipped: int = 0
    invalid: int = 0
    parked: int = 0
    missing: int | None = None
    unknown: bool = False
    refused: bool = False


def events_apply(*, batch: Any) -> Applied:
    """Apply one batch in one transaction and acknowledge it after the commit. Whether it may speak
    for its attempt was settled before (`batch_receive`).

    Never raises for what a batch contains: an unreadable batch is logged, an event that breaks the
    contract is kept and fails its run. Raises what the database raises when it is away; then the
    supervisor sends again.
    """
    result = Applied()
    if not has_address(batch):
        log.error("a batch of events without an address was dropped: %.200r", batch)
        return result
    result.run, result.attempt = batch["run"], batch["attempt"]
    events = batch.get("events")
    events = events if isinstance(events, list) else []
    if not events:
        _hear(result, batch.get("note"))
        return result
    with transaction.atomic():
        run = run_locked(result.run)
        attempt = (
            RunAttempt.objects.select_for_update()
            .filter(run_id=result.run, number=result.attempt)
            .first()
        )
        if run is None or attempt is None:
            _refuse(result, events)
            return result
        _apply_all(run, attempt, events, result)
    return result


def has_address(batch: Any) -> bool:
    """Whether a batch says whose it is."""
    return (
        isinstance(batch, Mapping)
        and isinstance(batch.get("run"), str)
        and type(batch.get("attempt")) is int
        and 0 < batch["attempt"] < 2**15
    )


def _hear(result: Applied, note: Any) -> None:
    """A sign of life. It says nothing that could be lost, so it takes no lock. `note`: why a worker
    that has the job does not begin."""
    changes: dict[str, Any] = {"heard_at": timezone.now()}
    if isinstance(note, str):
        changes["phase"] = storable(note)[:_LONGEST_NOTE]
    Run.objects.filter(pk=result.run, attempt=result.attempt).update(**changes)


def _refuse(result: Applied, events: list[Any]) -> None:
    """The run is gone (deleted), or never had this attempt: let the supervisor stop sending, and
    its trainer stop training."""
    result.unknown = True
    log.warning("events of the unknown attempt %s/%s", result.run, result.attempt)
    dispatch.command_send(result.run, "cancel")
    dispatch.ack_send(result.run, result.attempt, max(map(_seq, events), default=0))


def _apply_all(run: Run, attempt: RunAttempt, events: list[Any], result: Applied) -> None:
    rows: list[RunEvent] = []
    points: dict[int, dict[str, Column]] = {}  # of the batch's Metrics events, by number
    for raw in events:
        seq = _seq(raw)
        if 0 < seq <= attempt.last_seq:
            result.skipped += 1
            continue
        if seq > attempt.last_seq + 1:
            result.missing = attempt.last_seq + 1
            break
        attempt.last_seq += 1  # also for an event without a number: it takes the next one
        kept = _apply_one(run, attempt, raw, result)
        if isinstance(kept, RunEvent):
            rows.append(kept)
        else:
            points[attempt.last_seq] = kept
    RunEvent.objects.bulk_create(rows)
    if points:
        block_add(
            run_id=run.pk,
            attempt=attempt.number,
            first_seq=min(points),
            last_seq=max(points),
            columns=gathered(points.values()),
            at=timezone.now(),
        )
        # An attempt that is over gets few more points: its last small blocks become one.
        least = BLOCKS_TO_MERGE if run.is_live else 2
        blocks_merge(run_id=run.pk, attempt=attempt.number, least=least)
    attempt.save()
    if run.attempt == attempt.number:
        run.heard_at = timezone.now()
    run.save()
    transaction.on_commit(partial(dispatch.ack_send, run.pk, attempt.number, attempt.last_seq))


def _apply_one(
    run: Run, attempt: RunAttempt, raw: Any, result: Applied
) -> RunEvent | dict[str, Column]:
    """Apply one event; whatever it contains, the ones after it are not held up. What is to be
    kept of it: a row, or the points of a Metrics event."""
    try:
        raw = storable(raw)
        try:
            envelope = envelope_from_json(raw)
        except NewerPeer as newer:
            check_address(run, attempt, raw)
            log.warning("run %s/%s: parked an event: %s", run.pk, attempt.number, newer)
            result.parked += 1
            return _row(run, attempt, datetime.fromtimestamp(raw["at"], UTC), PARKED, raw)
        check_address(run, attempt, raw)
        at = datetime.fromtimestamp(envelope.at, UTC)
        kept = _kept(run, attempt, envelope, at, raw["event"])
        if counts(run, attempt):
            with nullcontext() if isinstance(envelope.event, ROWLESS) else transaction.atomic():
                apply(run, attempt, envelope, at)
            result.applied += 1
        else:
            result.kept += 1
        return kept
    except Exception as error:
        if database_away(error):
            raise
        # A ContractError, or a value no arm can use; either way the trainer's word cannot be
        # relied on any more. What the arm stored is undone.
        log.exception("run %s/%s: event %s", run.pk, attempt.number, attempt.last_seq)
        result.invalid += 1
        if counts(run, attempt):
            _fail(run, attempt, error)
        body = {"error": f"{type(error).__name__}: {error}"[:2000], "raw": repr(raw)[:4000]}
        return _row(run, attempt, timezone.now(), INVALID, storable(body))


def check_address(run: Run, attempt: RunAttempt, raw: Mapping[str, Any]) -> None:
    if (raw["run"], raw["attempt"]) != (run.pk, attempt.number):
        raise ContractError("event: it is addressed to another attempt")


def counts(run: Run, attempt: RunAttempt) -> bool:
    """Whether events of `attempt` may change the run: it is the current one, and the run has not
    ended. A run given up as lost has not ended for certain: its trainer may know better."""
    return attempt.number == run.attempt and (run.is_live or run.failure_kind == "lost")


def _kept(
    run: Run, attempt: RunAttempt, envelope: Envelope, at: datetime, body: dict[str, Any]
) -> RunEvent | dict[str, Column]:
    if isinstance(envelope.event, Metrics):
        check_points(envelope.event)
        return columns_of(envelope.event.steps, envelope.event.values)
    return _row(run, attempt, at, type(envelope.event).__name__, body)


def _row(run: Run, attempt: RunAttempt, at: datetime, kind: str, body: dict[str, Any]) -> RunEvent:
    return RunEvent(
        run=run, attempt=attempt.number, seq=attempt.last_seq, at=at, type=kind, body=body
    )


def _fail(run: Run, attempt: RunAttempt, error: Exception) -> None:
    attempt.outcome, attempt.ended_at = "failed", timezone.now()
    run_end(
        run=run,
        state=Run.State.FAILED,
        kind=OUTSIDE if isinstance(error, OutsideRun) else VIOLATION,
        fault=Fault.BUG,
        message=f"Event {attempt.last_seq} of attempt {attempt.number} breaks the contract: "
        f"{error}"[:2000],
    )
    transaction.on_commit(partial(dispatch.command_send, run.pk, "cancel"))


def _seq(raw: Any) -> int:
    """The number of an event as sent; 0 when it has none."""
    seq = raw.get("seq") if isinstance(raw, Mapping) else None
    return seq if type(seq) is int and seq > 0 else 0

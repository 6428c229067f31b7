"""What the sweep finds: runs whose worker fell silent, runs sent and never taken."""

from collections import Counter
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from apps.common.transactions import after_commit
from apps.training import dispatch
from apps.training.models import Run, RunAttempt
from apps.training.services.attempts import run_dispatch, run_end, run_fail_or_retry, run_locked
from apps.training.services.commands import command_deliver
from apps.training.services.housekeeping import folders_delete
from apps.training.services.intermediates import intermediates_expire
from apps.training.services.queueing import drained_tell, log, run_send, runs_admit
from apps.training.services.receiving import ends_parked, parked_apply, spool_import_stored
from apps.training.services.scanning import scans_sweep
from workers.artifacts import StoreUnreachable
from workers.contract.events import Fault


def runs_sweep() -> Counter[str]:
    """Look at every live run; returns how often each thing was done.

    A run whose row is locked is being worked on and left alone. One run's problem never keeps the
    others from being looked at.
    """
    done: Counter[str] = Counter()
    drained_tell()
    try:
        if applied := parked_apply():
            done["unparked"] = applied
    except Exception:
        log.exception("applying parked events")
        done["error"] += 1
    try:
        if expired := intermediates_expire():
            done["expired"] += expired
    except StoreUnreachable as error:
        log.warning("retention waits for the store: %s", error)
    except Exception:
        log.exception("removing intermediate files by retention")
        done["error"] += 1
    try:
        if deleted := folders_delete():
            done["deleted"] += deleted
    except Exception:
        log.exception("deleting files that nothing needs")
        done["error"] += 1
    try:
        if sent := scans_sweep():
            done["scanned"] += sent
    except Exception:
        log.exception("looking for blocked phrases in the answers of ended runs")
        done["error"] += 1
    for run_id in Run.objects.filter(state__in=Run.LIVE_STATES).values_list("pk", flat=True):
        try:
            with transaction.atomic():
                run = run_locked(run_id, skip_locked=True)
                if run is not None and run.is_live and (what := _sweep(run)):
                    done[what] += 1
        except Exception:
            log.exception("sweeping run %s", run_id)
            done["error"] += 1
    after_commit(runs_admit)  # what nobody admitted: a worker has come, a process was killed
    return done


def _sweep(run: Run) -> str | None:
    if run.state == Run.State.WAITING:
        run_dispatch(run=run, cause=RunAttempt.Cause.LAUNCH)
        return "released" if run.state != Run.State.WAITING else None
    if run.command:
        after_commit(command_deliver, run_id=run.pk)
    if run.state == Run.State.QUEUED and run.admitted_at is None:
        return None  # it waits for a slot
    if run.state == Run.State.QUEUED and run.dispatched_at is None:
        return _send(run)
    standing = dispatch.standing(run.pk)
    if standing is None or standing.leased:
        return None  # nothing can be known, or somebody is responsible
    quiet = timezone.now() - _last_sign(run)
    if run.state == Run.State.QUEUED and standing.fence < run.attempt:
        if quiet < timedelta(seconds=settings.RUN_RESEND_SECONDS) or _waits_in_queue(run):
            return None
        return _send(run)
    if quiet < timedelta(seconds=settings.RUN_SILENCE_SECONDS):
        return None
    return _recover(run)


def _last_sign(run: Run) -> datetime:
    """When the current attempt was last heard of, or else sent, or else made."""
    made = RunAttempt.objects.get(run=run, number=run.attempt).created_at
    return max(at for at in (made, run.dispatched_at, run.heard_at) if at is not None)


def _send(run: Run) -> str:
    after_commit(run_send, run_id=run.pk, attempt=run.attempt)
    return "sent"


def _waits_in_queue(run: Run) -> bool:
    """True also when the queue cannot be read: then it is not the time to send."""
    waiting = dispatch.jobs_waiting(run.queue)
    return waiting is None or (run.pk, run.attempt) in waiting


def _recover(run: Run) -> str | None:
    """Nobody holds the lease and nothing was heard: the attempt is over, one way or another. Its
    spool may know how; else it is lost, and the run continues from its last checkpoint."""
    try:
        spool = spool_import_stored(run_id=run.pk, attempt=run.attempt)
    except StoreUnreachable as error:
        if run.command != "cancel":
            log.warning("run %s/%s is silent, and what it left: %s", run.pk, run.attempt, error)
            return None  # it may have ended well; the next attempt would need the store too
        spool = None
    run.refresh_from_db()
    if spool is not None and spool.applied and not _still_open(run):
        return "settled"
    if run.command == "cancel":
        RunAttempt.objects.filter(run=run, number=run.attempt).update(
            outcome="lost", ended_at=timezone.now()
        )
        run_end(run=run, state=Run.State.CANCELLED)
        return "cancelled"
    if ends_parked(run):
        return None  # the run's page says that an upgrade is due
    log.warning("run %s/%s went silent and holds no lease", run.pk, run.attempt)
    run_fail_or_retry(
        run=run,
        kind="lost",
        fault=Fault.MACHINE,
        message=f"Attempt {run.attempt} went silent at step {run.step}: its machine or worker is "
        "gone. Its last checkpoint is kept.",
        retryable=True,
        outcome="lost",
    )
    return "recovered" if run.is_live else "lost"


def _still_open(run: Run) -> bool:
    """Whether the current attempt has no outcome yet, after its spool was read."""
    return (
        run.is_live
        and RunAttempt.objects.filter(run=run, number=run.attempt, ended_at=None).exists()
        and run.dispatched_at is not None
    )

"""The life of a run between its attempts: dispatched, ended, tried again, followed by others.

Everything here runs inside the caller's transaction, which holds the run's row (`run_locked`).
Locks go from a run to those that wait for it, never back, so no two transactions wait in a ring.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from django.conf import settings
from django.utils import timezone

from apps.common.registry import run_ended
from apps.common.transactions import after_commit
from apps.labeling.selectors import settings_get
from apps.training.models import Checkpoint, Run, RunAttempt, RunInput
from apps.training.selectors.reference import baseline_of
from apps.training.selectors.runs import checkpoint_for_use, checkpoints
from apps.training.services.kinds import assessed_temperature
from apps.training.services.queueing import place_now, runs_admit
from apps.training.services.scanning import phrases_of, scan_send
from workers.artifacts import MANIFEST, ArtifactError, Store, StoreUnreachable
from workers.contract import wire
from workers.contract.events import Fault
from workers.contract.jobs import InputRef, JobSpec, Limits, Resume, spec_to_json

log = logging.getLogger(__name__)
INTERRUPTED = "interrupted"  # an attempt its worker gave up when it was shut down: no failure
_Cause = RunAttempt.Cause


def run_locked(run_id: str, **lock: bool) -> Run | None:
    """The run, its row locked until the transaction ends."""
    return Run.objects.select_for_update(of=("self",), **lock).filter(pk=run_id).first()


def run_dispatch(*, run: Run, cause: str) -> RunAttempt | None:
    """Open the next attempt; once this transaction is committed it waits for a slot of its machine
    class, before all others where it had one and lost its machine.

    A run whose upstream runs have not finished waits instead; one of whose upstream runs has
    failed, fails. Then there is no attempt, and None is returned.
    """
    if not _inputs_settle(run):
        return None
    resume = _last_good_checkpoint(run)
    run.attempt += 1
    run.state = Run.State.QUEUED
    run.command = run.phase = run.fault = run.failure_kind = run.failure_message = ""
    run.step = resume.step if resume else 0
    run.eta_s = run.admitted_at = run.dispatched_at = run.heard_at = run.ended_at = None
    run.goes_on = cause == _Cause.RETRY
    if not run.goes_on:
        run.place = place_now()
    run.save()
    attempt = RunAttempt.objects.create(
        run=run,
        number=run.attempt,
        cause=cause,
        spec=spec_to_json(_spec(run, resume)),
        resumed_from_step=resume.step if resume else None,
    )
    # Robust: what goes wrong there is logged, and the sweep's business; the run is stored.
    after_commit(runs_admit)
    return attempt


def run_end(
    *,
    run: Run,
    state: str,
    kind: str = "",
    fault: str = "",
    message: str = "",
    summary: dict[str, Any] | None = None,
) -> None:
    """Give the run its outcome, and tell the runs that wait for it."""
    run.state = state
    run.ended_at = timezone.now()
    # Without phrases there is nothing to look for, and those of tomorrow find what ends tomorrow.
    run.scanned_at = None if phrases_of(run) else run.ended_at
    run.eta_s = None
    run.failure_kind, run.fault, run.failure_message = kind[:60], fault[:14], message
    if summary is not None:
        run.summary = summary
    run.save()
    after_commit(runs_admit)
    if run.scanned_at is None:
        after_commit(scan_send, run_id=run.pk)
    run_ended(run)
    for row in RunInput.objects.filter(upstream=run, run__state=Run.State.WAITING):
        waiting = run_locked(row.run_id)
        if waiting is not None and waiting.state == Run.State.WAITING:
            run_dispatch(run=waiting, cause=_Cause.LAUNCH)


def run_fail_or_retry(
    *, run: Run, kind: str, fault: str, message: str, retryable: bool, outcome: str
) -> None:
    """End the current attempt with `outcome`; the run continues with a new attempt if that may
    help, nobody wants it ended, and it has not failed too often."""
    RunAttempt.objects.filter(run=run, number=run.attempt).update(
        outcome=outcome, ended_at=timezone.now()
    )
    if run.command == "cancel":
        run_end(run=run, state=Run.State.CANCELLED)
    elif retryable and not run.command and attempts_used(run) < settings.RUN_MAX_ATTEMPTS:
        log.info("run %s: attempt %s %s, trying again", run.pk, run.attempt, kind)
        run_dispatch(run=run, cause=_Cause.RETRY)
    else:
        run_end(run=run, state=Run.State.FAILED, kind=kind, fault=fault, message=message)


def attempts_used(run: Run) -> int:
    """Attempts since a person last started the run; those a worker's shutdown interrupted are
    nobody's failure and do not count."""
    used = 0
    for attempt in RunAttempt.objects.filter(run=run).order_by("-number"):
        used += attempt.outcome != INTERRUPTED
        if attempt.cause != _Cause.RETRY:
            break
    return used


def _inputs_settle(run: Run) -> bool:
    """Point each input that waits for a run at that run's checkpoint. False when there is none
    yet (the run waits; should its bell ring just now, the sweep hears it) or will be none (it
    fails)."""
    pending = RunInput.objects.filter(run=run, upstream__isnull=False, checkpoint__isnull=True)
    live = False
    for row in pending.select_related("upstream"):
        upstream = row.upstream
        assert upstream is not None  # noqa: S101 — filtered by it
        if upstream.is_live:
            live = True
            continue
        if upstream.state == Run.State.FINISHED:
            row.checkpoint = checkpoint_for_use(upstream)
        if row.checkpoint is None:
            finished = upstream.state == Run.State.FINISHED
            why = "finished without a checkpoint" if finished else f"is {upstream.state}"
            run_end(
                run=run,
                state=Run.State.FAILED,
                kind="upstream_failed",
                fault=Fault.CONFIGURATION,
                message=f"The run '{upstream.name}' ({upstream.pk}), which gives '{row.role}', "
                f"{why}.",
            )
            return False
        row.save(update_fields=["checkpoint"])
    if live:
        run.state = Run.State.WAITING
        run.ended_at = None
        run.save()
    return not live


def _last_good_checkpoint(run: Run) -> Checkpoint | None:
    """The newest checkpoint to continue from that is still whole in the store. While that does not
    answer, the newest: the trainer checks it, and nobody may start over for want of an answer."""
    store = Store(settings.ARTIFACTS_URL)
    for checkpoint in checkpoints(run):
        if "failed" in checkpoint.tags or checkpoint.removed_by in Checkpoint.GIVEN_UP:
            continue
        try:
            store.read_bytes(f"{checkpoint.uri}/{MANIFEST}", sha256=checkpoint.sha256)
        except StoreUnreachable:
            return checkpoint
        except (ArtifactError, OSError):
            continue
        return checkpoint
    return None


def _spec(run: Run, resume: Checkpoint | None) -> JobSpec:
    inputs = RunInput.objects.filter(run=run).select_related("snapshot", "checkpoint", "artifact")
    rows = list(inputs.order_by("role"))
    return JobSpec(
        run=run.pk,
        attempt=run.attempt,
        kind=run.kind,
        project=run.project_id,
        seed=run.seed,
        artifacts_url=settings.ARTIFACTS_URL,
        config=run.config,
        inputs=tuple(_reference(row) for row in rows),
        queue=run.queue or wire.QUEUE_CPU,
        launcher=run.launcher,
        layout=run.layout,
        processes=run.processes,
        code_version=run.code_version,
        resume=Resume(resume.uri, resume.sha256, resume.step) if resume else None,
        limits=Limits(
            lease_s=settings.RUN_LEASE_SECONDS,
            grace_s=settings.RUN_GRACE_SECONDS,
            stop_s=settings.RUN_STOP_SECONDS,
            max_s=settings.RUN_MAX_SECONDS,
        ),
        baseline=_baseline(run),
        phrases=tuple(settings_get(project=run.project).constraint_phrases),
        reward_temperature=_reward_temperature(run, rows),
    )


def _reward_temperature(run: Run, rows: Iterable[RunInput]) -> float | None:
    """Of a run whose reward is a model and nothing beside it: T is of that model's raw scores."""
    reward = run.config.get("reward") or {}
    if not isinstance(reward, Mapping) or reward.get("type", "model") != "model":
        return None
    model = next((row.checkpoint for row in rows if row.role == "reward"), None)
    return assessed_temperature(model) if model is not None else None


def _baseline(run: Run) -> dict[str, Any]:
    found = baseline_of(run)
    return found.to_json() if found is not None else {}


def _reference(row: RunInput) -> InputRef:
    if row.artifact is not None:
        file = row.artifact
        return InputRef(row.role, "artifact", str(file.pk), file.uri, file.sha256)
    thing = row.snapshot or row.checkpoint
    assert thing is not None  # noqa: S101 — settled before, and a constraint
    kind = "snapshot" if row.snapshot_id else "checkpoint"
    return InputRef(row.role, kind, thing.pk, thing.uri, thing.sha256)

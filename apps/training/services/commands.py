"""What people may command a run to do: cancel it, stop and keep it, resume it."""

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, Missing
from apps.common.transactions import after_commit
from apps.training import dispatch
from apps.training.models import Alert, Run, RunAttempt
from apps.training.selectors.intermediates import resume_lost
from apps.training.services.attempts import run_dispatch, run_end, run_locked


def run_cancel(*, run: Run, user: User | None = None) -> Run:
    """End the run without saving. What has not started is cancelled at once; a trainer is asked,
    and killed after the grace time. Returns the run as it now is."""
    with transaction.atomic():
        run = _live(run, "cancelled")
        if run.command == "cancel":
            return run
        run.command = "cancel"
        _audit("run.cancelled", run, user)
        if run.state == Run.State.QUEUED and run.admitted_at is None:
            # It was never sent, so there is nobody to ask.
            RunAttempt.objects.filter(run=run, number=run.attempt).update(
                outcome="cancelled", ended_at=timezone.now()
            )
            run_end(run=run, state=Run.State.CANCELLED)
            return run
        if run.state == Run.State.WAITING:
            run_end(run=run, state=Run.State.CANCELLED)
            return run
        run.state = Run.State.STOPPING
        run.save()
        after_commit(command_deliver, run_id=run.pk)
    run.refresh_from_db()
    return run


def run_stop_and_keep(*, run: Run, user: User | None = None) -> Run:
    """Ask the trainer to save and finish early. Raises `Conflict` when none is running."""
    with transaction.atomic():
        run = _live(run, "stopped")
        if run.command:
            return run
        if run.state != Run.State.RUNNING:
            raise Conflict(
                "The run has not started, so there is nothing to keep. Cancel it instead.",
                code="run_not_running",
            )
        run.command = "stop"
        run.state = Run.State.STOPPING
        run.save()
        _audit("run.stopped", run, user)
        after_commit(command_deliver, run_id=run.pk)
    return run


def run_resume(*, run: Run, user: User | None = None) -> Run:
    """A new attempt of a failed or cancelled run, from its last checkpoint. Its attempts are
    counted again."""
    with transaction.atomic():
        run = run_locked(run.pk) or _gone()
        if run.state not in (Run.State.FAILED, Run.State.CANCELLED):
            raise Conflict(
                f"The run is {run.state}; only a failed or cancelled one can be resumed.",
                code="run_not_resumable",
            )
        if (lost := resume_lost(run)) is not None:
            raise Conflict(
                f"The run cannot be resumed any more: its trainer state was removed on "
                f"{lost.at:%-d %B %Y} {lost.words}. Clone it to start over.",
                code="state_removed",
            )
        broken = run.inputs.filter(
            checkpoint__isnull=True, upstream__state__in=[Run.State.FAILED, Run.State.CANCELLED]
        ).select_related("upstream")
        for row in broken:
            assert row.upstream is not None  # noqa: S101 — filtered by it
            raise Conflict(
                f"The run '{row.upstream.name}', which gives '{row.role}', is "
                f"{row.upstream.state}. Resume that one first.",
                code="upstream_failed",
                field=f"inputs.{row.role}",
            )
        run.command = ""
        run_dispatch(run=run, cause=RunAttempt.Cause.RESUME)
        _audit("run.resumed", run, user)
    return run


def command_deliver(*, run_id: str) -> None:
    """Bring the stored command to the workers. The sweep repeats it until the run has ended.

    A cancelled attempt that nobody has claimed is fenced off in Redis, so that it never starts,
    and the run has ended.
    """
    run = Run.objects.filter(pk=run_id).first()
    if run is None or not run.command or not run.is_live:
        return
    dispatch.command_send(run.pk, run.command)
    if run.command != "cancel" or not dispatch.attempt_fence(run.pk, run.attempt):
        return
    with transaction.atomic():
        locked = run_locked(run_id)
        if locked is not None and locked.is_live and locked.attempt == run.attempt:
            RunAttempt.objects.filter(run=locked, number=locked.attempt).update(
                outcome="cancelled", ended_at=timezone.now()
            )
            run_end(run=locked, state=Run.State.CANCELLED)


def _live(run: Run, done: str) -> Run:
    locked = run_locked(run.pk) or _gone()
    if not locked.is_live:
        raise Conflict(
            f"The run is {locked.state} already and cannot be {done}.", code="run_has_ended"
        )
    return locked


def _gone() -> Run:
    raise Conflict("The run does not exist any more.", code="run_is_gone")


def _audit(action: str, run: Run, user: User | None) -> None:
    audit_record(action=action, actor=user, project=run.project, subject=run.pk)


# Saying that an alert was seen.


def alert_acknowledge(*, run: Run, alert_id: int, user: User) -> None:
    """Mark the alert as seen by `user`; the first to do so stays. Raises `Missing`."""
    alert = Alert.objects.filter(run=run, pk=alert_id).first()
    if alert is None:
        raise Missing("The run has no such alert.", field="alert")
    seen = Alert.objects.filter(pk=alert.pk, acknowledged_at__isnull=True).update(
        acknowledged_at=timezone.now(), acknowledged_by=user
    )
    if seen:
        audit_record(
            action="alert.acknowledged",
            actor=user,
            project=run.project,
            subject=run.pk,
            details={"rule": alert.rule, "step": alert.step},
        )

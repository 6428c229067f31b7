"""Admission: which of the runs that wait get a slot of their machine class, and their order.

Happens after every launch, end and change of order, and in every sweep. One at a time on the whole
site (an advisory lock of the transaction), so no slot is given twice; what a lost message or a
killed process leaves undone, the next sweep does.
"""

import logging
import time

from django.db import connection, transaction
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.accounts.selectors import maintenance_now
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError
from apps.common.transactions import after_commit
from apps.training import dispatch
from apps.training.models import DrainedWorker, Run, RunAttempt, RunQuota
from apps.training.selectors import queueing as fleet_reading
from apps.training.selectors.queueing import order, queue_lines
from apps.training.signing import secret_of

log = logging.getLogger(__name__)
_ADMISSION = 0x636F6E636F7264  # the number of the advisory lock
UP, DOWN, FIRST = "up", "down", "first"
MOST_AT_ONCE = 1000
# The limits of a project: their greatest numbers, and what they are.
LIMITS = {
    "runs_at_once": (MOST_AT_ONCE, "The quota"),
    "space_bytes": (10**18, "The quota of disk space in bytes"),
    "gpu_hours": (10_000_000, "The quota of GPU hours in 30 days"),
    "keep_days": (10_000, "The time for which intermediate files are kept, in days,"),
}


def runs_admit() -> int:
    """Give every free slot to the run it is due to, and send these. Returns how many were admitted.

    A run whose row somebody is working on is passed over; that one's commit, or the next sweep,
    looks again. None while the site is closed for maintenance."""
    waits = Run.objects.filter(state=Run.State.QUEUED, admitted_at=None)
    if not waits.exists() or maintenance_now():
        return 0
    fleet = fleet_reading.fleet_state()  # before the lock: Redis may take its time
    with transaction.atomic():
        _lock()
        due = [
            waiting.run.pk
            for line in queue_lines(fleet=fleet).values()
            for waiting in line.waiting
            if waiting.next_free
        ]
        rows = Run.objects.select_for_update(skip_locked=True, of=("self",)).filter(
            pk__in=due, state=Run.State.QUEUED, admitted_at=None
        )
        admitted = list(rows)
        for run in admitted:
            run.admitted_at = timezone.now()
            run.save(update_fields=["admitted_at", "updated_at"])
            after_commit(run_send, run_id=run.pk, attempt=run.attempt)
    return len(admitted)


def run_send(*, run_id: str, attempt: int) -> bool:
    """Hand an admitted attempt to the broker. While that is away the run stays queued, and the
    sweep sends it again. Sending twice is harmless: an attempt starts once."""
    opened = (
        RunAttempt.objects.select_related("run")
        .filter(
            run_id=run_id,
            number=attempt,
            run__attempt=attempt,
            run__state=Run.State.QUEUED,
            run__admitted_at__isnull=False,
        )
        .first()
    )
    if opened is None:
        return False
    if not opened.run.command and not dispatch.command_send(run_id, ""):
        return False
    job = opened.spec | {"secret": secret_of(run_id, attempt)}
    if not dispatch.job_send(job, created_at=opened.created_at.timestamp()):
        return False
    Run.objects.filter(pk=run_id, attempt=attempt).update(dispatched_at=timezone.now())
    return True


def place_now() -> int:
    """The place of a run that comes to the queue now: behind all that came before."""
    return time.time_ns() // 1000


def run_prioritise(*, run: Run, priority: int, user: User | None = None) -> Run:
    """Raise or lower a run that waits. Raises `Conflict` when it has its slot already."""
    if priority not in Run.Priority.values:
        raise DomainError(
            f"There is no such priority; there are: {', '.join(Run.Priority.labels)}.",
            code="bad_priority",
            field="priority",
        )
    with transaction.atomic():
        _lock()
        run = _waiting(run)
        if run.priority == priority:
            return run
        before, run.priority = run.get_priority_display(), priority
        run.save(update_fields=["priority", "updated_at"])
        _audit("run.prioritised", run, user, {"from": before, "to": run.get_priority_display()})
        after_commit(runs_admit)
    return run


def run_move(*, run: Run, to: str, user: User | None = None) -> Run:
    """Change places among the waiting runs of the same project, machine class and priority: `up`
    or `down` by one, or `first`. Runs of other projects keep theirs."""
    if to not in (UP, DOWN, FIRST):
        raise DomainError("A run moves up, down or first.", code="bad_move", field="to")
    with transaction.atomic():
        _lock()
        run = _waiting(run)
        peers = sorted(
            Run.objects.select_for_update(of=("self",)).filter(
                project_id=run.project_id,
                queue=run.queue,
                state=Run.State.QUEUED,
                admitted_at=None,
                goes_on=run.goes_on,
                priority=run.priority,
            ),
            key=order,
        )
        if run not in peers:  # it waits for its inputs and has no place yet
            raise Conflict("The run is not in the queue yet.", code="run_not_queued")
        places = _distinct([peer.place for peer in peers])
        now = peers.index(run)
        wanted = {UP: max(0, now - 1), DOWN: min(len(peers) - 1, now + 1), FIRST: 0}[to]
        peers.insert(wanted, peers.pop(now))
        for peer, place in zip(peers, places, strict=True):
            if peer.place != place:
                peer.place = place
                peer.save(update_fields=["place", "updated_at"])
        if wanted != now:
            _audit("run.moved", run, user, {"to": to})
        after_commit(runs_admit)
    run.refresh_from_db()
    return run


def quota_set(*, project: Project, user: User | None = None, **limits: int | None) -> RunQuota:
    """Set the limits that are given, of `LIMITS`; None lifts one, and others stay as they are. Runs
    that have begun continue, whatever the new limits are. Raises `DomainError` naming the field."""
    for name, value in limits.items():
        most, what = LIMITS[name]
        if value is not None and not 1 <= value <= most:
            raise DomainError(
                f"{what} is a whole number from 1 to {most:,}, or blank for none.",
                code="bad_quota",
                field=name,
            )
    with transaction.atomic():
        row, _ = RunQuota.objects.select_for_update().get_or_create(project=project)
        changed = {name: value for name, value in limits.items() if getattr(row, name) != value}
        if changed:
            for name, value in changed.items():
                setattr(row, name, value)
            row.save(update_fields=[*changed, "updated_at"])
            audit_record(
                action="project.quota_set",
                actor=user,
                project=project,
                subject=project.pk,
                details=changed,
            )
        after_commit(runs_admit)
    return row


def worker_drain(*, name: str, project: Project | None = None, user: User | None = None) -> bool:
    """Let the worker of this name finish what it is at and take no new run, also after a restart,
    until `worker_resume`. False: it was so already. `project`: whose page or API said so.

    Raises `DomainError` where no worker of that name is heard."""
    fleet = fleet_reading.fleet_state()
    if fleet is not None and name not in {worker.name for worker in fleet.workers}:
        raise DomainError(
            f"No worker called {name!r:.100} is heard.", code="unknown_worker", field="worker"
        )
    with transaction.atomic():
        _, new = DrainedWorker.objects.get_or_create(name=name)
        if new:
            audit_record(action="worker.drained", actor=user, project=project, subject=name)
        after_commit(drained_tell)
    return new


def worker_resume(*, name: str, project: Project | None = None, user: User | None = None) -> bool:
    """Let a drained worker take runs again. False: it was not drained."""
    with transaction.atomic():
        gone, _ = DrainedWorker.objects.filter(name=name).delete()
        if gone:
            audit_record(action="worker.resumed", actor=user, project=project, subject=name)
        after_commit(drained_tell)
        after_commit(runs_admit)
    return bool(gone)


def drained_tell() -> None:
    """What the database says of drained workers, to the workers; the sweep says it again, since a
    Redis may forget."""
    dispatch.draining_send(sorted(fleet_reading.drained_names()))


def _lock() -> None:
    """Until the transaction ends. Taken before any row, so that nobody waits in a ring."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_ADMISSION])


def _waiting(run: Run) -> Run:
    """The run, locked, if it has no slot yet."""
    locked = Run.objects.select_for_update(of=("self",)).filter(pk=run.pk).first()
    if locked is None:
        raise Conflict("The run does not exist any more.", code="run_is_gone")
    if locked.state == Run.State.WAITING or (
        locked.state == Run.State.QUEUED and locked.admitted_at is None
    ):
        return locked
    raise Conflict(
        "The run already has its slot, so it has no place in the queue."
        if locked.is_live
        else f"The run is {locked.state}.",
        code="run_has_slot",
    )


def _distinct(places: list[int]) -> list[int]:
    """Rising strictly, so that an exchange is one also where two runs had the same place."""
    made: list[int] = []
    for place in sorted(places):
        made.append(place if not made or place > made[-1] else made[-1] + 1)
    return made


def _audit(action: str, run: Run, user: User | None, details: dict[str, str]) -> None:
    audit_record(action=action, actor=user, project=run.project, subject=run.pk, details=details)


# What a scheduler looks after every few seconds, since messages get lost and machines die.

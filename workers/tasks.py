"""The tasks of the GPU side."""

import contextlib
import logging
import os
import time
from pathlib import Path
from typing import Any

from workers.celery import app, worker_is_leaving
from workers.contract import wire
from workers.contract.events import Envelope, Failed, Fault, envelope_to_json
from workers.contract.jobs import spec_from_json
from workers.contract.signing import signed
from workers.contract.wire import NewerPeer, is_run_id
from workers.control import CANCEL
from workers.fleet import told_to_drain
from workers.supervisor import Supervisor
from workers.supervisor.connection import TIMEOUT_S, Line

# Jobs that this worker cannot read: of a newer web side, or of none that keeps to the contract.

LEFT_FOR_S = 5.0
DRAINED_FOR_S = 1.0  # within seconds its main process consumes nothing any more (workers/fleet.py)
WAITS = "waits for a newer worker"


def leave(
    job: Any, why: str, *, line: Line, created_at: float, pause_s: float = LEFT_FOR_S
) -> None:
    """Put a job that only a newer worker can read back into its queue, after a pause in which such
    a worker may take what waits there. The run's page says what it waits for; of a run that was
    cancelled meanwhile nothing is left."""
    log.error("left a job in its queue, this worker is older than the web side: %s", why)
    address = _address(job)
    if address is None or job.get("queue") not in wire.JOB_QUEUES:
        return
    if line.command(address[0]) == CANCEL:
        return
    _tell(line, job, *address, events=[], note=WAITS)
    time.sleep(pause_s)
    line.put_back(job, created_at=created_at)


def refuse(job: Any, why: str, *, line: Line) -> None:
    """End the attempt of a job that no worker will read; it has no supervisor to say so."""
    log.error("refused a job: %s", why)
    address = _address(job)
    if address is None:
        return
    event = Failed("unreadable_job", Fault.BUG, f"The worker cannot read this job. {why}")
    _tell(line, job, *address, events=[envelope_to_json(Envelope(*address, 1, time.time(), event))])


def _address(job: Any) -> tuple[str, int] | None:
    run, attempt = (job.get("run"), job.get("attempt")) if isinstance(job, dict) else (None, None)
    return (run, attempt) if is_run_id(run) and type(attempt) is int else None


def _tell(
    line: Line,
    job: dict[str, Any],
    run: str,
    attempt: int,
    *,
    events: list[dict[str, Any]],
    **more: Any,
) -> None:
    batch = {"version": wire.VERSION, "run": run, "attempt": attempt, "events": events} | more
    line.send(signed(batch, str(job.get("secret") or "")))


log = logging.getLogger(__name__)


def work_folder() -> Path:
    """Where attempts work and spool on this machine: WORK_DIR, else below VAR_DIR."""
    folder = os.environ.get("WORK_DIR") or Path(os.environ.get("VAR_DIR") or "var") / "work"
    return Path(folder).expanduser().resolve()


@app.task(name=wire.TASK_RUN_JOB)
def run_job(job: dict[str, Any], created_at: float = 0.0, **later: Any) -> None:
    """Supervise one attempt to its end. `created_at` (Unix seconds): when the attempt came to be.
    Arguments of a later version are left aside: while two are deployed, the web may be the newer.

    The message was acknowledged before this began, so it is never delivered again because of us;
    the run row decides whether there is another one.
    """
    try:
        spec = spec_from_json(job)
    except ValueError as error:
        with contextlib.closing(Line(os.environ["REDIS_URL"])) as line:
            if isinstance(error, NewerPeer):
                leave(job, str(error), line=line, created_at=created_at)
            else:
                refuse(job, str(error), line=line)
        return
    # A call that hangs must cost little of a lease.
    line = Line(os.environ["REDIS_URL"], timeout_s=min(TIMEOUT_S, spec.limits.lease_s / 10))
    with contextlib.closing(line):
        if told_to_drain(line.redis, str(run_job.request.hostname)):
            log.info("%s/%s: left for another worker, this one is drained", spec.run, spec.attempt)
            time.sleep(DRAINED_FOR_S)
            line.put_back(job, created_at=created_at)
            return
        became = Supervisor(
            spec, line=line, work=work_folder(), created_at=created_at, leaving=worker_is_leaving
        ).run()
    log.info("%s/%s: %s", spec.run, spec.attempt, became)

"""The tasks of the GPU side."""

import contextlib
import logging
import os
from pathlib import Path
from typing import Any

from workers.celery import app, worker_is_leaving
from workers.contract import wire
from workers.contract.jobs import spec_from_json
from workers.contract.wire import NewerPeer
from workers.supervisor import Supervisor
from workers.supervisor.line import TIMEOUT_S, Line
from workers.unreadable import leave, refuse

log = logging.getLogger(__name__)


def work_folder() -> Path:
    """Where attempts work and spool on this machine: WORK_DIR, else below VAR_DIR."""
    folder = os.environ.get("WORK_DIR") or Path(os.environ.get("VAR_DIR") or "var") / "work"
    return Path(folder).expanduser().resolve()


@app.task(name=wire.TASK_RUN_JOB)
def run_job(job: dict[str, Any], created_at: float = 0.0) -> None:
    """Supervise one attempt to its end. `created_at` (Unix seconds): when the attempt came to be.

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
        became = Supervisor(
            spec, line=line, work=work_folder(), created_at=created_at, leaving=worker_is_leaving
        ).run()
    log.info("%s/%s: %s", spec.run, spec.attempt, became)

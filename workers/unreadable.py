"""Jobs that this worker cannot read: of a newer web side, or of none that keeps to the contract."""

import logging
import time
from typing import Any

from workers.contract import wire
from workers.contract.events import Envelope, Failed, Fault, envelope_to_json
from workers.contract.places import is_run_id
from workers.contract.signing import signed
from workers.control import CANCEL
from workers.supervisor.line import Line

LEFT_FOR_S = 5.0
WAITS = "waits for a newer worker"
log = logging.getLogger(__name__)


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
    if line.wish(address[0]) == CANCEL:
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

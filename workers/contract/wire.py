"""Names both sides send by, and the checks every decoded message passes.

Tasks are sent by name, so neither side imports the other's code.
"""

import re
from dataclasses import MISSING, fields
from pathlib import PurePosixPath
from typing import Any, TypeGuard

VERSION = 1

# Queues: one per machine class, one for short jobs (probes, scoring), one for events coming back,
# one for the web side's own scheduled work, one for imports and freezes, which may take minutes,
# and one for statistics of whole projects, which take seconds and must not hold up events.
QUEUE_GPU = "gpu"
QUEUE_GPU_LARGE = "gpu-large"  # machines with several GPUs, or GPUs with more memory
QUEUE_CPU = "cpu"
QUEUE_SHORT = "short"
QUEUE_EVENTS = "events"
QUEUE_DEFAULT = "default"
QUEUE_IMPORTS = "imports"
QUEUE_STATISTICS = "statistics"
JOB_QUEUES = (QUEUE_GPU, QUEUE_GPU_LARGE, QUEUE_CPU, QUEUE_SHORT)

JOB_HEADER = "concord_job"  # of a job's message: its `job_name`

REFUSED_KEY = "concord:batches-refused"  # how many batches of events were not signed as they must

TASK_RUN_JOB = "workers.tasks.run_job"
TASK_RECORD_EVENTS = "apps.training.tasks.record_events"
TASK_SWEEP_RUNS = "apps.training.tasks.sweep_runs"
TASK_RUN_IMPORT = "apps.labeling.tasks.run_import"
TASK_SWEEP_IMPORTS = "apps.labeling.tasks.sweep_imports"
TASK_FREEZE = "apps.snapshots.tasks.freeze"
TASK_SCAN_ANSWERS = "apps.training.tasks.scan_answers"
TASK_END_ROUND = "apps.loop.tasks.end_round"
TASK_SWEEP_FREEZES = "apps.snapshots.tasks.sweep_freezes"

# Redis keys of the lease protocol (see workers/contract/lease.py).
LEASE_SECONDS = 30


def job_name(run: str, attempt: int) -> str:
    return f"{run}/{attempt}"


def lease_key(run: str) -> str:
    """Who trains this run now; expires unless renewed."""
    return f"concord:lease:{run}"


def fence_key(run: str) -> str:
    """The highest attempt that was ever claimed; a lower or equal one may not start again."""
    return f"concord:fence:{run}"


def wanted_key(run: str) -> str:
    """The highest attempt that waits for the lease; the holder of a lower one makes room."""
    return f"concord:wanted:{run}"


def control_key(run: str) -> str:
    """The web side's command for a live run: `stop` (save, keep) or `cancel`."""
    return f"concord:control:{run}"


def ack_key(run: str, attempt: int) -> str:
    """The last event number of an attempt that is committed to the database."""
    return f"concord:ack:{run}:{attempt}"


class ContractError(ValueError):
    """A message that does not fit the contract; the text names the field."""


class NewerPeer(ContractError):
    """A message of a version or type that only a newer peer can read. It may be perfectly right, so
    it is kept for the day of the upgrade and fails nothing."""


def version_check(version: Any, *, where: str) -> None:
    """Raises `NewerPeer` for a later version than ours, `ContractError` for what is none. An older
    one is read: fields that came later have defaults."""
    if type(version) is not int or version < 1:
        raise ContractError(f"{where}: version {version!r} is none")
    if version > VERSION:
        raise NewerPeer(f"{where}: version {version} is not the version {VERSION} read here")


def build(cls: type, data: Any, *, where: str) -> Any:
    """Make dataclass `cls` from a decoded JSON object.

    Unknown keys are ignored (a newer peer may send more); missing required keys and a `data`
    that is no object raise `ContractError` naming the field.
    """
    if not isinstance(data, dict):
        raise ContractError(f"{where}: expected an object, got {type(data).__name__}")
    values = {}
    for field in fields(cls):
        if field.name in data:
            values[field.name] = data[field.name]
        elif field.default is MISSING and field.default_factory is MISSING:
            raise ContractError(f"{where}: missing field '{field.name}'")
    return cls(**values)


ALIVE_SECONDS = 30
BEAT_EVERY_SECONDS = 5.0
SCHEDULER = "scheduler"


def alive_key(name: str) -> str:
    """The key that lives as long as somebody consumes the queue `name` (or schedules)."""
    return f"concord:alive:{name}"


# Where things of a run may lie: its id is part of paths, so it is checked before one is made.

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")


def is_run_id(value: object) -> TypeGuard[str]:
    """Whether `value` names one folder, and nothing above or beside it."""
    return isinstance(value, str) and _RUN_ID.fullmatch(value) is not None


def is_below_run(uri: str, run: str) -> bool:
    """Whether `uri`, a path in the artifact store in its plainest spelling, lies in the run's
    folder."""
    path = PurePosixPath(uri)
    plain = str(path) == uri and ".." not in path.parts and not re.search(r"[\\:\x00]", uri)
    return plain and path.parts[:2] == ("runs", run) and len(path.parts) > 2

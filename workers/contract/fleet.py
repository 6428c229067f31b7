"""What a worker says of its machine and of what it does, and where the web side reads it.

    concord:worker:<name>     a WorkerReport as JSON; expires unless it is said again
    concord:workers           names by the Unix time of their last report
    concord:classes-heard     machine class -> Unix time of the last report of any worker of it

Redis holds no history: a machine that is gone is gone from here within half a minute.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from workers.contract.alive import ALIVE_SECONDS
from workers.contract.wire import ContractError, build

WORKERS_KEY = "concord:workers"
HEARD_KEY = "concord:classes-heard"
REPORT_SECONDS = ALIVE_SECONDS
KEPT_SECONDS = 86_400  # for which the name of a silent worker is remembered
PACKAGES = ("torch", "transformers", "trl", "accelerate", "peft", "deepspeed", "ray", "vllm")


def worker_key(name: str) -> str:
    """Of the report of the worker `name`."""
    return f"concord:worker:{name}"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU that the worker may use; memory in bytes, None where the driver does not say."""

    name: str
    total_bytes: int | None = None
    free_bytes: int | None = None
    driver: str = ""


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """A worker, the machine it stands on, and the attempts it is at.

    `slots`: attempts it takes at once. `runs`: ids of the runs it works on. `versions` holds the
    `PACKAGES` that are installed. `at` and `started_at` are Unix seconds of its clock.
    """

    name: str
    host: str
    pid: int
    queues: tuple[str, ...]
    at: float
    slots: int = 1
    cpus: int = 0
    memory_bytes: int | None = None
    memory_free_bytes: int | None = None
    gpus: tuple[Gpu, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    code_version: str = ""
    started_at: float = 0.0
    runs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fleet:
    """The workers that were heard in the last half minute, and when each machine class was."""

    workers: tuple[WorkerReport, ...] = ()
    heard: Mapping[str, float] = field(default_factory=dict)

    def of_class(self, queue: str) -> list[WorkerReport]:
        return [worker for worker in self.workers if queue in worker.queues]

    def slots(self, queue: str) -> int:
        return sum(worker.slots for worker in self.of_class(queue))


def report_to_json(report: WorkerReport) -> str:
    return json.dumps(asdict(report))


def report_from_json(text: str | bytes) -> WorkerReport:
    """Raises `ContractError` for what is no report."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise ContractError(f"worker report: not JSON ({error})") from error
    if isinstance(data, dict):
        data["gpus"] = tuple(
            build(Gpu, one, where=f"worker report.gpus[{place}]")
            for place, one in enumerate(_listed(data, "gpus"))
        )
        data |= {name: tuple(map(str, _listed(data, name))) for name in ("queues", "runs")}
    report: WorkerReport = build(WorkerReport, data, where="worker report")
    if not isinstance(report.versions, dict) or type(report.slots) is not int or report.slots < 0:
        raise ContractError("worker report: slots or versions have another form")
    for name in ("at", "started_at"):
        if not isinstance(getattr(report, name), int | float):
            raise ContractError(f"worker report.{name}: is no time")
    return report


def _listed(data: Mapping[str, Any], name: str) -> list[Any]:
    value = data.get(name) or []
    if not isinstance(value, list):
        raise ContractError(f"worker report.{name}: is no list")
    return value


def reports_of(texts: Iterable[str | bytes | None]) -> tuple[WorkerReport, ...]:
    """Those that can be read, by host and name; of a newer or broken worker nothing is shown."""
    found = []
    for text in texts:
        if text is None:
            continue
        try:
            found.append(report_from_json(text))
        except ContractError:
            continue
    return tuple(sorted(found, key=lambda one: (one.host, one.name)))

"""What a worker says of its machine and of what it does, and where the web side reads it.

    concord:worker:<instance> a WorkerReport as JSON; expires unless it is said again
    concord:workers           instances by the Unix time of their last report
    concord:classes-heard     machine class -> Unix time of the last report of any worker of it
    concord:draining          names of the workers that the web side tells to take no new run

Redis holds no history: a machine that is gone is gone from here within half a minute.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from math import isfinite
from typing import Any

from workers.contract.wire import ALIVE_SECONDS, ContractError, build

WORKERS_KEY = "concord:workers"
HEARD_KEY = "concord:classes-heard"
DRAINING_KEY = "concord:draining"
REPORT_SECONDS = ALIVE_SECONDS
KEPT_SECONDS = 86_400  # for which a silent worker is remembered
PACKAGES = ("torch", "transformers", "trl", "accelerate", "peft", "deepspeed", "ray", "vllm")


def worker_key(instance: str) -> str:
    """Of the report of the worker `instance`."""
    return f"concord:worker:{instance}"


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

    `instance` tells two workers of one `name` apart, which nothing keeps from being started.
    `slots`: attempts it takes at once. `runs`: ids of the runs it works on. `versions` holds the
    `PACKAGES` that are installed, `rewards` the names of its reward functions; `runs_code`: whether
    it may run the code of answers; `draining`: it takes no new run, as it was told. `at` and
    `started_at` are Unix seconds of its clock.
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
    instance: str = ""
    rewards: tuple[str, ...] = ()
    runs_code: bool = False
    draining: bool = False


@dataclass(frozen=True, slots=True)
class Fleet:
    """The workers that were heard in the last half minute, and when each machine class was.
    `draining`: names of those that take no new run, as the database has them."""

    workers: tuple[WorkerReport, ...] = ()
    heard: Mapping[str, float] = field(default_factory=dict)
    draining: frozenset[str] = frozenset()

    def of_class(self, queue: str) -> list[WorkerReport]:
        """The workers that take runs of the class."""
        return [
            worker
            for worker in self.workers
            if queue in worker.queues and worker.name not in self.draining
        ]

    def draining_of(self, queue: str) -> list[WorkerReport]:
        """The workers of the class that take no new run."""
        return [
            worker
            for worker in self.workers
            if queue in worker.queues and worker.name in self.draining
        ]

    def slots(self, queue: str) -> int:
        """Of the workers that take runs of a class; one of two classes has its slots in both."""
        return sum(worker.slots for worker in self.of_class(queue))

    def placed(self, wanted: Mapping[str, Iterable[str]]) -> int:
        """How many of these runs (machine class -> ids) can be worked on at once.

        A run that a worker says it is at has its slot there; the others may go to any worker that
        takes runs of their class, and a class without one has one slot, for the first that comes.
        The most that fit then is the least cut between runs and workers (Ford and Fulkerson 1956):
        over all sets of classes, the slots that serve the set and the runs beyond it.
        """
        left = {queue: set(runs) for queue, runs in wanted.items()}
        slots: Counter[frozenset[str]] = Counter()
        settled = 0
        for worker in self.workers:
            here = {run for queue in worker.queues for run in left.get(queue, ())}
            at = set([run for run in worker.runs if run in here][: worker.slots])
            settled += len(at)
            for queue in left.keys() & set(worker.queues):  # a report may name what it likes
                left[queue] -= at
            if worker.name not in self.draining:
                slots[frozenset(worker.queues)] += worker.slots - len(at)
        for queue in left:
            if not self.slots(queue):
                slots[frozenset([queue])] += 1
        return settled + min(
            sum(n for served, n in slots.items() if served & set(some))
            + sum(len(runs) for queue, runs in left.items() if queue not in some)
            for size in range(len(left) + 1)
            for some in combinations(left, size)
        )


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
        data |= {
            name: tuple(map(str, _listed(data, name))) for name in ("queues", "runs", "rewards")
        }
    report: WorkerReport = build(WorkerReport, data, where="worker report")
    if not isinstance(report.versions, dict):
        raise ContractError("worker report.versions: is no object")
    _require(report, _is_text, "no text", "name", "host", "code_version", "instance")
    _require(report, _is_count, "no number from 0", "pid", "slots", "cpus")
    _require(report, _is_size, "no number from 0", "memory_bytes", "memory_free_bytes")
    _require(report, _is_time, "no time", "at", "started_at")
    _require(report, _is_truth, "neither true nor false", "runs_code", "draining")
    for gpu in report.gpus:
        _require(gpu, _is_text, "no text", "name", "driver")
        _require(gpu, _is_size, "no number from 0", "total_bytes", "free_bytes")
    if not all(map(_is_text, report.versions.values())):
        raise ContractError("worker report.versions: hold something else than text")
    return report


def _require(said: Any, good: Callable[[Any], bool], what: str, *names: str) -> None:
    for name in names:
        if not good(getattr(said, name)):
            raise ContractError(f"worker report.{name}: is {what}")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_size(value: Any) -> bool:
    return value is None or _is_count(value)


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool)


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and isfinite(value)


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
    return tuple(sorted(_of_the_living(found), key=lambda one: (one.host, one.name)))


def _of_the_living(found: Sequence[WorkerReport]) -> list[WorkerReport]:
    """Without what a worker said that was started again since: its last report outlives it for a
    while. Of two that live at once each says something after the other's start."""
    started: dict[tuple[str, str], float] = {}
    for one in found:
        name = one.host, one.name
        started[name] = max(one.started_at, started.get(name, 0.0))
    return [one for one in found if one.at >= started[one.host, one.name]]

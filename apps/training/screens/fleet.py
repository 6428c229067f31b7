"""The fleet as its page shows it: machines, what they are at, who waits for them and why.

Runs of other projects are counted and never named.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.conf import settings

from apps.accounts.models import Project
from apps.common.health import schedulers
from apps.common.numbers import filesize
from apps.common.scheduler_signs import Schedulers
from apps.training import display
from apps.training.models import Run, RunQuota
from apps.training.selectors import queueing as fleet_reading
from apps.training.selectors.queueing import QueueLine, classes_beside, queue_lines, queue_words
from apps.training.selectors.quotas import gpu_hours_used, least
from workers.contract.code_version import UNKNOWN, code_version
from workers.contract.fleet import PACKAGES, Fleet, Gpu, WorkerReport
from workers.contract.wire import QUEUE_SHORT

MOST_ROWS = 50  # of one class
ELSEWHERE = "a run of another project"
DRAINED = "idle, drained"


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker is at: `run` is None for a run of another project."""

    run: Run | None
    words: str


@dataclass(frozen=True, slots=True)
class Machine:
    """One worker and where it stands. `odd` are its differences from the rest, in words; `draining`
    what it is at where it takes no new run, else empty."""

    worker: WorkerReport
    gpus: list[str]
    processor: str
    jobs: list[Job]
    odd: list[str]
    draining: str
    versions: str
    started_at: datetime
    heard_at: datetime

    @property
    def drained(self) -> bool:
        """Whether it may be switched off: it is at nothing and takes nothing."""
        return self.draining == DRAINED

    @property
    def idle_slots(self) -> int:
        return max(0, self.worker.slots - len(self.jobs))


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A run that has a slot or waits for one; `number` is its place among those that wait. `run`
    is None for a run of another project."""

    run: Run | None
    words: str
    priority: str
    tone: str = ""
    number: int | None = None
    held: str = ""


@dataclass(frozen=True, slots=True)
class ClassView:
    queue: str
    summary: str
    silent: bool
    draining: bool
    rows: list[QueueRow]
    more: int


@dataclass(frozen=True, slots=True)
class Quota:
    """limit, used: runs at once; hours of the last 30 days are None where nothing limits them."""

    limit: int | None
    used: int
    own_hours: int | None
    most_hours: int | None
    hours: float | None


@dataclass(frozen=True, slots=True)
class FleetView:
    """`unknown`: Redis does not answer. `unused`: classes nobody serves and nobody asks for;
    `absent`: drained workers that are not heard."""

    unknown: bool
    schedulers: Schedulers | None
    machines: list[Machine]
    classes: list[ClassView]
    unused: list[str]
    absent: list[str]
    quota: Quota


def fleet_view(project: Project) -> FleetView:
    fleet = fleet_reading.fleet_state()
    lines = queue_lines(fleet=fleet)
    known = fleet or Fleet()
    classes, unused = [], []
    words = queue_words(fleet=fleet, lines=lines)
    for line in lines.values():
        if line.has or line.waiting or known.of_class(line.queue) or known.draining_of(line.queue):
            classes.append(_class_view(line, known, project, words))
        else:
            unused.append(line.queue)
    runs = {run.pk: run for line in lines.values() for run in line.has}
    return FleetView(
        unknown=fleet is None,
        schedulers=schedulers(),
        machines=[
            _machine(worker, known, runs, project, code_version()) for worker in known.workers
        ],
        classes=classes,
        unused=unused,
        absent=sorted(
            fleet_reading.drained_names() - {worker.name for worker in known.workers}
            if fleet is not None
            else ()
        ),
        quota=_quota(project, runs.values()),
    )


def _quota(project: Project, with_slots: Iterable[Run]) -> Quota:
    row = RunQuota.objects.filter(project=project).first()
    own = row.gpu_hours if row else None
    most = least(own, settings.PROJECT_GPU_HOURS)
    return Quota(
        row.runs_at_once if row else None,
        sum(run.project_id == project.pk and run.queue != QUEUE_SHORT for run in with_slots),
        own,
        most,
        gpu_hours_used(project.pk) if most else None,
    )


# --- machines ---


def _machine(
    worker: WorkerReport,
    fleet: Fleet,
    runs: Mapping[str, Run],
    project: Project,
    site_code: str,
) -> Machine:
    all_workers = fleet.workers
    memory = [
        f"{worker.cpus} CPU{'' if worker.cpus == 1 else 's'}",
        *([f"{filesize(worker.memory_bytes)} of memory"] if worker.memory_bytes else []),
        *([f"{filesize(worker.memory_free_bytes)} free"] if worker.memory_free_bytes else []),
    ]
    return Machine(
        worker=worker,
        gpus=gpu_words(worker.gpus),
        processor=", ".join(memory),
        jobs=[_job(run_id, runs, project) for run_id in worker.runs],
        odd=[*namesakes(worker, all_workers), *differences(worker, all_workers, site_code)],
        draining=draining_words(worker) if worker.name in fleet.draining else "",
        versions=", ".join(
            f"{name} {worker.versions[name]}" for name in PACKAGES if name in worker.versions
        ),
        started_at=datetime.fromtimestamp(worker.started_at, UTC),
        heard_at=datetime.fromtimestamp(worker.at, UTC),
    )


def _job(run_id: str, runs: Mapping[str, Run], project: Project) -> Job:
    run = runs.get(run_id)
    if run is not None and run.project_id == project.pk:
        return Job(run, display.progress(run).words or run.get_state_display())
    # A run that has ended a moment ago is not among those with a slot; it is not looked up, so
    # that another project's is not told from one's own.
    return Job(None, ELSEWHERE if run is not None else "a run that is ending")


def draining_words(worker: WorkerReport) -> str:
    """Of a worker that is told to take no new run; it hears so within seconds."""
    if worker.runs:
        return "draining: it finishes what it is at"
    return DRAINED if worker.draining else "draining: it has not confirmed yet"


def gpu_words(gpus: Sequence[Gpu]) -> list[str]:
    """ "2 × NVIDIA H200, 151 GB each, 140 and 151 GB free" for each model of GPU."""
    found = []
    for (name, total, driver), n in Counter(
        (gpu.name, gpu.total_bytes, gpu.driver) for gpu in gpus
    ).items():
        free = [
            gpu.free_bytes
            for gpu in gpus
            if (gpu.name, gpu.total_bytes, gpu.driver) == (name, total, driver)
        ]
        parts = [f"{n} × {name}" if n > 1 else name]
        if total is not None:
            parts.append(f"{filesize(total)}{' each' if n > 1 else ''}")
        if all(one is not None for one in free):
            least = min(one for one in free if one is not None)
            parts.append(f"{'at least ' if n > 1 else ''}{filesize(least)} free")
        found.append(", ".join(parts) + (f" (driver {driver})" if driver else ""))
    return found


def namesakes(worker: WorkerReport, all_workers: Sequence[WorkerReport]) -> list[str]:
    """What to do about workers of one name: a control message to one reaches all of them."""
    same = [one for one in all_workers if one.name == worker.name]
    if len(same) < 2:
        return []
    return [
        f"{len(same)} workers are called {worker.name}, and messages to one reach the others: give "
        "each a name of its own (-n)."
    ]


def differences(
    worker: WorkerReport, all_workers: Sequence[WorkerReport], site_code: str
) -> list[str]:
    """What this worker has otherwise than most of the others, or than the site. Where no version
    is the most common one, all are listed: nobody can say who is right."""
    found = []
    for name in PACKAGES:
        own = worker.versions.get(name)
        counted = Counter(one.versions[name] for one in all_workers if name in one.versions)
        if own is None or len(counted) < 2 or _is_most_common(own, counted):
            continue
        others = " and ".join(sorted(version for version in counted if version != own))
        found.append(f"{name} {own} here; elsewhere {others}.")
    if worker.code_version != site_code and UNKNOWN not in (worker.code_version, site_code):
        found.append(f"Code {worker.code_version or 'unknown'} here; this site runs {site_code}.")
    return found


def _is_most_common(version: str, counted: Counter[str]) -> bool:
    return all(n < counted[version] for other, n in counted.items() if other != version)


# --- queues ---


def _class_view(
    line: QueueLine, fleet: Fleet, project: Project, words: Mapping[str, str]
) -> ClassView:
    rows = []
    for run in line.has:
        text = display.progress(run).words if run.state != Run.State.QUEUED else words[run.pk]
        rows.append(_row(run, project, text, tone=display.TONES[run.state]))
    for number, waiting in enumerate(line.waiting, 1):
        rows.append(_row(waiting.run, project, waiting.words, number=number, held=waiting.held))
    workers = len(fleet.of_class(line.queue))
    draining = len(fleet.draining_of(line.queue))
    others = classes_beside(line.queue, fleet)
    summary = [
        f"{workers} worker{'' if workers == 1 else 's'}",
        *([f"{draining} draining"] if draining else []),
        f"{len(line.has)} of {line.slots} slot{'' if line.slots == 1 else 's'} taken",
        f"{len(line.waiting)} waiting",
        *([f"slots shared with {' and '.join(others)}"] if others else []),
    ]
    return ClassView(
        queue=line.queue,
        summary=" · ".join(summary),
        silent=not workers and not draining,
        draining=not workers and draining > 0,
        rows=rows[:MOST_ROWS],
        more=max(0, len(rows) - MOST_ROWS),
    )


def _row(run: Run, project: Project, words: str, **more: Any) -> QueueRow:
    own = run.project_id == project.pk
    if not own:
        words = ELSEWHERE if more.get("number") is None else "waits"
    return QueueRow(run if own else None, words, run.get_priority_display(), **more)

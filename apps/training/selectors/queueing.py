"""Who waits for a slot of which machine class, in which order, and why.

A run that is queued waits until it is admitted: then it has a slot, and its job is sent. A machine
class has as many slots as its live workers have, and at least one, so that a run is at its broker
when the first worker comes. A worker of two classes has its slots once: who comes first of either
class gets them. The order is that of the database, never that of the broker:

    what lost its machine and continues, then priority, then place (age, unless somebody moved it)

A run that its project's quota or its needs hold back lets those behind it pass.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise, takewhile
from typing import Any

import redis
from django.conf import settings
from django.utils import timezone

from apps.accounts.selectors import maintenance_now
from apps.common.redis_now import redis_now
from apps.training.models import DrainedWorker, Run, RunAttempt, RunInput, RunQuota
from apps.training.selectors.quotas import GPU_QUEUES, gpu_hours_used, least
from workers.config.rewards import installed_functions
from workers.contract import fleet
from workers.contract.fleet import Fleet, WorkerReport
from workers.contract.jobs import ACCELERATE, EVERY_GPU, LAYOUTS, ONE
from workers.contract.wire import JOB_QUEUES, QUEUE_CPU, QUEUE_SHORT

# Which machines there are: what their workers last said of themselves, read from Redis.


def fleet_state() -> fleet.Fleet | None:
    """The workers that were heard in the last half minute, and which of them take no new run; None
    when Redis does not answer."""
    client = redis_now()
    try:
        pipe = client.pipeline(transaction=False)
        pipe.zrange(fleet.WORKERS_KEY, 0, -1)
        pipe.hgetall(fleet.HEARD_KEY)
        instances, heard = pipe.execute()
        keys = [fleet.worker_key(instance.decode()) for instance in instances]
        reports = client.mget(keys) if keys else []
    except (redis.RedisError, OSError):
        return None
    finally:
        client.close()
    return fleet.Fleet(
        workers=fleet.reports_of(reports),
        heard={queue.decode(): float(at) for queue, at in heard.items()},
        draining=drained_names(),
    )


def drained_names() -> frozenset[str]:
    """The workers that are told to take no new run, heard or not."""
    return frozenset(DrainedWorker.objects.values_list("name", flat=True))


def reward_functions() -> set[str]:
    """Names of the Python functions that can be a reward: those of this machine, and those that
    workers say they have."""
    heard = fleet_state()
    found = set(installed_functions())
    return found.union(*(worker.rewards for worker in (heard.workers if heard else ())))


def nobody_runs_code() -> bool:
    """Whether workers are heard, and none of them may run the code of answers."""
    heard = fleet_state()
    workers = heard.workers if heard else ()
    return bool(workers) and not any(one.runs_code for one in workers)


HOLDERS = (Run.State.QUEUED, Run.State.RUNNING, Run.State.STOPPING)
# Settings of a recipe that need a package of the machine when they are on.
PACKAGE_SETTINGS = {"rollout_workers": "ray", "reward_workers": "ray"}


@dataclass(frozen=True, slots=True)
class Waiting:
    """A run without a slot. `held`: "", or "quota", "needs" or "pause", which let others pass;
    `ahead`: runs that go first; `next_free`: there is a slot for it now."""

    run: Run
    words: str
    held: str = ""
    ahead: int = 0
    next_free: bool = False


@dataclass(slots=True)
class QueueLine:
    """One machine class. `live`: slots of the workers that were heard, None when unknown."""

    queue: str
    live: int | None
    has: list[Run] = field(default_factory=list)
    waiting: list[Waiting] = field(default_factory=list)

    @property
    def slots(self) -> int:
        return max(1, self.live or 0)


def queue_lines(*, fleet: Fleet | None, now: datetime | None = None) -> dict[str, QueueLine]:
    """Every machine class with who has its slots and who waits for them."""
    now = now or timezone.now()
    runs = Run.objects.filter(state__in=HOLDERS).order_by("pk")
    lines = {
        queue: QueueLine(queue, None if fleet is None else fleet.slots(queue))
        for queue in JOB_QUEUES
    }
    waiting: list[Run] = []
    taken: dict[str, list[str]] = {queue: [] for queue in lines}
    used: Counter[str] = Counter()
    for run in runs:
        if run.admitted_at is not None:
            if run.queue in lines:
                lines[run.queue].has.append(run)
                taken[run.queue].append(run.pk)
            used[run.project_id] += run.queue != QUEUE_SHORT
        elif run.state == Run.State.QUEUED and run.queue in lines:
            waiting.append(run)
    quotas = _Quotas(now)
    pauses = retry_pauses(waiting, now)
    known = fleet or Fleet()
    silence = {queue: silence_words(queue, fleet, now) for queue in lines}
    ahead: Counter[str] = Counter()
    placed = known.placed(taken)
    for run in sorted(waiting, key=order):  # over all classes: two of them may share a worker
        queue, line = run.queue, lines[run.queue]
        before = ahead[queue]
        if unmet := needs_unmet(run, known.of_class(queue), known.draining_of(queue)):
            line.waiting.append(Waiting(run, unmet, held="needs", ahead=before))
        elif spent := quotas.spent(run, used[run.project_id]):
            line.waiting.append(Waiting(run, spent, held="quota", ahead=before))
        elif left := pauses.get(run.pk):
            words = f"Its last attempt failed at once: it is tried again in {span(left)}."
            line.waiting.append(Waiting(run, words, held="pause", ahead=before))
        elif not before and known.placed(taken | {queue: [*taken[queue], run.pk]}) > placed:
            placed += 1
            taken[queue].append(run.pk)
            used[run.project_id] += queue != QUEUE_SHORT
            words = silence[queue] or "A slot is free: it starts within seconds."
            line.waiting.append(Waiting(run, words, next_free=True))
        else:
            words = f"{ahead_words(before, line, known)} {silence[queue]}".strip()
            line.waiting.append(Waiting(run, words, ahead=before))
            ahead[queue] += 1
    return lines


AT_ONCE_S = 60.0  # what failed before had hardly begun
LONGEST_PAUSE_S = 300.0


def retry_pauses(waiting: Sequence[Run], now: datetime) -> dict[str, float]:
    """Seconds for which runs that failed at once are not yet tried again: a store or a disk that
    is away for a minute would otherwise use up all their attempts in that minute."""
    again = [run.pk for run in waiting if run.goes_on]
    if not again or not settings.RUN_RETRY_SECONDS:
        return {}
    tries: dict[str, list[RunAttempt]] = {}
    for attempt in RunAttempt.objects.filter(run__in=again).order_by("-number").defer("spec"):
        tries.setdefault(attempt.run_id, []).append(attempt)
    found = {}
    for run, attempts in tries.items():
        pairs = takewhile(lambda pair: _was_in_vain(*pair), pairwise(attempts))
        failed = [earlier for _, earlier in pairs]
        if failed and failed[0].ended_at:
            pause = settings.RUN_RETRY_SECONDS * 2 ** (len(failed) - 1)
            left = min(pause, LONGEST_PAUSE_S) - (now - failed[0].ended_at).total_seconds()
            if left > 0:
                found[run] = left
    return found


def _was_in_vain(later: RunAttempt, earlier: RunAttempt) -> bool:
    """Whether the earlier one failed at once and left no checkpoint for the later."""
    if earlier.outcome != "failed" or earlier.ended_at is None:
        return False
    if (later.resumed_from_step or 0) > (earlier.resumed_from_step or 0):
        return False
    began = earlier.opened_at or earlier.created_at
    return (earlier.ended_at - began).total_seconds() < AT_ONCE_S


class _Quotas:
    """Of every project, read once; hours of a project only where a run of it asks for a GPU."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        rows = RunQuota.objects.values_list("project_id", "runs_at_once", "gpu_hours")
        self._own = {project: (at_once, hours) for project, at_once, hours in rows}
        self._hours: dict[str, float] = {}

    def spent(self, run: Run, at_once: int) -> str:
        """Which quota holds the run back, in words; empty where none does."""
        most_at_once, own_hours = self._own.get(run.project_id, (None, None))
        if run.queue == QUEUE_SHORT:
            return ""
        if most_at_once is not None and at_once >= most_at_once:
            return quota_words(most_at_once)
        most = least(own_hours, settings.PROJECT_GPU_HOURS)
        if most is None or run.queue not in GPU_QUEUES:
            return ""
        if run.project_id not in self._hours:
            self._hours[run.project_id] = gpu_hours_used(run.project_id, now=self._now)
        hours = self._hours[run.project_id]
        return hours_words(hours, most) if hours >= most else ""


def order(run: Run) -> tuple[Any, ...]:
    """The least goes first."""
    return (not run.goes_on, -run.priority, run.place, run.created_at, run.pk)


# --- what a run needs ---


def packages_needed(run: Run) -> list[str]:
    """Packages that its machine must have beyond those of every trainer."""
    layout = LAYOUTS.get(run.layout)
    found = [layout.package] if layout and layout.package else []
    if run.launcher == ACCELERATE:
        found.append("accelerate")
    settings = run.config if isinstance(run.config, dict) else {}
    found += [package for name, package in PACKAGE_SETTINGS.items() if settings.get(name)]
    server = settings.get("server")
    sends = isinstance(server, dict) and server.get("update_weights")
    if sends or settings.get("rollout_engine") == "vllm":
        found.append("vllm")
    return list(dict.fromkeys(found))


def needs_unmet(
    run: Run, workers: Sequence[WorkerReport], draining: Sequence[WorkerReport] = ()
) -> str:
    """Why no live worker of its class can do it; empty where one can, or where none is alive.
    `draining`: those that could and take no new run."""
    if not workers or any(_meets(run, worker) for worker in workers):
        return ""
    able = [worker.name for worker in draining if _meets(run, worker)]
    return f"{_lacks(run, workers)} {_could(able)}".strip()


def _could(able: Sequence[str]) -> str:
    return f"{able[0]} could do it, and is draining." if able else ""


def _lacks(run: Run, workers: Sequence[WorkerReport]) -> str:
    many = len({worker.host for worker in workers})
    whose = f"of the {many} machines" if many > 1 else "machine"
    for package in packages_needed(run):
        if not any(package in worker.versions for worker in workers):
            none = f"none {whose}" if many > 1 else "the machine"
            has = "has it" if many > 1 else "does not have it"
            return f"It needs {package}: {none} of class {run.queue} {has}."
    most = max(len(worker.gpus) for worker in workers)
    if run.processes > most:
        largest = "the largest machine" if many > 1 else "the machine"
        return (
            f"It needs {run.processes} GPUs: {largest} of class {run.queue} has {most or 'none'}."
        )
    return (
        f"No single machine of class {run.queue} has the GPUs and the packages that it needs: "
        f"{run.processes} GPUs, {', '.join(packages_needed(run))}."
    )


def _meets(run: Run, worker: WorkerReport) -> bool:
    """As the launcher decides on the machine (`workers.launchers`): without GPUs the class cpu runs
    a layout in processes of its own, and "every GPU" may be a number that the worker was told."""
    if not all(package in worker.versions for package in packages_needed(run)):
        return False
    if run.layout == ONE:
        return True
    if not worker.gpus:
        return run.processes == EVERY_GPU or run.queue in (QUEUE_CPU, QUEUE_SHORT)
    return run.processes <= len(worker.gpus)


# --- words ---


def quota_words(quota: int) -> str:
    return f"This project's quota of {quota} run{'s' if quota > 1 else ''} at once is used."


def hours_words(hours: float, quota: int) -> str:
    return (
        f"This project has used {hours:,.1f} of its {quota:,} GPU hours of the last 30 days: it "
        "starts when enough of them are older, or when the quota is raised."
    )


def ahead_words(ahead: int, line: QueueLine, fleet: Fleet) -> str:
    if ahead:
        return f"{ahead} run{'s' if ahead > 1 else ''} before it."
    others = classes_beside(line.queue, fleet)
    if others and len(line.has) < line.slots:
        return (
            f"Next in class {line.queue}: its workers also serve {' and '.join(others)}, and are "
            "at runs of those."
        )
    slots = f"the {line.slots} slots" if line.slots > 1 else "the slot"
    are = "are" if line.slots > 1 else "is"
    return f"Next in class {line.queue}: {slots} {are} in use."


def classes_beside(queue: str, fleet: Fleet) -> list[str]:
    """Machine classes that share a worker with this one."""
    found = {other for worker in fleet.of_class(queue) for other in worker.queues}
    return [other for other in JOB_QUEUES if other in found and other != queue]


def silence_words(queue: str, fleet: Fleet | None, now: datetime) -> str:
    """Empty while a worker that takes runs of the class is heard."""
    if fleet is None:
        return "Redis does not answer, so nothing can be sent; it is retried automatically."
    if fleet.of_class(queue):
        return ""
    if draining := fleet.draining_of(queue):
        every = "Every worker" if len(draining) > 1 else "The worker"
        return (
            f"{every} of class {queue} is draining and takes no new run; it starts when one takes "
            "runs again, or another comes."
        )
    at = fleet.heard.get(queue)
    if at is None:
        return f"No worker of class {queue} has reported yet; it starts when one does."
    since = span(max(0.0, now.timestamp() - at))
    return f"No worker of class {queue} has been heard for {since}; it starts when one comes."


def span(seconds: float) -> str:
    """ "40 s", "3 min", "5 h", "2 d" """
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def queue_words(
    *, fleet: Fleet | None = None, lines: dict[str, QueueLine] | None = None
) -> dict[str, str]:
    """Run id -> why it has not begun, for every queued run of the site. Both are read where
    `lines` are not given."""
    if lines is None:
        fleet = fleet_state()
        lines = queue_lines(fleet=fleet)
    found = {one.run.pk: one.words for line in lines.values() for one in line.waiting}
    for line in lines.values():
        silence = silence_words(line.queue, fleet, timezone.now())
        for run in line.has:
            if run.state == Run.State.QUEUED:
                found[run.pk] = _sent_words(run, silence, fleet)
    return found


def _sent_words(run: Run, silence: str, fleet: Fleet | None) -> str:
    if run.dispatched_at is None:
        return silence or "It has a slot and is being sent."
    if silence:
        return f"Sent. {silence}"
    workers = fleet.of_class(run.queue) if fleet is not None else []
    if all(len(worker.runs) >= worker.slots for worker in workers):
        return f"Sent; every worker of class {run.queue} is at another run."
    return f"Sent; a free worker of class {run.queue} takes it."


def why_it_waits(run: Run) -> str:
    """Why a run has not begun; empty once it has."""
    if run.state == Run.State.WAITING:
        rows = RunInput.objects.filter(run=run, checkpoint__isnull=True).select_related("upstream")
        names = [f"“{row.upstream.name}”" for row in rows if row.upstream and row.upstream.is_live]
        return f"It waits for {' and '.join(dict.fromkeys(names))} to finish." if names else ""
    if run.state != Run.State.QUEUED:
        return ""
    if run.admitted_at is None and (row := maintenance_now()):
        return f"The site is closed for maintenance {row}; no run is given a slot until it is open."
    return queue_words().get(run.pk, "")

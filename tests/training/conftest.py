"""Fixtures of the job path."""

import os
import signal
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from pytest_django.fixtures import Settings

from apps.accounts.models import Project, User
from apps.snapshots.models import Snapshot
from apps.training import dispatch, services
from apps.training.models import Run
from apps.training.selectors import queueing
from tests.training.reports import PLAN
from tests.training.stack import QUICK, Stack, wait_until
from workers.contract.fleet import Fleet, WorkerReport
from workers.contract.wire import JOB_QUEUES


@pytest.fixture
def artifacts(tmp_path: Path, settings: Settings) -> Path:
    settings.ARTIFACTS_URL = str(tmp_path / "artifacts")
    return tmp_path / "artifacts"


@pytest.fixture(scope="package")
def running_stack(
    django_db_setup: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    """Started once: a worker takes two seconds to come up."""
    with Stack(tmp_path_factory.mktemp("stack")).running() as stack:
        yield stack


@pytest.fixture
def stack(running_stack: Stack, transactional_db: None, settings: Settings) -> Iterator[Stack]:
    settings.ARTIFACTS_URL = str(running_stack.artifacts)
    for name, value in QUICK.items():
        setattr(settings, name, value)
    running_stack.revive()
    yield running_stack
    for pid in running_stack.trainers():
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def drill(project: Project, tmp_path: Path) -> Callable[..., Run]:
    """Launch a drill; keyword arguments go into its configuration."""

    def launch(queue: str = "cpu", **config: Any) -> Run:
        config.setdefault("witness", str(tmp_path / "witness.jsonl"))
        given = {"kind": "drill", "name": "a drill", "config": config, "inputs": {}, "seed": 3}
        return services.run_launch(project=project, queue=queue, **given)

    return launch


def worker_make(name: str, **more: Any) -> WorkerReport:
    """A worker as the fleet reports it; keyword arguments replace what it says."""
    at = timezone.now().timestamp()
    given = {"host": name.partition("@")[2], "pid": 1, "queues": ("cpu",), "at": at} | more
    return WorkerReport(name=name, **given)


@pytest.fixture
def held(drill: Callable[..., Run], tmp_path: Path) -> Callable[..., Run]:
    """Launch a drill and wait until it stands still after step 12 of its first attempt."""

    def launch(**changes: Any) -> Run:
        run = drill(**PLAN | {"hold_file": str(tmp_path / "go on")} | changes)
        there = Run.objects.filter(pk=run.pk, step=12)
        wait_until(there.exists, seconds=120, what="step 12")  # workers may be just starting
        return run

    return launch


@pytest.fixture
def go_on(tmp_path: Path) -> Callable[[], None]:
    return lambda: (tmp_path / "go on").touch()


class FakeWire:
    """The wire to the workers, as far as services use it: records what is said, answers what a
    test says it answers. The real one is proved in test_job_path.py."""

    def __init__(self) -> None:
        self.jobs: list[dict[str, Any]] = []
        self.commands: list[tuple[str, str]] = []
        self.acks: list[tuple[str, int, int]] = []
        self.takes_jobs = True
        self.standings: dict[str, dispatch.Standing] = {}
        self.reachable = True
        self.queued: set[tuple[str, int]] = set()
        self.workers = [worker_make("train@box", slots=100, queues=JOB_QUEUES)]
        self.heard: dict[str, float] = {}
        self.draining: set[str] = set()

    def job_send(self, spec: dict[str, Any], *, created_at: float) -> bool:
        if self.takes_jobs:
            self.jobs.append(spec)
        return self.takes_jobs

    def command_send(self, run: str, command: str) -> bool:
        self.commands.append((run, command))
        return self.reachable

    def ack_send(self, run: str, attempt: int, seq: int) -> None:
        self.acks.append((run, attempt, seq))

    def attempt_fence(self, run: str, attempt: int) -> bool | None:
        standing = self.standing(run)
        if standing is None:
            return None
        if standing.fence >= attempt:
            return False
        self.standings[run] = dispatch.Standing(standing.leased, attempt)
        return True

    def standing(self, run: str) -> dispatch.Standing | None:
        return self.standings.get(run, dispatch.Standing(False, 0)) if self.reachable else None

    def jobs_waiting(self, queue: str) -> set[tuple[str, int]] | None:
        return self.queued if self.reachable else None

    def fleet_state(self) -> Fleet | None:
        if not self.reachable:
            return None
        return Fleet(tuple(self.workers), dict(self.heard), queueing.drained_names())

    def draining_send(self, names: Collection[str]) -> bool:
        self.draining = set(names)
        return self.reachable

    def claimed(self, run: Run, *, leased: bool = True) -> None:
        """A worker has started the run's current attempt."""
        self.standings[run.pk] = dispatch.Standing(leased, run.attempt)


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> FakeWire:
    fake = FakeWire()
    monkeypatch.setattr(queueing, "fleet_state", fake.fleet_state)
    for name in (
        "job_send",
        "command_send",
        "ack_send",
        "attempt_fence",
        "standing",
        "jobs_waiting",
        "draining_send",
    ):
        monkeypatch.setattr(dispatch, name, getattr(fake, name))
    return fake


@pytest.fixture
def commits(
    django_capture_on_commit_callbacks: Callable[..., Any],
) -> Callable[..., AbstractContextManager[Any]]:
    """`with commits():` runs what waits for the commit, which a test's transaction never sees."""
    return partial(django_capture_on_commit_callbacks, execute=True)


@pytest.fixture
def run(
    project: Project, wire: FakeWire, artifacts: Path, commits: Callable[..., Any], emil: User
) -> Run:
    """A drill that was launched and sent, and that a worker has claimed."""
    with commits():
        run = services.run_launch(
            project=project, kind="drill", name="one", config={}, inputs={}, seed=3, user=emil
        )
    run.refresh_from_db()
    wire.claimed(run)
    return run


@pytest.fixture
def snapshot_make(project: Project) -> Callable[..., Snapshot]:
    def make(
        kind: str,
        state: str = "frozen",
        in_project: Project | None = None,
        rows: dict[str, int] | None = None,
    ) -> Snapshot:
        return Snapshot.objects.create(
            project=in_project or project,
            name=f"some {kind}",
            kind=kind,
            state=state,
            uri="snapshots/x",
            sha256="0" * 64,
            counts={"rows": rows or {"train": 8, "dev": 2}},
            frozen_at=timezone.now() if state == "frozen" else None,
        )

    return make

"""Whatever is killed, the run finishes, shows every step exactly once, and never had two trainers.

`kill -9` of each part in turn, while a drill runs through the real broker, workers and database.
"""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from apps.accounts.models import Project
from apps.training import services
from apps.training.models import Artifact, Run, RunAttempt, RunEvent
from tests.training.link import Link, link_to
from tests.training.reports import STEPS, assert_whole, finish, points_said, points_stored
from tests.training.stack import (
    LEASE_S,
    QUICK,
    Process,
    Stack,
    celery,
    redis_kill_and_restart,
    wait_until,
    witnessed,
)
from workers.artifacts import Store

pytestmark = [pytest.mark.stack, pytest.mark.spread]


def test_a_killed_trainer_is_replaced_from_its_checkpoint(
    stack: Stack, held: Callable[..., Run], tmp_path: Path
) -> None:
    run = held()
    (trainer,) = stack.trainers()
    os.kill(trainer, signal.SIGKILL)
    run = finish(run)
    assert_whole(run, tmp_path / "witness.jsonl", resumed_from=[10])
    assert RunAttempt.objects.get(run=run, number=1).outcome == "failed"


def test_a_killed_worker_takes_its_trainer_along_and_another_worker_continues(
    stack: Stack, held: Callable[..., Run], tmp_path: Path
) -> None:
    run = held()
    stack.worker.kill()
    wait_until(lambda: not stack.trainers(), seconds=5, what="the death of the trainer")
    stack.worker.start()
    run = finish(run)
    assert_whole(run, tmp_path / "witness.jsonl", resumed_from=[10])
    assert RunAttempt.objects.get(run=run, number=1).outcome == "lost"


def test_a_killed_redis_costs_nothing_when_it_is_back_within_the_lease(
    stack: Stack, held: Callable[..., Run], tmp_path: Path, go_on: Callable[[], None]
) -> None:
    run = held()
    redis_kill_and_restart(pause=0.5)
    go_on()
    assert_whole(finish(run), tmp_path / "witness.jsonl", resumed_from=[])


def test_a_redis_away_for_longer_than_the_lease_ends_the_trainer_after_a_checkpoint(
    stack: Stack, held: Callable[..., Run], tmp_path: Path
) -> None:
    run = held(checkpoint_every=1000)
    redis_kill_and_restart(pause=LEASE_S + 0.5)
    assert not stack.trainers()
    run = finish(run)
    assert_whole(run, tmp_path / "witness.jsonl", resumed_from=[12])
    attempts = [r["attempt"] for r in witnessed(tmp_path / "witness.jsonl") if r["what"] == "end"]
    assert attempts == [1, 2], "the first trainer ended by itself, having saved"


def test_a_killed_event_worker_loses_no_event(
    stack: Stack, held: Callable[..., Run], tmp_path: Path, go_on: Callable[[], None]
) -> None:
    run = held()
    stack.events.kill()
    go_on()
    wait_until(lambda: len(witnessed(tmp_path / "witness.jsonl")) == 2, what="the trainer's end")
    stack.events.start()
    assert_whole(finish(run), tmp_path / "witness.jsonl", resumed_from=[])


# A machine that is cut off, or dies whole, loses nothing: every event once, never two trainers.
#
# The machine is a worker of its own that reaches the broker over a network which can be broken, and
# whose disk is not the artifact store's.


class Machine:
    """Another worker, behind a link, with a disk of its own."""

    def __init__(self, stack: Stack, link: Link, disk: Path, output: Path) -> None:
        self.link = link
        self.disk = disk
        away = {"REDIS_URL": link.url, "WORK_DIR": str(disk), "DATABASE_URL": ""}
        store = {"PYTHONUNBUFFERED": "1", "ARTIFACTS_URL": str(stack.artifacts)}
        self.worker = Process(celery("workers.celery", "gpu,cpu", "away"), away | store, output)

    def spool(self, run: Run) -> Path:
        return self.disk / run.pk / "attempt-1" / "events.jsonl"

    def trainers(self) -> list[int]:
        """Process ids of trainers whose folder is on this machine."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (process / "cmdline").read_bytes()
                if b"workers.train\0" in words and str(self.disk).encode() in words:
                    found.append(int(process.name))
        return found

    def log(self) -> str:
        return self.worker.output.read_text()

    def die(self) -> None:
        """All at once, with its disk."""
        trainers = self.trainers()
        self.worker.close()
        for pid in trainers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.disk)


@pytest.fixture
def machine(stack: Stack, tmp_path: Path) -> Iterator[Machine]:
    """The only worker, until `stack.worker.start()`."""
    stack.worker.close()
    memory = Path("/dev/shm")  # noqa: S108 — another disk than the store's
    disk = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    with link_to(os.environ["REDIS_URL"]) as link:
        machine = Machine(stack, link, disk, tmp_path / "machine.log")
        machine.worker.start()
        yield machine
        machine.worker.close()
    shutil.rmtree(disk, ignore_errors=True)


def assert_once(stack: Stack, run: Run) -> None:
    """Every event of the first attempt is in the database, once, and nothing else is."""
    spool = stack.artifacts / f"runs/{run.pk}/attempt-1/events.jsonl"
    said = [json.loads(line) for line in spool.read_text().splitlines()]
    assert [event["seq"] for event in said] == list(range(1, len(said) + 1))
    stored = RunEvent.objects.filter(run=run, attempt=1).order_by("seq")
    others = [event["seq"] for event in said if event["type"] != "Metrics"]
    assert list(stored.values_list("seq", flat=True)) == others
    assert points_stored(run, attempt=1) == points_said(said)


def test_a_machine_whose_line_breaks_trains_on_and_its_events_arrive_once(
    stack: Stack,
    machine: Machine,
    held: Callable[..., Run],
    go_on: Callable[[], None],
    settings: Settings,
    tmp_path: Path,
) -> None:
    settings.RUN_LEASE_SECONDS = 120  # longer than the line is broken, on any machine
    run = held()
    machine.link.cut()
    go_on()
    wait_until(lambda: '"Finished"' in machine.spool(run).read_text(), what="the end of training")
    wait_until(lambda: "Redis does not answer" in machine.log(), what="a call that gave up")
    run.refresh_from_db()
    assert (run.state, run.step) == ("running", 12), "what was said meanwhile arrived nowhere"
    machine.link.repair()
    run = finish(run)
    assert_whole(run, tmp_path / "witness.jsonl", resumed_from=[])
    assert_once(stack, run)
    wait_until(lambda: not machine.spool(run).exists(), what="a tidy machine")


def test_a_machine_cut_off_for_longer_than_its_lease_gives_the_run_away_and_changes_nothing_later(
    stack: Stack, machine: Machine, held: Callable[..., Run], tmp_path: Path
) -> None:
    run = held()
    machine.link.cut()
    wait_until(lambda: not machine.trainers(), what="a trainer that ended by itself")
    stack.worker.start()
    run = finish(run)
    second = RunAttempt.objects.get(run=run, number=2)
    assert second.resumed_from_step in (10, 12), "12 when the machine could still leave its spool"
    assert_whole(run, tmp_path / "witness.jsonl", resumed_from=[second.resumed_from_step])
    machine.link.repair()
    wait_until(lambda: not machine.spool(run).exists(), what="the rest of its events")
    assert_once(stack, run)
    run.refresh_from_db()
    assert (run.state, run.attempt, run.step) == ("finished", 2, STEPS)


def test_a_run_goes_on_elsewhere_when_its_machine_dies_whole_but_not_for_ever(
    stack: Stack,
    machine: Machine,
    held: Callable[..., Run],
    settings: Settings,
) -> None:
    settings.RUN_MAX_ATTEMPTS = 2
    run = held(fault_attempts=2)
    machine.die()
    stack.worker.start()
    again = RunAttempt.objects.filter(run=run, number=2)
    wait_until(
        lambda: Run.objects.filter(pk=run.pk, attempt=2, state="running", step=12).exists(),
        meanwhile=services.runs_sweep,
        what="the second attempt at work elsewhere",
    )
    assert again.get().resumed_from_step == 10
    assert RunAttempt.objects.get(run=run, number=1).outcome == "lost"
    stack.worker.close()
    for pid in stack.trainers():
        os.kill(pid, signal.SIGKILL)
    run = finish(run)
    assert (run.state, run.failure_kind, run.fault, run.attempt) == ("failed", "lost", "machine", 2)
    assert run.failure_message


# A check works while a training occupies the main queue.


@pytest.fixture
def short_worker(stack: Stack) -> Iterator[Process]:
    """As `manage.py up` runs one beside the worker of the main queues."""
    environment = {
        "ARTIFACTS_URL": str(stack.artifacts),
        "WORK_DIR": str(stack.work),
        "DATABASE_URL": "",
        "RUN_LEASE_SECONDS": str(QUICK["RUN_LEASE_SECONDS"]),
        "OMP_NUM_THREADS": "1",
    }
    output = stack.artifacts.parent / "short.log"
    process = Process(celery("workers.celery", "short", "short"), environment, output)
    process.start()
    yield process
    process.close()


def rollouts_of(run: Run, stack: Stack) -> Artifact:
    rows = [
        {
            "step": 1 + i // 50,
            "prompt": [{"role": "user", "content": f"prompt {i}"}],
            "response": "the same answer",
            "tokens": 3,
            "reward": 0.5,
        }
        for i in range(200)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    Store(str(stack.artifacts)).write_bytes("kept/rollouts.jsonl", text)
    return Artifact.objects.create(
        run=run,
        attempt=1,
        seq=10_000,
        name="rollouts.jsonl",
        uri="kept/rollouts.jsonl",
        sha256=hashlib.sha256(text).hexdigest(),
    )


def test_a_check_of_a_live_run_does_not_wait_for_it(
    stack: Stack, short_worker: Process, drill: Callable[..., Run], project: Project
) -> None:
    training = drill(steps=100_000, step_seconds=0.05)
    waiting = drill(steps=5)
    wait_until(lambda: Run.objects.get(pk=training.pk).step >= 3, what="a training at work")
    check = services.run_launch(
        project=project,
        kind="check",
        name="Rewards",
        config={"check": "reward_plot"},
        inputs={"rollouts": rollouts_of(training, stack)},
        queue="cpu",
        about=training,
    )
    assert check.queue == "short", "whatever is asked for"
    wait_until(
        lambda: not Run.objects.get(pk=check.pk).is_live,
        meanwhile=services.runs_sweep,
        seconds=150,
        what="an answer",
    )
    check.refresh_from_db()
    assert check.summary["outcome"] == "confirms", (check.failure_message, stack.log()[-2000:])
    assert "200 is 0.50" in check.summary["words"]
    assert Run.objects.get(pk=training.pk).state == "running"
    assert Run.objects.get(pk=waiting.pk).state == "queued", "the main queue is occupied"

"""Whatever is killed, the run finishes, shows every step exactly once, and never had two trainers.

`kill -9` of each part in turn, while a drill runs through the real broker, workers and database.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from apps.training import selectors, services
from apps.training.models import Run, RunAttempt
from tests.training.stack import (
    LEASE_S,
    Stack,
    redis_kill_and_restart,
    wait_until,
    witnessed,
)

pytestmark = pytest.mark.stack
STEPS = 40
PLAN = {"steps": STEPS, "step_seconds": 0.01, "checkpoint_every": 5, "hold_after": 12}


def undisturbed(seed: int = 3) -> list[float]:
    """The drill's metric as a run without any trouble shows it, by another route than the run."""
    state, values = seed, []
    for step in range(1, STEPS + 1):
        state = (state * 6364136223846793005 + 1442695040888963407 + step) % 2**64
        values.append(state / (2**64 - 1))
    return values


@pytest.fixture
def held(drill: Callable[..., Run], tmp_path: Path) -> Callable[..., Run]:
    """Launch a drill and wait until it stands still after step 12 of its first attempt."""

    def launch(**changes: Any) -> Run:
        run = drill(**PLAN | {"hold_file": str(tmp_path / "go on")} | changes)
        wait_until(lambda: Run.objects.filter(pk=run.pk, step=12).exists(), what="step 12")
        return run

    return launch


@pytest.fixture
def go_on(tmp_path: Path) -> Callable[[], None]:
    return lambda: (tmp_path / "go on").touch()


def finish(run: Run) -> Run:
    """Let the sweep do its work, as the scheduler would, until the run has ended."""
    wait_until(
        lambda: Run.objects.filter(pk=run.pk, state__in=Run.ENDED_STATES).exists(),
        meanwhile=services.runs_sweep,
        seconds=30,
        what="the end of the run",
    )
    return Run.objects.get(pk=run.pk)


def assert_whole(run: Run, witness: Path, *, resumed_from: list[int]) -> None:
    """Finished, with one attempt more than times resumed; no step missing or twice, each value as
    if undisturbed; and by the trainers' own lock no two of them ever lived at once."""
    assert run.state == "finished", (run.failure_kind, run.failure_message)
    points = selectors.metric_series(run=run)["drill/value"]
    assert [step for step, _ in points] == list(range(1, STEPS + 1))
    assert [value for _, value in points] == pytest.approx(undisturbed())
    attempts = RunAttempt.objects.filter(run=run)
    assert [a.resumed_from_step for a in attempts] == [None, *resumed_from]
    assert run.attempt == len(attempts)
    records = witnessed(witness)
    assert [r["what"] for r in records if r["what"] != "end"] == ["start"] * len(attempts)
    assert len({r["pid"] for r in records}) == len(attempts)


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

"""Whatever is killed, the run finishes, shows every step exactly once, and never had two trainers.

`kill -9` of each part in turn, while a drill runs through the real broker, workers and database.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path

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
PLAN = {"steps": STEPS, "step_seconds": 0.05, "checkpoint_every": 5}


def undisturbed(seed: int = 3) -> list[float]:
    """The drill's metric as a run without any trouble shows it, by another route than the run."""
    state, values = seed, []
    for step in range(1, STEPS + 1):
        state = (state * 6364136223846793005 + 1442695040888963407 + step) % 2**64
        values.append(state / (2**64 - 1))
    return values


def reach(run: Run, step: int, attempt: int = 1) -> None:
    wait_until(
        lambda: Run.objects.filter(pk=run.pk, step__gte=step, attempt=attempt).exists(),
        what=f"step {step} of attempt {attempt}",
    )


def finish(run: Run) -> Run:
    """Let the sweep do its work, as the scheduler would, until the run has ended."""
    wait_until(
        lambda: Run.objects.filter(pk=run.pk, state__in=Run.ENDED_STATES).exists(),
        meanwhile=services.runs_sweep,
        seconds=30,
        what="the end of the run",
    )
    return Run.objects.get(pk=run.pk)


def assert_whole(run: Run, witness: Path, *, attempts: int) -> None:
    """Finished after so many attempts, no step missing or twice, each value as if undisturbed,
    and the trainers' own lock says that no two of them ever lived at once."""
    assert run.state == "finished", (run.failure_kind, run.failure_message)
    points = selectors.metric_series(run=run)["drill/value"]
    assert [step for step, _ in points] == list(range(1, STEPS + 1))
    assert [value for _, value in points] == pytest.approx(undisturbed())
    records = witnessed(witness)
    assert [r["what"] for r in records if r["what"] != "end"] == ["start"] * attempts
    assert len({r["pid"] for r in records}) == attempts
    assert RunAttempt.objects.filter(run=run).count() == run.attempt == attempts
    for before, after in zip(
        RunAttempt.objects.filter(run=run)[: attempts - 1],
        RunAttempt.objects.filter(run=run)[1:],
        strict=True,
    ):
        assert after.resumed_from_step, f"attempt {after.number} started over"
        assert after.resumed_from_step >= (before.resumed_from_step or 0)


def test_a_killed_trainer_is_replaced_from_its_checkpoint(
    stack: Stack, drill: Callable[..., Run], tmp_path: Path
) -> None:
    run = drill(**PLAN)
    reach(run, 12)
    (trainer,) = stack.trainers()
    os.kill(trainer, signal.SIGKILL)
    run = finish(run)
    assert_whole(run, tmp_path / "witness.jsonl", attempts=2)
    assert RunAttempt.objects.get(run=run, number=1).outcome == "failed"


def test_a_killed_worker_takes_its_trainer_along_and_another_worker_continues(
    stack: Stack, drill: Callable[..., Run], tmp_path: Path
) -> None:
    run = drill(**PLAN)
    reach(run, 12)
    stack.worker.kill()
    wait_until(lambda: not stack.trainers(), seconds=2, what="the death of the trainer")
    stack.worker.start()
    run = finish(run)
    assert_whole(run, tmp_path / "witness.jsonl", attempts=2)
    assert RunAttempt.objects.get(run=run, number=1).outcome == "lost"


def test_a_killed_redis_costs_nothing_when_it_is_back_within_the_lease(
    stack: Stack, drill: Callable[..., Run], tmp_path: Path
) -> None:
    run = drill(**PLAN)
    reach(run, 12)
    redis_kill_and_restart(pause=0.5)
    assert_whole(finish(run), tmp_path / "witness.jsonl", attempts=1)


def test_a_redis_away_for_longer_than_the_lease_ends_the_trainer_after_a_checkpoint(
    stack: Stack, drill: Callable[..., Run], tmp_path: Path
) -> None:
    run = drill(**PLAN | {"step_seconds": 0.12, "checkpoint_every": 1000})
    reach(run, 5)
    redis_kill_and_restart(pause=LEASE_S + 0.5)
    assert not stack.trainers()
    run = finish(run)
    assert_whole(run, tmp_path / "witness.jsonl", attempts=2)
    (witness_end,) = [r for r in witnessed(tmp_path / "witness.jsonl") if r["what"] == "end"][:1]
    assert witness_end["attempt"] == 1, "it ended by itself, having saved: nothing else did"


def test_a_killed_event_worker_loses_no_event(
    stack: Stack, drill: Callable[..., Run], tmp_path: Path
) -> None:
    run = drill(**PLAN)
    reach(run, 12)
    for _ in range(2):
        stack.events.kill()
        stack.events.start()
    assert_whole(finish(run), tmp_path / "witness.jsonl", attempts=1)

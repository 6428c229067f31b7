"""Whatever is killed, the run finishes, shows every step exactly once, and never had two trainers.

`kill -9` of each part in turn, while a drill runs through the real broker, workers and database.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from apps.training.models import Run, RunAttempt
from tests.training.drilled import assert_whole, finish
from tests.training.stack import LEASE_S, Stack, redis_kill_and_restart, wait_until, witnessed

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

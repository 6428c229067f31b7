"""A trainer as a process: what ends with it, and what does not."""

import secrets
import sys
from pathlib import Path

import pytest

from tests.workers.supervised import lives
from workers.supervisor.child import Trainer

SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
# What a data loader or a rank does: a session of its own, which no signal to a group reaches.
LEAVES_ONE = [
    *(sys.executable, "-S", "-c"),
    "import subprocess, sys, time;"
    "child = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)'],"
    "    start_new_session=True);"
    "print(child.pid, flush=True); time.sleep(600)",
]


def started(folder: Path, run: str, attempt: int, argv: list[str] = SLEEP) -> Trainer:
    return Trainer(argv, run=run, attempt=attempt, output=folder / f"{run}-{attempt}.log")


@pytest.fixture
def run() -> str:
    return f"run-{secrets.token_hex(4)}"


def test_an_attempt_that_is_ended_late_leaves_the_next_one_alone(tmp_path: Path, run: str) -> None:
    """Both on one machine: the first has lost its lease and hears of it only now."""
    first = started(tmp_path, run, 1)
    second = started(tmp_path, run, 2)
    try:
        assert first.wait(60) is not None, "the second began by ending what was left of the first"
        first.kill()
        assert second.wait(0.5) is None, "the second is not the first one's to end"
    finally:
        second.kill()


def test_what_leads_a_session_of_its_own_ends_with_its_attempt(tmp_path: Path, run: str) -> None:
    trainer = started(tmp_path, run, 3, LEAVES_ONE)
    while not (printed := trainer.tail()):
        assert trainer.wait(0.02) is None
    trainer.kill()
    assert not lives(int(printed[0]))

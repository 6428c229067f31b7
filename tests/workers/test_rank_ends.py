"""Which of several failing ranks the run's failure is told of."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from workers.contract import Failed, Fault
from workers.contract.events import RecipeError
from workers.rank_ends import RANKS_FILE, end_of_ranks, leave_note

GLOO = RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1")
DATA = RecipeError("bad_data", Fault.DATA, "Row 7 cannot be read.")
BUG = AssertionError("planted")


@pytest.fixture
def note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let a rank leave its note at second `at`."""

    def leave(
        rank: int, error: BaseException | None, *, at: float, step: int | None = None
    ) -> None:
        monkeypatch.setattr("time.time", lambda: at)
        kind = getattr(error, "kind", "bug") if error else "terminated"
        fault = getattr(error, "fault", Fault.BUG) if error else Fault.MACHINE
        failure = Failed(kind, fault, str(error or "Told to end."), step=step)
        leave_note(tmp_path, failure, error, rank=rank, world=3)

    return leave


@pytest.fixture
def ended(tmp_path: Path) -> Any:
    """What the launcher saw: (rank, status, second) in its order."""

    def write(*statuses: tuple[int, int, int]) -> None:
        said = [{"rank": r, "status": s, "pid": 1, "at": at} for r, s, at in statuses]
        (tmp_path / RANKS_FILE).write_text(json.dumps(said))

    return write


def end(folder: Path, **facts: Any) -> Failed:
    failure = end_of_ranks(folder, **{"out_of_memory": False} | facts)
    assert failure is not None
    return failure


def test_the_error_of_one_rank_is_the_runs_whatever_the_others_met_because_of_it(
    tmp_path: Path, note: Any, ended: Any
) -> None:
    note(2, DATA, at=10.0)
    note(0, GLOO, at=10.2, step=41)
    note(1, None, at=10.4)
    ended((2, 1, 10), (0, 1, 10), (1, 1, 10))
    failure = end(tmp_path)
    assert (failure.kind, failure.fault, failure.retryable) == ("bad_data", "data", False)
    assert failure.message == "Rank 2 of 3: Row 7 cannot be read."
    assert failure.step == 41, "only the first rank knows the step"


def test_of_two_errors_the_first_is_told(tmp_path: Path, note: Any) -> None:
    note(0, BUG, at=11.0)
    note(1, DATA, at=10.0)
    assert end(tmp_path).kind == "bad_data"


def test_an_error_that_all_ranks_met_is_told_of_none(tmp_path: Path, note: Any) -> None:
    for rank in range(3):
        note(rank, DATA, at=10.0 + rank)
    assert end(tmp_path).message == "Row 7 cannot be read."


def test_a_killed_rank_is_named_and_the_run_may_go_on(
    tmp_path: Path, note: Any, ended: Any
) -> None:
    note(0, GLOO, at=10.0)
    note(2, BUG, at=10.1)  # some library's way to say that a rank is missing
    ended((0, 1, 10), (1, -signal.SIGKILL, 10), (2, 1, 10))
    failure = end(tmp_path)
    assert (failure.kind, failure.fault, failure.retryable) == ("rank_lost", "machine", True)
    assert "Rank 1 of 3 was killed from outside (SIGKILL)" in failure.message
    memory = end(tmp_path, out_of_memory=True)
    assert (memory.kind, memory.retryable) == ("out_of_memory", True)
    assert "ended Rank 1 of 3" in memory.message


def test_ranks_that_the_launcher_killed_in_the_end_are_not_the_cause(
    tmp_path: Path, note: Any, ended: Any
) -> None:
    note(1, DATA, at=10.0)
    ended((1, 1, 10), (0, -signal.SIGKILL, 40))
    assert end(tmp_path).kind == "bad_data"


@pytest.mark.parametrize(
    ("number", "kind"), [(signal.SIGSEGV, "crashed"), (signal.SIGABRT, "bad_data")]
)
def test_a_crash_comes_first_but_for_an_abort_which_may_follow_another_ranks_end(
    tmp_path: Path, note: Any, ended: Any, number: int, kind: str
) -> None:
    note(0, DATA, at=10.0)
    ended((0, 1, 10), (1, -number, 11))
    assert end(tmp_path).kind == kind


def test_a_rank_that_ended_without_a_word_is_named(tmp_path: Path, note: Any, ended: Any) -> None:
    note(0, GLOO, at=10.0)
    ended((0, 1, 10), (1, 7, 10))
    failure = end(tmp_path)
    assert (failure.kind, failure.retryable) == ("exited", True)
    assert failure.message == "Rank 1 of 3 ended with status 7 and without a word."


def test_ranks_that_were_all_told_to_end_were_terminated(tmp_path: Path, note: Any) -> None:
    note(0, None, at=10.0)
    note(1, None, at=10.0)
    assert end(tmp_path).kind == "terminated"


def test_ranks_that_lost_each_other_say_so(tmp_path: Path, note: Any) -> None:
    note(0, None, at=10.0)
    note(1, GLOO, at=10.0)
    failure = end(tmp_path)
    assert (failure.kind, failure.fault, failure.retryable) == ("rank_lost", "machine", True)
    assert "The ranks lost each other. Rank 1 of 3: [gloo" in failure.message


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"rank": 0}]'])
def test_what_cannot_be_read_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / RANKS_FILE).write_text(text)
    (tmp_path / "rank-0.json").write_text(text)
    assert end_of_ranks(tmp_path, out_of_memory=False) is None

"""`python -m workers.train`: exactly one outcome, whatever happens, and it is an event."""

import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.workers.attempt import drill_spec, events_in, points, trainer_start
from workers.contract import (
    Cancelled,
    CheckpointSaved,
    Envelope,
    Failed,
    Fault,
    Finished,
    Metrics,
    Opened,
    Resume,
)
from workers.control import CANCEL, CONTROL_FILE, STOP, Command, command_read, command_write
from workers.train import failure_of, recipe_of

FOR_EVER = {"steps": 100_000, "step_seconds": 0.02}


def until(condition: Callable[[], Any], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def run_through(folder: Path, config: dict[str, Any], **spec: Any) -> tuple[int, list[Envelope]]:
    with trainer_start(drill_spec(folder, config, **spec), folder) as process:
        return process.wait(20), events_in(folder)


@pytest.fixture
def live(tmp_path: Path) -> Any:
    """A trainer that has taken its first steps."""
    with trainer_start(drill_spec(tmp_path, FOR_EVER), tmp_path, "--lifeline", "0") as process:
        until(lambda: len(events_in(tmp_path)) > 3)
        yield process
        process.kill()


def test_it_opens_first_and_finishes_last(tmp_path: Path) -> None:
    status, events = run_through(tmp_path, {"steps": 6, "step_seconds": 0})
    assert status == 0
    assert [e.seq for e in events] == list(range(1, len(events) + 1))
    assert isinstance(events[0].event, Opened)
    assert events[0].event.environment["versions"]["torch"]
    last = events[-1].event
    assert isinstance(last, Finished)
    assert (last.step, last.stopped_early, last.summary["steps"]) == (6, False, 6)
    assert sorted(points(events)) == [1, 2, 3, 4, 5, 6]


def test_a_resumed_attempt_continues_as_if_it_had_never_stopped(tmp_path: Path) -> None:
    _, whole = run_through(tmp_path / "whole", {"steps": 12, "step_seconds": 0})
    _, first = run_through(tmp_path / "cut", {"steps": 7, "step_seconds": 0})
    saved = [e.event for e in first if isinstance(e.event, CheckpointSaved)][-1]
    resume = Resume(saved.uri, saved.sha256, saved.step)
    (tmp_path / "cut" / "events.jsonl").unlink()
    _, second = run_through(
        tmp_path / "cut", {"steps": 12, "step_seconds": 0}, attempt=2, resume=resume
    )
    assert second[0].event.resumed_from_step == 7
    assert points(first) | points(second) == points(whole)
    assert sorted(points(second)) == [8, 9, 10, 11, 12]


@pytest.mark.parametrize(
    ("config", "kind", "fault"),
    [
        ({"fault": "bug"}, "bug", "bug"),
        ({"fault": "data"}, "bad_data", "data"),
        ({"fault": "oom"}, "out_of_memory", "machine"),
        ({"stepz": 3}, "bad_config", "configuration"),
    ],
)
def test_a_failure_says_its_kind_and_whose_turn_it_is(
    tmp_path: Path, config: dict[str, Any], kind: str, fault: str
) -> None:
    status, events = run_through(tmp_path, config)
    last = events[-1].event
    assert status == 1
    assert (type(last), last.kind, last.fault) == (Failed, kind, fault)
    assert not last.retryable
    assert ("AssertionError" in last.traceback) == (kind == "bug")


@pytest.mark.parametrize("kind", ["nonsense", "settings", "../drill", "presets"])
def test_a_kind_that_is_no_recipe_is_the_configurations_fault(tmp_path: Path, kind: str) -> None:
    _, events = run_through(tmp_path, {}, kind=kind)
    assert (events[-1].event.kind, events[-1].event.fault) == ("unknown_kind", "configuration")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(name: str) -> None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr("importlib.import_module", lacking)
    with pytest.raises(Exception, match="'torch'") as failure:
        recipe_of("sft")
    assert failure_of(failure.value).kind == "missing_package"


def test_a_damaged_checkpoint_is_the_datas_fault(tmp_path: Path) -> None:
    resume = Resume("runs/x/attempt-1/checkpoints/step-5", "0" * 64, 5)
    _, events = run_through(tmp_path, {}, attempt=2, resume=resume)
    assert (events[-1].event.kind, events[-1].event.fault) == ("damaged_input", "data")


class OutOfMemoryError(RuntimeError):
    """Named as torch names it."""


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryError(), "out_of_memory"),
        (OutOfMemoryError("CUDA"), "out_of_memory"),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried"), "out_of_memory"),
        (RuntimeError("CUDA error: out of memory"), "out_of_memory"),
        (RuntimeError("shape mismatch"), "bug"),
        (OSError(28, "No space left on device"), "disk_full"),
        (OSError(2, "No such file"), "bug"),
        (SystemExit(3), "bug"),
        (KeyboardInterrupt(), "terminated"),
    ],
)
def test_an_error_is_given_its_kind(error: BaseException, kind: str) -> None:
    failure = failure_of(error, step=4)
    assert (failure.kind, failure.step) == (kind, 4)
    assert (failure.fault == Fault.BUG) == (kind == "bug")


def test_a_stop_saves_and_finishes_early(live: subprocess.Popen, tmp_path: Path) -> None:
    command_write(tmp_path / CONTROL_FILE, Command(STOP))
    live.send_signal(signal.SIGTERM)
    assert live.wait(5) == 0
    *_, saved, last = [e.event for e in events_in(tmp_path) if not isinstance(e.event, Metrics)]
    assert (type(saved), type(last), last.stopped_early) == (CheckpointSaved, Finished, True)
    assert saved.step == last.step


def test_a_command_is_found_without_any_signal(live: subprocess.Popen, tmp_path: Path) -> None:
    command_write(tmp_path / CONTROL_FILE, Command(CANCEL))
    assert live.wait(5) == 3
    last = events_in(tmp_path)[-1].event
    assert isinstance(last, Cancelled)
    assert last.step > 0
    assert not last.by_force


def test_a_stop_on_the_supervisors_own_account_ends_as_its_failure(
    live: subprocess.Popen, tmp_path: Path
) -> None:
    reason = Failed("lease_lost", Fault.MACHINE, "No line.", retryable=True)
    command_write(tmp_path / CONTROL_FILE, Command(STOP, reason))
    live.send_signal(signal.SIGTERM)
    assert live.wait(5) == 1
    *_, saved, last = [e.event for e in events_in(tmp_path) if not isinstance(e.event, Metrics)]
    assert isinstance(saved, CheckpointSaved), "a checkpoint comes first"
    assert (last.kind, last.retryable, last.step) == ("lease_lost", True, saved.step)


def test_an_unexplained_sigterm_saves_and_says_terminated(
    live: subprocess.Popen, tmp_path: Path
) -> None:
    live.send_signal(signal.SIGTERM)
    assert live.wait(5) == 1
    *_, saved, last = [e.event for e in events_in(tmp_path) if not isinstance(e.event, Metrics)]
    assert isinstance(saved, CheckpointSaved)
    assert (last.kind, last.retryable) == ("terminated", True)


def test_it_dies_at_once_when_its_lifeline_closes(live: subprocess.Popen, tmp_path: Path) -> None:
    live.stdin.close()
    assert live.wait(1) == -signal.SIGKILL


def test_it_dies_when_its_supervisor_says_nothing_for_too_long(tmp_path: Path) -> None:
    with trainer_start(drill_spec(tmp_path, FOR_EVER), tmp_path, "--lifeline", "0.6") as process:
        for _ in range(6):
            time.sleep(0.2)
            process.stdin.write(b".")
            process.stdin.flush()
        assert process.poll() is None, "as long as it hears something, it lives"
        assert process.wait(2) == -signal.SIGKILL


def test_ranks_beyond_the_first_report_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    status, events = run_through(tmp_path, {"steps": 3})
    assert (status, events) == (0, [])


@pytest.mark.parametrize("text", ["", "{", "[]", '{"word": "dance"}', '{"outcome": null}'])
def test_a_control_file_that_says_nothing_is_no_command(tmp_path: Path, text: str) -> None:
    (tmp_path / CONTROL_FILE).write_text(text)
    assert command_read(tmp_path / CONTROL_FILE) is None


def test_a_command_is_read_as_it_was_written(tmp_path: Path) -> None:
    command = Command(STOP, Failed("time_limit", Fault.CONFIGURATION, "Too long.", retryable=False))
    command_write(tmp_path / CONTROL_FILE, command)
    assert command_read(tmp_path / CONTROL_FILE) == command


def test_a_store_whose_address_makes_no_sense_is_an_outcome_too(tmp_path: Path) -> None:
    spec = replace(drill_spec(tmp_path, {}), artifacts_url="nowhere://x")
    with trainer_start(spec, tmp_path) as process:
        assert process.wait(20) == 1
    (only,) = events_in(tmp_path)
    assert "nowhere" in only.event.message


@pytest.mark.parametrize(
    "config", [{"fault": "kill"}, {"children": 1}, {"ignore_stop": True}, {"witness": "there"}]
)
def test_a_drill_does_no_harm_on_a_machine_that_is_not_for_tests(
    tmp_path: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DRILL_FOLDER")
    config |= {"witness": str(tmp_path / "written")} if "witness" in config else {}
    _, events = run_through(tmp_path, config | {"steps": 2, "step_seconds": 0})
    assert (events[-1].event.kind, events[-1].event.fault) == ("bad_config", "configuration")
    assert not (tmp_path / "written").exists()


@pytest.mark.parametrize("name", ["witness", "hold_file"])
def test_a_drill_writes_and_looks_nowhere_but_in_its_folder(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRILL_FOLDER", str(tmp_path / "drills"))
    config = {name: str(tmp_path / "drills" / ".." / "outside"), "hold_after": 1}
    _, events = run_through(tmp_path, config | {"steps": 2, "step_seconds": 0})
    assert (events[-1].event.kind, name in events[-1].event.message) == ("bad_config", True)
    assert not (tmp_path / "outside").exists()

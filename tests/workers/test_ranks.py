"""Several ranks under one launcher: one reports, all end, and the failure of one has its name.

Two processes of the drill. Where they `meet`, each step is a collective operation over gloo, as in
real training; elsewhere they are spared torch, which takes seconds to import.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.workers.attempt import ROOT, points
from tests.workers.supervised import FOR_EVER, Web, lives, state_of, trainers, until
from workers.contract import CheckpointSaved, Limits, Resume, wire
from workers.supervisor.child import end_with_parent

PATIENT = Limits(lease_s=10, grace_s=30, max_s=240)  # ranks of a busy machine start slowly


@pytest.fixture
def ranks(supervise: Any) -> Any:
    """Supervise two ranks."""

    def run(config: dict[str, Any], *, launcher: str = "torchrun", **spec: Any) -> Any:
        limits = spec.pop("limits", PATIENT)
        return supervise(config, launcher=launcher, processes=2, limits=limits, **spec)

    return run


def test_one_rank_reports_and_a_stop_ends_all_at_the_same_step(
    ranks: Any, web: Web, tmp_path: Path
) -> None:
    run = f"ranks-{time.time_ns()}"
    seen: list[int] = []

    def stop() -> None:
        seen.extend(trainers(tmp_path))
        web.redis.set(wire.control_key(run), "stop", ex=60)

    web.after = (4, stop)
    became, _ = ranks(FOR_EVER | {"meet": True}, run=run)
    assert (became, web.kinds.count("Opened"), web.kinds[-1]) == ("done", 1, "Finished")
    assert web.last.stopped_early
    assert web.kinds[-2] == "CheckpointSaved"
    environment = web.events[0].event.environment
    assert {name: environment[name] for name in ("launcher", "layout", "world_size")} == {
        "launcher": "torchrun",
        "layout": "data",
        "world_size": 2,
    }
    assert len(seen) == 3, "the launcher and two ranks"
    assert trainers(tmp_path) == []


def test_a_cancel_under_accelerate_ends_all_without_saving(
    ranks: Any, web: Web, tmp_path: Path
) -> None:
    run = f"cancel-{time.time_ns()}"
    web.after = (4, lambda: web.redis.set(wire.control_key(run), "cancel", ex=60))
    config = FOR_EVER | {"checkpoint_every": 1_000_000}
    became, _ = ranks(config, run=run, launcher="accelerate")
    assert (became, web.kinds[-1], web.last.by_force) == ("done", "Cancelled", False)
    assert "CheckpointSaved" not in web.kinds
    assert web.events[0].event.environment["world_size"] == 2
    assert trainers(tmp_path) == []


def test_a_killed_rank_ends_the_run_with_its_name_and_the_next_attempt_resumes(
    ranks: Any, supervise: Any, web: Web, tmp_path: Path
) -> None:
    plan = {"steps": 12, "step_seconds": 0, "checkpoint_every": 4, "fault_at": 7}
    fault = {"meet": True, "fault": "kill", "fault_rank": 1}
    _, job = ranks(plan | fault)
    assert (web.last.kind, web.last.fault, web.last.retryable) == ("rank_lost", "machine", True)
    assert "Rank 1 of 2" in web.last.message
    assert trainers(tmp_path) == []
    first = points(web.events)
    saved = next(e.event for e in reversed(web.events) if isinstance(e.event, CheckpointSaved))
    web.events.clear()
    resume = Resume(saved.uri, saved.sha256, saved.step)
    supervise(plan, run=job.run, attempt=2, resume=resume)
    assert (web.events[0].event.resumed_from_step, web.kinds[-1]) == (4, "Finished")
    second = points(web.events)
    assert sorted(first | second) == list(range(1, 13))
    assert all(first[step] == second[step] for step in first.keys() & second.keys())


def test_an_error_on_another_rank_is_what_the_run_reports(
    ranks: Any, web: Web, tmp_path: Path
) -> None:
    fault = {"fault": "data", "fault_at": 3, "fault_rank": 1}
    became, _ = ranks(FOR_EVER | fault)
    assert (became, web.last.kind, web.last.fault) == ("done", "bad_data", "data")
    assert web.last.message.startswith("Rank 1 of 2:")
    assert not web.last.retryable
    assert trainers(tmp_path) == []


def test_what_a_killed_launcher_leaves_in_other_sessions_ends_too(
    ranks: Any, web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell in the place of the launcher, whose ranks take no notice of its end."""
    program = f"cd {tmp_path}; setsid sleep 600 & echo $! > pid; kill -STOP $!; kill -9 $$"
    monkeypatch.setattr(
        "workers.supervisor.supervise.trainer_argv", lambda *_, **__: ["sh", "-c", program]
    )
    ranks({})
    assert (web.last.kind, web.last.retryable) == ("killed", True)
    assert "SIGKILL" in web.last.message
    assert not lives(int((tmp_path / "pid").read_text()))


SUPERVISE = """
import os, sys, time
from pathlib import Path
from tests.workers.attempt import drill_spec
from workers.contract import Limits
from workers.supervisor import Supervisor
from workers.supervisor.connection import Line
folder = Path(sys.argv[1])
limits = Limits(lease_s=30, grace_s=1, max_s=240)
config = {"steps": 100000, "step_seconds": 0.02}
spec = drill_spec(folder, config, limits=limits, launcher="torchrun", processes=2)
line = Line(os.environ["REDIS_URL"])
Supervisor(spec, line=line, work=folder / "work", created_at=time.time() + 60).run()
"""


def hears_sigterm(pid: int) -> bool:
    """Whether the process has a handler of its own, as trainers have when they begin to train."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


def test_a_killed_supervisor_takes_launcher_and_ranks_along(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", SUPERVISE, str(tmp_path)]
    with subprocess.Popen(argv, cwd=ROOT, preexec_fn=end_with_parent) as supervisor:
        spool = "work/*/*/events.jsonl"
        until(lambda: any("Progress" in path.read_text() for path in tmp_path.glob(spool)))
        until(lambda: len(trainers(tmp_path)) == 3)
        started = sorted(trainers(tmp_path))
        until(lambda: hears_sigterm(started[-1]))  # it asked to end with its parent before that
        os.kill(started[-1], signal.SIGSTOP)
        until(lambda: state_of(started[-1]) == "T")
        supervisor.kill()
    until(lambda: not any(map(lives, started)))  # the kernel ends one after the other


LETS_GO_LATE = """
import os, sys, time
from workers import ranks
leaving = ranks.Leaving()
from torch import distributed, ones
met = distributed.FileStore(sys.argv[1], 2)
distributed.init_process_group("gloo", store=met, rank=ranks.rank(), world_size=2)
held = distributed.group.WORLD  # as the mesh of a model in parts holds its groups
class Slow:
    def __del__(self, sleep=time.sleep):  # gives the thread its turn while Python is finalized
        sleep(1)
slow = Slow()
sent = ones(4)
sent.note = "a tensor that Python knows, whose end needs the interpreter"
if ranks.is_first():
    work = distributed.all_reduce(sent, async_op=True)
    del work, sent
    sys.setswitchinterval(1000)
    until = time.monotonic() + 2
    while time.monotonic() < until:  # the thread is done by then, and waits for the interpreter
        pass
else:
    time.sleep(0.5)
    distributed.all_reduce(sent)
    time.sleep(3)
print("done")
leaving.status = 3
"""


def test_a_rank_whose_group_lets_go_of_a_tensor_at_its_end_is_not_aborted(tmp_path: Path) -> None:
    together = [
        subprocess.Popen(
            [sys.executable, "-c", LETS_GO_LATE, str(tmp_path / "meet")],
            cwd=ROOT,
            env=os.environ | {"RANK": str(rank), "WORLD_SIZE": "2"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in (0, 1)
    ]
    printed = [process.communicate(timeout=120)[0] for process in together]
    assert [process.returncode for process in together] == [3, 3], printed
    assert [text.count("done\n") for text in printed] == [1, 1]

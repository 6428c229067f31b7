"""The supervisor over a real Redis and a real child: every end has a name, and comes in time."""

import errno
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from tests.workers.attempt import ROOT
from tests.workers.supervised import FOR_EVER, Unstalled, Web, lives, state_of, trainers, until
from workers.artifacts import StoreUnreachable
from workers.contract import Limits, wire
from workers.contract.events import RecipeError
from workers.models.loading import named_model
from workers.supervisor import Supervisor, connection
from workers.supervisor.child import Trainer, end_with_parent, trainer_environment
from workers.supervisor.connection import Lease, Line


def test_a_run_that_goes_well_is_relayed_whole_and_tidied_up(
    supervise: Any, web: Web, tmp_path: Path
) -> None:
    became, job = supervise({"steps": 10, "step_seconds": 0.02})
    assert became == "done"
    assert (web.kinds[0], web.kinds[-1]) == ("Opened", "Finished")
    assert web.heartbeats >= 1, "the claim itself is a sign of life"
    stored = tmp_path / "artifacts" / job.folder
    assert len((stored / "events.jsonl").read_text().splitlines()) == len(web.events)
    assert (stored / "trainer.log").exists()
    assert list((tmp_path / "work" / job.run).iterdir()) == []
    assert web.redis.get(wire.lease_key(job.run)) is None, "the next attempt need not wait"


def test_garbage_in_the_trainers_file_does_not_hold_up_its_events(supervise: Any, web: Web) -> None:
    became, _ = supervise({"steps": 5, "step_seconds": 0, "fault": "garbage"})
    assert (became, web.kinds[-1]) == ("done", "Finished")


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ("segv", "crashed", "SIGSEGV"),
        ("kill", "killed", "SIGKILL"),
        ("exit", "exited", "status 7"),
    ],
)
def test_a_trainer_that_ends_without_a_word_is_given_one(
    supervise: Any, web: Web, fault: str, kind: str, words: str
) -> None:
    became, _ = supervise({"steps": 5, "step_seconds": 0, "fault": fault})
    assert became == "done"
    assert (web.last.kind, web.last.fault, web.last.retryable) == (kind, "machine", True)
    assert words in web.last.message
    if fault == "exit":
        assert any("drill: leaving" in line for line in web.events[-2].event.lines)


def test_a_kill_by_the_kernel_for_want_of_memory_is_told_apart(
    supervise: Any, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = chain([4], repeat(5))
    monkeypatch.setattr("workers.supervisor.child._out_of_memory_kills", lambda: next(counts))
    supervise({"steps": 5, "step_seconds": 0, "fault": "kill"})
    assert (web.last.kind, web.last.retryable) == ("out_of_memory", True)


def test_a_launcher_it_does_not_have_is_the_configurations_fault(supervise: Any, web: Web) -> None:
    became, _ = supervise({}, launcher="ray")
    assert (became, web.last.kind) == ("done", "unknown_launcher")
    assert "plain, torchrun, accelerate" in web.last.message


@pytest.mark.parametrize(
    ("command", "deaf", "last"),
    [
        ("cancel", False, {"by_force": False}),
        ("cancel", True, {"by_force": True}),
        ("stop", False, {"stopped_early": True}),
        ("stop", True, {"kind": "stop_forced", "retryable": False}),
    ],
)
def test_a_command_is_passed_on_politely_first_and_by_force_after_the_grace_time(
    supervise: Any, web: Web, command: str, deaf: bool, last: dict[str, Any]
) -> None:
    run = f"command-{time.time_ns()}"
    web.after = (3, lambda: web.redis.set(wire.control_key(run), command, ex=60))
    limits = Limits(lease_s=2, grace_s=1, stop_s=1, max_s=60)
    became, _ = supervise(FOR_EVER | {"ignore_stop": deaf}, run=run, limits=limits)
    assert became == "done"
    assert {name: getattr(web.last, name) for name in last} == last


def test_a_stop_waits_for_a_step_that_outlasts_the_grace_time(supervise: Any, web: Web) -> None:
    run = f"slow-{time.time_ns()}"
    web.after = (3, lambda: web.redis.set(wire.control_key(run), "stop", ex=60))
    limits = Limits(lease_s=2, grace_s=0.5, stop_s=60, max_s=60)
    supervise(FOR_EVER | {"step_seconds": 2}, run=run, limits=limits)
    assert web.last.stopped_early
    assert web.kinds[-2] == "CheckpointSaved"


def test_an_attempt_that_takes_too_long_is_ended_after_a_checkpoint(
    supervise: Any, web: Web
) -> None:
    supervise(FOR_EVER, limits=Limits(lease_s=2, grace_s=1, max_s=3))
    assert (web.last.kind, web.last.fault) == ("time_limit", "configuration")
    assert web.kinds[-2] == "CheckpointSaved"


def test_a_hanging_trainer_is_killed_at_its_time_limit(supervise: Any, web: Web) -> None:
    limits = Limits(lease_s=2, grace_s=0.3, max_s=0.6)
    supervise({"fault": "hang", "steps": 5, "step_seconds": 0}, limits=limits)
    assert (web.last.kind, web.last.fault) == ("time_limit", "configuration")


def test_a_worker_that_leaves_lets_its_trainer_save(supervise: Any, web: Web) -> None:
    leaving: list[bool] = []
    web.after = (3, lambda: leaving.append(True))
    became, _ = supervise(FOR_EVER, leaving=lambda: bool(leaving))
    assert became == "done"
    assert (web.last.kind, web.last.retryable) == ("interrupted", True)
    assert web.kinds[-2] == "CheckpointSaved"


def test_a_worker_that_leaves_does_not_claim(supervise: Any, web: Web) -> None:
    became, job = supervise({"steps": 1}, leaving=lambda: True)
    assert became == "left"
    assert web.redis.get(wire.fence_key(job.run)) is None


def test_a_trainer_is_killed_the_moment_another_holds_the_lease(
    supervise: Any, web: Web, tmp_path: Path
) -> None:
    run = f"lost-{time.time_ns()}"

    def usurp() -> None:
        web.redis.set(wire.lease_key(run), "2:other", ex=60)
        web.redis.set(wire.fence_key(run), 2)

    web.after = (3, usurp)
    became, _ = supervise(FOR_EVER | {"ignore_stop": True}, run=run)
    assert web.last.kind == "superseded"
    assert trainers(tmp_path) == []
    assert web.redis.get(wire.lease_key(run)) == b"2:other", "the other's lease is left alone"
    assert became == "done"


def test_a_trainer_makes_room_for_a_later_attempt_after_saving(supervise: Any, web: Web) -> None:
    run = f"wanted-{time.time_ns()}"
    later = Lease(web.redis, run=run, attempt=2, seconds=2)
    answers: list[str] = []
    web.after = (3, lambda: answers.append(later.claim(created_at=time.time() + 60)))
    supervise(FOR_EVER, run=run)
    assert answers == ["held"]
    assert web.last.kind == "superseded"
    assert web.kinds[-2] == "CheckpointSaved"
    assert later.claim(created_at=time.time() + 60) == "claimed"


def test_a_second_supervisor_of_the_same_attempt_starts_nothing(supervise: Any, web: Web) -> None:
    became, job = supervise({"steps": 2, "step_seconds": 0})
    assert became == "done"
    count = len(web.events)
    assert supervise({"steps": 2}, run=job.run)[0] == "superseded"
    assert len(web.events) == count


def test_an_attempt_whose_worker_died_is_not_started_twice_when_redis_forgot_it(
    supervise: Any, web: Web, tmp_path: Path
) -> None:
    run = f"again-{time.time_ns()}"
    folder = tmp_path / "work" / run / "attempt-1"
    folder.mkdir(parents=True)
    became, job = supervise({"steps": 3, "step_seconds": 0})
    spool = tmp_path / "artifacts" / job.folder / "events.jsonl"
    half = [json.loads(line) | {"run": run} for line in spool.read_text().splitlines()[:3]]
    (folder / "events.jsonl").write_text("".join(json.dumps(e) + "\n" for e in half))
    web.events.clear()
    became, _ = supervise({"steps": 3}, run=run)
    assert became == "done"
    assert web.kinds == ["Opened", "Log", "Metrics", "Failed"]
    assert (web.last.kind, web.last.retryable) == ("killed", True)


def unstalled(monkeypatch: pytest.MonkeyPatch) -> Unstalled:
    """One clock for the supervisor and its lease, which a busy machine does not turn."""
    clock = Unstalled()
    monkeypatch.setattr(connection.time, "clock_gettime", lambda _: clock())
    return clock


def test_without_redis_for_the_length_of_a_lease_the_trainer_saves_and_ends(
    supervise: Any, web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = f"away-{time.time_ns()}"
    there = web.redis.connection_pool
    clock = unstalled(monkeypatch)
    ended: list[float] = []

    def cut() -> None:
        away = Line("unix:///nonexistent/redis.sock?db=0")
        monkeypatch.setattr(web.redis, "connection_pool", away.redis.connection_pool)
        web.answers = False
        ended.append(clock())

    def repair(*_: Any) -> None:
        ended.append(clock())
        monkeypatch.setattr(web.redis, "connection_pool", there)
        web.answers = True

    web.after = (3, cut)
    monkeypatch.setattr(Supervisor, "_store_files", repair)  # the trainer is dead by then
    became, _ = supervise(FOR_EVER, run=run, clock=clock)
    assert became == "done"
    assert (web.last.kind, web.last.retryable) == ("lease_lost", True)
    assert web.kinds[-2] == "CheckpointSaved"
    assert 0.5 < ended[1] - ended[0] < 2, "after most of the lease, and before its end"


def test_a_deaf_trainer_without_redis_is_killed_before_its_lease_can_run_out(
    supervise: Any, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[float] = []
    clock = unstalled(monkeypatch)
    renewed = Lease.renew

    def renew(lease: Lease) -> str:
        if web.events and web.kinds.count("Progress") > 1:
            return "unreachable"
        times.append(clock())
        return renewed(lease)

    monkeypatch.setattr(Lease, "renew", renew)
    monkeypatch.setattr(Supervisor, "_store_files", lambda self: times.append(clock()))
    limits = Limits(lease_s=3, grace_s=1, max_s=60)
    supervise(FOR_EVER | {"ignore_stop": True}, limits=limits, clock=clock)
    assert web.last.kind == "lease_lost"
    assert 2.5 < times[-1] - times[-2] < 3.0


def test_the_spool_stays_when_the_web_side_does_not_answer(
    supervise: Any, web: Web, tmp_path: Path
) -> None:
    web.answers = False
    leaving: list[bool] = []
    web.after = (8, lambda: leaving.append(True))  # a worker that leaves waits a short while
    limits = Limits(lease_s=0.5, grace_s=1, max_s=60)
    became, job = supervise({"steps": 8}, limits=limits, leaving=lambda: bool(leaving))
    assert became == "kept"
    kept = tmp_path / "work" / job.run / "attempt-1" / "events.jsonl"
    assert len(kept.read_text().splitlines()) >= 8


def test_a_fault_of_the_supervisor_itself_ends_the_trainer_and_is_reported(
    supervise: Any, web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumble(*_: Any) -> None:
        if web.kinds.count("Progress"):
            raise RuntimeError("a bug in the supervisor")

    monkeypatch.setattr(Supervisor, "_listen", stumble)
    became, _ = supervise(FOR_EVER)
    assert became == "done"
    assert (web.last.kind, web.last.fault) == ("worker_error", "bug")
    assert "a bug" in web.last.message
    assert trainers(tmp_path) == []


def test_a_store_that_is_away_is_waited_for_before_a_trainer_is_started(
    supervise: Any, web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "artifacts").touch()
    held = []

    def renew(lease: Lease) -> str:
        held.append(trainers(tmp_path))
        if len(held) == 3:
            (tmp_path / "artifacts").unlink()
        return renew_truly(lease)

    renew_truly = Lease.renew
    monkeypatch.setattr(Lease, "renew", renew)
    became, _ = supervise({"steps": 3, "step_seconds": 0})
    assert (became, web.kinds[-1]) == ("done", "Finished")
    assert held[:3] == [[], [], []], "the lease was kept meanwhile"


@pytest.mark.parametrize(
    ("number", "kind", "retryable"),
    [(errno.ENOSPC, "disk_full", False), (errno.EIO, "store_unreachable", True)],
)
def test_a_disk_that_fails_the_supervisor_is_the_machines_fault(
    supervise: Any,
    web: Web,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    kind: str,
    retryable: bool,
) -> None:
    def fail(*_: Any) -> None:
        if number == errno.EIO:
            raise StoreUnreachable("the artifact store failed")
        raise OSError(number, "No space left on device")

    monkeypatch.setattr(Supervisor, "_train", fail)
    supervise(FOR_EVER)
    assert (web.last.kind, web.last.fault) == (kind, "machine")
    assert web.last.retryable == retryable


SUPERVISE = """
import os, sys, time
from pathlib import Path
from tests.workers.attempt import ROOT, drill_spec
from workers.contract import Limits
from workers.supervisor import Supervisor
from workers.supervisor.child import end_with_parent
from workers.supervisor.connection import Line
folder = Path(sys.argv[1])
limits = Limits(lease_s=30, grace_s=1, max_s=60)
spec = drill_spec(folder, {"steps": 100000, "step_seconds": 0.02}, limits=limits)
line = Line(os.environ["REDIS_URL"])
Supervisor(spec, line=line, work=folder / "work", created_at=time.time() + 60).run()
"""


@pytest.mark.parametrize("trainer_is", ["at work", "stopped"])
def test_a_killed_supervisor_takes_even_a_stopped_trainer_along(
    tmp_path: Path, trainer_is: str
) -> None:
    argv = [sys.executable, "-c", SUPERVISE, str(tmp_path)]
    with subprocess.Popen(argv, cwd=ROOT, preexec_fn=end_with_parent) as supervisor:
        until(lambda: list(tmp_path.glob("work/*/*/events.jsonl")) and trainers(tmp_path))
        until(lambda: "Progress" in next(tmp_path.glob("work/*/*/events.jsonl")).read_text())
        (trainer,) = (pid for pid in trainers(tmp_path) if pid != supervisor.pid)
        if trainer_is == "stopped":
            os.kill(trainer, signal.SIGSTOP)
            until(lambda: state_of(trainer) == "T")
        supervisor.kill()
    until(lambda: not lives(trainer))


# What stands in for Slurm: the command runs in a session of its own, as on another machine, where
# nothing but standard input tells that srun has ended.
SRUN = """
import os, subprocess, sys, threading
started = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, start_new_session=True)
open(sys.argv[1], "w").write(str(os.getpid()))
def hand_on():
    while block := os.read(0, 4096):
        started.stdin.write(block)
        started.stdin.flush()
    started.stdin.close()
threading.Thread(target=hand_on, daemon=True).start()
sys.exit(started.wait())
"""


@pytest.fixture
def srun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the scheduler's command writes its process id."""
    (tmp_path / "srun.py").write_text(SRUN)
    words = f"{sys.executable} {tmp_path}/srun.py {tmp_path}/{{run}}.pid {{command}}"
    monkeypatch.setenv("TRAINER_TEMPLATE", words)
    return tmp_path


def test_a_run_by_a_schedulers_command_goes_well_and_is_stopped(
    supervise: Any, web: Web, srun: Path
) -> None:
    became, job = supervise({"steps": 5, "step_seconds": 0})
    assert (became, web.kinds[-1]) == ("done", "Finished")
    assert (srun / f"{job.run}.pid").exists()


def test_a_stop_reaches_a_trainer_behind_a_schedulers_command(
    supervise: Any, web: Web, srun: Path
) -> None:
    run = f"scheduled-{time.time_ns()}"
    web.after = (3, lambda: web.redis.set(wire.control_key(run), "stop", ex=60))
    supervise(FOR_EVER, run=run, limits=Limits(lease_s=2, grace_s=20, stop_s=20, max_s=60))
    assert web.last.stopped_early
    assert web.kinds[-2] == "CheckpointSaved"


def test_a_trainer_ends_with_a_schedulers_command_that_is_killed(
    supervise: Any, web: Web, srun: Path
) -> None:
    run = f"scheduled-{time.time_ns()}"

    def kill() -> None:
        (trainer,) = (pid for pid in trainers(srun) if b"srun" not in _command(pid))
        seen.append(trainer)
        os.kill(int((srun / f"{run}.pid").read_text()), signal.SIGKILL)

    seen: list[int] = []
    web.after = (3, kill)
    supervise(FOR_EVER, run=run)
    assert (web.last.kind, web.last.retryable) == ("killed", True)
    until(lambda: not lives(seen[0]))


def _command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def test_what_a_trainer_leaves_behind_ends_with_it(supervise: Any, web: Web) -> None:
    supervise({"steps": 2, "step_seconds": 0, "children": 2})
    assert web.kinds[-1] == "Finished"
    said = [line for e in web.events for line in getattr(e.event, "lines", [])]
    left = [int(line.rpartition(" ")[2]) for line in said if line.startswith("left behind")]
    assert len(left) == 2
    assert [pid for pid in left if lives(pid)] == []


# What a trainer gets of its machine: no password, no path that nobody listed.


SECRETS = (
    "SECRET_KEY",
    "SECRET_KEY_FALLBACKS",
    "DATABASE_URL",
    "REDIS_URL",
    "CACHE_URL",
    "EMAIL_URL",
    "METRICS_TOKEN",
    "PGPASSWORD",
    "SOMETHING_OF_TOMORROW",
)
NEEDED = (
    "CUDA_VISIBLE_DEVICES",
    "NCCL_DEBUG",
    "HF_HOME",
    "OMP_NUM_THREADS",
    "LC_ALL",
    "RAY_ADDRESS",
    "REWARD_TOKEN_OURS",
    "AWS_SECRET_ACCESS_KEY",
    "SCORE_CACHE_URL",
    "TRACKING",
)


def test_a_trainer_sees_what_it_reads_and_no_secret_of_the_web_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*SECRETS, *NEEDED):
        monkeypatch.setenv(name, "x")
    seen = tmp_path / "seen.json"
    code = "import json, os, sys; json.dump(dict(os.environ), open(sys.argv[1], 'w'))"
    trainer = Trainer(
        [sys.executable, "-c", code, str(seen)], run="r", attempt=1, output=tmp_path / "log"
    )
    assert trainer.wait(60) == 0
    trainer.kill()
    environment = json.loads(seen.read_text())
    assert [name for name in SECRETS if name in environment] == []
    assert [name for name in NEEDED if name not in environment] == []
    assert {"PATH", "CONCORD_RUN", "CONCORD_ATTEMPT", "HF_HUB_OFFLINE"} <= environment.keys()


def test_whoever_runs_the_worker_adds_variables_by_name() -> None:
    ours = {"MY_CLUSTER": "a", "MY_PASSWORD": "b", "TRAINER_ENVIRONMENT": "MY_CLUSTER, OTHER"}
    assert trainer_environment(ours) == {"MY_CLUSTER": "a"}


def test_a_named_model_lies_in_a_listed_folder_or_on_a_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models, private = tmp_path / "models", tmp_path / "private"
    for folder in (models / "mine", private / "theirs", tmp_path / "workers"):
        folder.mkdir(parents=True)
    (models / "link").symlink_to(private / "theirs")
    monkeypatch.setenv("MODEL_FOLDERS", str(models))
    monkeypatch.chdir(tmp_path)
    assert named_model(str(models / "mine")) == models / "mine"
    assert named_model("org/model") == "org/model"
    refused = [
        str(private / "theirs"),
        str(private / "missing"),
        str(models),
        str(models / "link"),
        str(models / ".." / "private" / "theirs"),
        "private/theirs",
        "workers",
        "../x",
    ]
    said = set()
    for name in refused:
        with pytest.raises(RecipeError) as raised:
            named_model(name)
        assert raised.value.kind == "model_not_allowed"
        said.add(raised.value.message)
    assert len(said) == 1, "the words are the same whether there is something or not"


# A trainer as a process: what ends with it, and what does not.


SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
# What a data loader or a rank does: a session of its own, which no signal to a group reaches.
LEAVES_ONE = [
    sys.executable,
    "-S",
    "-c",
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

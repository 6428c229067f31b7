"""The command line of each launcher, and what a machine must have for it."""

import json
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.workers.attempt import ROOT, drill_spec
from workers import machine
from workers.contract import Failed, Fault
from workers.contract.events import RecipeError
from workers.contract.jobs import DATA, EVERY_GPU, FSDP, LAYOUTS, ONE, ZERO2, ZERO3, JobSpec
from workers.launchers import CannotStart, Machine, hears_signals, rank_environment, trainer_argv
from workers.layouts.arguments import accelerate_config, deepspeed_config
from workers.rank_ends import RANKS_FILE, end_of_ranks, leave_note

TRAIN = "-m workers.train /w/job.json --workdir /w --lifeline"


def spec_of(launcher: str, layout: str = DATA, processes: int = 2, queue: str = "cpu") -> JobSpec:
    spec = drill_spec(Path("/tmp"), {})  # noqa: S108 — a name, nothing is opened
    return replace(spec, launcher=launcher, layout=layout, processes=processes, queue=queue)


def machine_of(gpus: int = 0, without: str = "") -> Machine:
    return Machine(gpus=["H100"] * gpus, lacks=lambda package: package == without)


def argv(spec: JobSpec, here: Machine | None = None) -> list[str]:
    here = here or machine_of()
    return trainer_argv(spec, Path("/w/job.json"), Path("/w"), silence_s=27.0, here=here)


def refusal(spec: JobSpec, here: Machine) -> tuple[str, str, str]:
    with pytest.raises(CannotStart) as refused:
        argv(spec, here)
    failure = refused.value.failure
    assert not failure.retryable
    return failure.kind, failure.fault, failure.message


def test_a_plain_trainer_is_one_python_process_that_counts_on_its_supervisor() -> None:
    assert argv(spec_of("plain", ONE, 1)) == [sys.executable, *f"{TRAIN} 27.0".split()]
    assert rank_environment(spec_of("plain", ONE, 1), machine_of()) == {}


SRUN = "srun --job-name concord-{run}-{attempt} --gres 'gpu:{processes}' {command}"


def test_a_schedulers_command_starts_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINER_TEMPLATE", SRUN)
    spec = spec_of("torchrun", processes=4, queue="gpu")
    head = ["srun", "--job-name", f"concord-{spec.run}-1", "--gres", "gpu:4", sys.executable]
    said = argv(spec)  # no GPU here: the scheduler knows where they are
    assert said[: len(head)] == head
    assert said[len(head) :][:3] == ["-m", "workers.launch_ranks", "/w"]
    assert rank_environment(spec, machine_of()) == {}, "of the other machine nothing is known"
    assert not hears_signals(spec_of("plain", ONE, 1))


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("srun", "{command} once"),
        ("srun {command} {command}", "{command} once"),
        ("srun 'x {command}", "No closing quotation"),
        ("srun --name {name} {command}", "is one of {command}, {run}"),
        ("srun --name {run {command}", "is one of"),
    ],
)
def test_a_template_that_cannot_be_filled_is_refused(
    monkeypatch: pytest.MonkeyPatch, template: str, why: str
) -> None:
    monkeypatch.setenv("TRAINER_TEMPLATE", template)
    kind, fault, words = refusal(spec_of("plain", ONE, 1), machine_of())
    assert (kind, fault) == ("bad_setting", "machine")
    assert why in words


def test_torchrun_starts_as_many_ranks_as_the_job_says() -> None:
    watch = "-m workers.launch_ranks /w 27.0"
    command = f"{watch} torch.distributed.run --standalone --nproc-per-node 2 {TRAIN} 0"
    assert argv(spec_of("torchrun")) == [sys.executable, *command.split()]


@pytest.mark.parametrize("layout", [DATA, FSDP, ZERO2, ZERO3])
def test_accelerate_starts_them_with_the_layouts_shipped_configuration(layout: str) -> None:
    config = ROOT / "workers" / "layouts" / f"{layout}.yaml"
    watch = "-m workers.launch_ranks /w 27.0 accelerate.commands.launch"
    command = f"{watch} --config_file {config} --num_processes 2 {TRAIN} 0"
    assert argv(spec_of("accelerate", layout)) == [sys.executable, *command.split()]


def test_every_gpu_is_counted_unless_the_workers_owner_says_how_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = machine_of(4)
    torchrun, accelerate = (
        spec_of(name, processes=EVERY_GPU) for name in ("torchrun", "accelerate")
    )
    assert "--nproc-per-node gpu" in " ".join(argv(torchrun, here))
    assert "--num_processes 4" in " ".join(argv(accelerate, here))
    monkeypatch.setenv("TRAINER_PROCESSES", "2")
    assert "--nproc-per-node 2" in " ".join(argv(torchrun, machine_of()))
    assert "--num_processes 2" in " ".join(argv(accelerate, here))
    assert "--nproc-per-node 3" in " ".join(argv(replace(torchrun, processes=3), here))
    monkeypatch.setenv("TRAINER_PROCESSES", "many")
    assert refusal(torchrun, here)[:2] == ("bad_setting", "machine")


def test_without_a_gpu_the_ranks_meet_over_gloo_on_the_loopback_interface(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("GLOO_SOCKET_IFNAME", "ACCELERATE_USE_CPU", "DS_ACCELERATOR"):
        monkeypatch.delenv(name, raising=False)
    loopback = {"GLOO_SOCKET_IFNAME": "lo"}
    assert rank_environment(spec_of("torchrun", FSDP), machine_of()) == loopback | {
        "ACCELERATE_USE_CPU": "true"
    }
    assert rank_environment(spec_of("torchrun", ZERO3), machine_of()) == loopback | {
        "DS_ACCELERATOR": "cpu"
    }
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth1")
    assert rank_environment(spec_of("torchrun"), machine_of(2)) == {}


def test_a_machine_with_fewer_gpus_than_asked_refuses_and_says_what_it_has() -> None:
    kind, fault, message = refusal(spec_of("torchrun", processes=4, queue="gpu"), machine_of(2))
    assert (kind, fault) == ("too_few_gpus", "machine")
    assert "4 GPUs" in message
    assert "has 2: H100, H100" in message
    _, _, message = refusal(spec_of("torchrun", processes=2, queue="gpu"), machine_of(0))
    assert "2 GPUs; this" in message
    _, _, message = refusal(spec_of("accelerate", processes=EVERY_GPU), machine_of(0))
    assert "every GPU there" in message
    assert argv(spec_of("torchrun", processes=2, queue="gpu"), machine_of(2))


@pytest.mark.parametrize(
    ("launcher", "layout", "package"),
    [
        ("accelerate", DATA, "accelerate"),
        ("torchrun", ZERO3, "deepspeed"),
        ("torchrun", DATA, "torch"),
    ],
)
def test_a_machine_without_a_package_refuses_and_names_it(
    launcher: str, layout: str, package: str
) -> None:
    kind, fault, message = refusal(spec_of(launcher, layout), machine_of(without=package))
    assert (kind, fault) == ("missing_package", "machine")
    assert f"lacks the package '{package}'" in message
    assert f"layout '{layout}'" in message


def test_an_unknown_launcher_is_refused_with_those_there_are() -> None:
    kind, _, message = refusal(spec_of("ray"), machine_of())
    assert kind == "unknown_launcher"
    assert "launcher 'ray'" in message


def test_only_a_plain_trainer_is_sent_signals() -> None:
    assert hears_signals(spec_of("plain", ONE, 1))
    assert not hears_signals(spec_of("torchrun"))


# --- what the machine has ---


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with three GPUs, as far as a program on the path can tell."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        "#!/bin/sh\nprintf '0, GPU-aa11, NVIDIA H100\\n1, GPU-bb22, NVIDIA H100\\n"
        "2, GPU-cc33, NVIDIA L4\\n'\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.usefixtures("nvidia_smi")
@pytest.mark.parametrize(
    ("visible", "names"),
    [
        (None, ["NVIDIA H100", "NVIDIA H100", "NVIDIA L4"]),
        ("2,0", ["NVIDIA L4", "NVIDIA H100"]),
        ("", []),
        ("0,-1,1", ["NVIDIA H100"]),
        ("0,5,1", ["NVIDIA H100"]),
        ("7", []),
        ("GPU-cc33", ["NVIDIA L4"]),
        ("MIG-1", ["a part of NVIDIA H100"]),
    ],
)
def test_the_gpus_counted_are_those_a_trainer_would_see(
    visible: str | None, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert machine.gpus() == names


def test_what_is_not_installed_is_found_out_without_importing_it() -> None:
    assert machine.lacks("no_such_package")
    assert not machine.lacks("this")
    assert "this" not in sys.modules


# --- the shipped configurations ---


def test_each_layout_of_several_processes_ships_a_configuration_of_its_kind() -> None:
    kinds = {DATA: "MULTI_GPU", FSDP: "FSDP", ZERO2: "DEEPSPEED", ZERO3: "DEEPSPEED"}
    assert set(kinds) == set(LAYOUTS) - {ONE}
    for layout, kind in kinds.items():
        said = yaml.safe_load(accelerate_config(layout).read_text())
        assert said["distributed_type"] == kind
        assert "mixed_precision" not in said, "precision is the recipe's setting"


@pytest.mark.parametrize(("layout", "stage"), [(ZERO2, 2), (ZERO3, 3)])
def test_deepspeed_is_told_the_same_by_accelerate_and_by_the_recipes(
    layout: str, stage: int
) -> None:
    said = yaml.safe_load(accelerate_config(layout).read_text())
    file = ROOT / said["deepspeed_config"]["deepspeed_config_file"]
    assert file == deepspeed_config(layout)
    assert json.loads(file.read_text())["zero_optimization"]["stage"] == stage


# Which of several failing ranks the run's failure is reported.


GLOO = RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1")
RANK_DATA = RecipeError("bad_data", Fault.DATA, "Row 7 cannot be read.")
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
    note(2, RANK_DATA, at=10.0)
    note(0, GLOO, at=10.2, step=41)
    note(1, None, at=10.4)
    ended((2, 1, 10), (0, 1, 10), (1, 1, 10))
    failure = end(tmp_path)
    assert (failure.kind, failure.fault, failure.retryable) == ("bad_data", "data", False)
    assert failure.message.startswith("Rank 2 of 3:")
    assert failure.step == 41, "only the first rank knows the step"


def test_of_two_errors_the_first_is_told(tmp_path: Path, note: Any) -> None:
    note(0, BUG, at=11.0)
    note(1, RANK_DATA, at=10.0)
    assert end(tmp_path).kind == "bad_data"


def test_an_error_that_all_ranks_met_is_told_of_none(tmp_path: Path, note: Any) -> None:
    for rank in range(3):
        note(rank, RANK_DATA, at=10.0 + rank)
    assert "Rank" not in end(tmp_path).message


def test_a_killed_rank_is_named_and_the_run_may_go_on(
    tmp_path: Path, note: Any, ended: Any
) -> None:
    note(0, GLOO, at=10.0)
    note(2, BUG, at=10.1)  # some library's way to say that a rank is missing
    ended((0, 1, 10), (1, -signal.SIGKILL, 10), (2, 1, 10))
    failure = end(tmp_path)
    assert (failure.kind, failure.fault, failure.retryable) == ("rank_lost", "machine", True)
    assert "Rank 1 of 3" in failure.message
    memory = end(tmp_path, out_of_memory=True)
    assert (memory.kind, memory.retryable) == ("out_of_memory", True)
    assert "ended Rank 1 of 3" in memory.message


def test_ranks_that_the_launcher_killed_in_the_end_are_not_the_cause(
    tmp_path: Path, note: Any, ended: Any
) -> None:
    note(1, RANK_DATA, at=10.0)
    ended((1, 1, 10), (0, -signal.SIGKILL, 40))
    assert end(tmp_path).kind == "bad_data"


@pytest.mark.parametrize(
    ("number", "kind"), [(signal.SIGSEGV, "crashed"), (signal.SIGABRT, "bad_data")]
)
def test_a_crash_comes_first_but_for_an_abort_which_may_follow_another_ranks_end(
    tmp_path: Path, note: Any, ended: Any, number: int, kind: str
) -> None:
    note(0, RANK_DATA, at=10.0)
    ended((0, 1, 10), (1, -number, 11))
    assert end(tmp_path).kind == kind


def test_a_rank_that_ended_without_a_word_is_named(tmp_path: Path, note: Any, ended: Any) -> None:
    note(0, GLOO, at=10.0)
    ended((0, 1, 10), (1, 7, 10))
    failure = end(tmp_path)
    assert (failure.kind, failure.retryable) == ("exited", True)
    assert failure.message.startswith("Rank 1 of 3 ended")


def test_ranks_that_were_all_told_to_end_were_terminated(tmp_path: Path, note: Any) -> None:
    note(0, None, at=10.0)
    note(1, None, at=10.0)
    assert end(tmp_path).kind == "terminated"


def test_ranks_that_lost_each_other_say_so(tmp_path: Path, note: Any) -> None:
    note(0, None, at=10.0)
    note(1, GLOO, at=10.0)
    failure = end(tmp_path)
    assert (failure.kind, failure.fault, failure.retryable) == ("rank_lost", "machine", True)
    assert "Rank 1 of 3: [gloo" in failure.message


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"rank": 0}]'])
def test_what_cannot_be_read_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / RANKS_FILE).write_text(text)
    (tmp_path / "rank-0.json").write_text(text)
    assert end_of_ranks(tmp_path, out_of_memory=False) is None

"""The command line of each launcher, and what a machine must have for it."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tests.workers.attempt import ROOT, drill_spec
from workers import layouts, machine
from workers.contract.jobs import DATA, EVERY_GPU, FSDP, LAYOUTS, ONE, ZERO2, ZERO3, JobSpec
from workers.launchers import CannotStart, Machine, hears_signals, rank_environment, trainer_argv

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
    assert "asks for 4 GPUs; this machine has 2: H100, H100" in message
    _, _, message = refusal(spec_of("torchrun", processes=2, queue="gpu"), machine_of(0))
    assert "asks for 2 GPUs; this machine has none" in message
    _, _, message = refusal(spec_of("accelerate", processes=EVERY_GPU), machine_of(0))
    assert "every GPU there is; this machine has none" in message
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
    assert "launcher 'ray' is none of plain, torchrun, accelerate" in message


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
        said = yaml.safe_load(layouts.accelerate_config(layout).read_text())
        assert said["distributed_type"] == kind
        assert "mixed_precision" not in said, "precision is the recipe's setting"


@pytest.mark.parametrize(("layout", "stage"), [(ZERO2, 2), (ZERO3, 3)])
def test_deepspeed_is_told_the_same_by_accelerate_and_by_the_recipes(
    layout: str, stage: int
) -> None:
    said = yaml.safe_load(layouts.accelerate_config(layout).read_text())
    file = ROOT / said["deepspeed_config"]["deepspeed_config_file"]
    assert file == layouts.deepspeed_config(layout)
    assert json.loads(file.read_text())["zero_optimization"]["stage"] == stage

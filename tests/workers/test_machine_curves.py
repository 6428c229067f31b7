"""What the machine gives a run: sampled while it works, by time, with what exists only."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from workers import machine_curves
from workers.contract.events import Event, Metrics
from workers.contract.metrics import metric_of
from workers.emitter import Emitter
from workers.machine import ATTEMPT, MARK
from workers.machine_curves import MachineCurves, Usage, gpu_values, rates

# What a run on a machine with GPUs reports; the tests of the recipes take it from here.
BY_MACHINE = {
    f"machine/{name}"
    for name in (
        *("cpu", "memory", "cpu_all", "memory_all", "disk_free", "disk_read", "disk_written"),
        *("step", "gpu_use/0", "gpu_memory/0"),
    )
}
GPU_ROWS = [["0", "GPU-a", "Big", "87", "2048"], ["", "MIG-b", "a part", "[N/A]", "512"]]
HOLDS = """
import sys, time
held = bytearray(200 * 2**20)
held[::4096] = b"x" * len(held[::4096])
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def told() -> list[Event]:
    return []


def curves(told: list[Event], folder: Path, **more: float) -> MachineCurves:
    return MachineCurves(
        told.append, run="run-7", attempt=1, folder=folder, step=lambda: 12, **more
    )


def values(event: Event) -> dict[str, float]:
    assert isinstance(event, Metrics)
    return {name: float(points[0] or 0) for name, points in event.values.items()}


def test_200_megabytes_that_a_process_of_the_run_allocates_are_seen(
    told: list[Event], tmp_path: Path
) -> None:
    sampler = curves(told, tmp_path)
    sampler.sample()
    marks = {MARK: "run-7", ATTEMPT: "1"}
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS], env=os.environ | marks, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"held\n"
            sampler.sample()
        finally:
            process.kill()
    before, after = map(values, told)
    grown = (after["machine/memory"] - before["machine/memory"]) * 1024
    assert 200 <= grown < 300  # MiB; the interpreter itself takes some
    assert after["machine/cpu"] > 0
    assert after["machine/step"] == 12


def test_a_process_of_another_run_does_not_count(told: list[Event], tmp_path: Path) -> None:
    sampler = curves(told, tmp_path)
    marks = {MARK: "run-8", ATTEMPT: "1"}
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS], env=os.environ | marks, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            sampler.sample()
        finally:
            process.kill()
    own = machine_curves.usage_of(os.getpid())
    assert own is not None
    assert values(told[0])["machine/memory"] == pytest.approx(own.resident / 2**30, rel=0.05)


def test_the_points_lie_at_unix_seconds_and_do_not_move_the_step_of_the_run(
    tmp_path: Path,
) -> None:
    emitter = Emitter(tmp_path / "events.jsonl", run="run-7", attempt=1)
    emitter.write(Metrics(steps=[3], values={"loss": [1.0]}))
    written: list[Event] = []
    curves(written, tmp_path).sample()
    emitter.write(written[0])
    assert emitter.step == 3
    emitter.close()
    assert isinstance(written[0], Metrics)
    assert abs(written[0].steps[0] - time.time()) < 60


def test_a_machine_without_gpu_has_no_gpu_curve(
    told: list[Event], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no nvidia-smi there
    curves(told, tmp_path).sample()
    assert set(values(told[0])) == {name for name in BY_MACHINE if "gpu" not in name}


def test_gpus_are_told_by_their_place_and_what_a_part_of_a_card_does_not_say_is_left_out() -> None:
    assert gpu_values(GPU_ROWS) == {
        "machine/gpu_use/0": 0.87,
        "machine/gpu_memory/0": 2.0,
        "machine/gpu_memory/1": 0.5,
    }


def test_every_curve_is_registered() -> None:
    assert [name for name in BY_MACHINE if metric_of(name) is None] == []


def test_a_number_that_another_process_was_given_counts_nothing_backwards() -> None:
    before = {5: Usage(100.0, 0, 50 * 2**20, 0)}
    now = {5: Usage(2.0, 0, 0, 0), 6: Usage(4.0, 0, 30 * 2**20, 0)}
    assert rates(before, now, 2.0) == {
        "machine/cpu": 2.0,
        "machine/disk_read": 15.0,
        "machine/disk_written": 0.0,
    }


def test_it_samples_until_it_is_stopped_and_then_no_more(told: list[Event], tmp_path: Path) -> None:
    sampler = curves(told, tmp_path, every_s=0.05)
    sampler.start()
    deadline = time.monotonic() + 10
    while len(told) < 2:
        assert time.monotonic() < deadline, "no sample came"
        time.sleep(0.02)
    sampler.stop()
    n = len(told)
    time.sleep(0.2)
    assert len(told) == n

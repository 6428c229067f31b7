"""What a worker tells: GPUs (by a stub of nvidia-smi), libraries, the runs it is at."""

import os
import random
import stat
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from workers import fleet, machine
from workers.contract.fleet import (
    Fleet,
    Gpu,
    WorkerReport,
    report_from_json,
    report_to_json,
    reports_of,
)
from workers.contract.wire import ContractError

LISTED = """\
0, GPU-1111aaaa, NVIDIA H200, 143771, 140000, 570.86.15
1, GPU-2222bbbb, NVIDIA H200, 143771, 9, 570.86.15
2, GPU-3333cccc, NVIDIA T4, [N/A], [N/A], 570.86.15
"""
MIB = 1_048_576


class Pipe:
    """A Redis client that keeps what a pipeline was told."""

    def __init__(self) -> None:
        self.said: list[tuple[str, tuple[Any, ...]]] = []

    def pipeline(self, transaction: bool) -> "Pipe":
        return self

    def __getattr__(self, name: str) -> Any:
        return lambda *given, **more: self.said.append((name, given))


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program `nvidia-smi` on the path, which prints the list above."""
    path = tmp_path / "nvidia-smi"
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{LISTED}END\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return path


def known(gpus: fleet.Gpus, seconds: float = 60) -> tuple[Gpu, ...]:
    """What is known once the program has ended; it is never waited for by the one who asks."""
    until = time.monotonic() + seconds
    gpus.tick(0.0)
    while gpus._asked is not None and time.monotonic() < until:
        gpus.tick(0.0)
        time.sleep(0.02)
    return gpus.known


def test_gpus_are_those_that_the_driver_lists_with_their_memory(program: Path) -> None:
    assert known(fleet.Gpus()) == (
        Gpu("NVIDIA H200", 143_771 * MIB, 140_000 * MIB, "570.86.15"),
        Gpu("NVIDIA H200", 143_771 * MIB, 9 * MIB, "570.86.15"),
        Gpu("NVIDIA T4", None, None, "570.86.15"),
    )


def test_a_program_that_fails_or_hangs_leaves_no_gpus_and_holds_nothing_up(program: Path) -> None:
    program.write_text("#!/bin/sh\nexit 9\n")
    assert known(fleet.Gpus()) == ()
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    gpus = fleet.Gpus()
    begun = time.monotonic()
    gpus.tick(0.0)
    gpus.tick(1.0)
    assert time.monotonic() - begun < 60
    assert gpus._asked is not None
    gpus.tick(fleet.GPUS_GIVEN_UP_SECONDS + 1)
    assert known(gpus) == ()
    gpus.close()


def test_a_machine_without_the_program_has_no_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    gpus = fleet.Gpus()
    gpus.tick(0.0)
    assert gpus.known == ()


def test_without_the_program_a_worker_tells_of_the_gpus_that_its_launcher_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container that was given the driver and no tools."""
    for place, name in (("0000:17:00.0", "NVIDIA H100"), ("0000:65:00.0", "NVIDIA L4")):
        (tmp_path / place).mkdir()
        told = f"Model: \t\t {name}\nIRQ:   \t\t 18\nGPU UUID: \t GPU-{place[5:7]}\n"
        (tmp_path / place / "information").write_text(told)
    monkeypatch.setattr(machine, "_NVIDIA", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    for visible, names in (("1,0", ["NVIDIA L4", "NVIDIA H100"]), ("GPU-65", ["NVIDIA L4"])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert [gpu.name for gpu in fleet.Gpus().known] == names == machine.gpus()


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        (None, ["NVIDIA H200", "NVIDIA H200", "NVIDIA T4"]),
        ("2", ["NVIDIA T4"]),
        ("GPU-2222", ["NVIDIA H200"]),
        ("2,0", ["NVIDIA T4", "NVIDIA H200"]),
        ("0,-1,1", ["NVIDIA H200"]),
        ("", []),
        ("7", []),
        ("0,7,1", ["NVIDIA H200"]),
        ("MIG-1", ["a part of NVIDIA H200"]),
    ],
)
def test_only_gpus_that_a_trainer_would_see_are_told(visible: str | None, names: list[str]) -> None:
    assert [gpu.name for gpu in fleet.gpus_read(LISTED, visible)] == names


def test_what_is_no_list_of_gpus_is_no_gpu() -> None:
    assert fleet.gpus_read("No devices were found\n") == ()


def test_installed_libraries_are_told_without_loading_them() -> None:
    import subprocess
    import sys

    words = (
        "import sys; from workers import fleet; v = fleet.installed(('torch', 'no-such-thing')); "
        "assert list(v) == ['torch'], v; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", words], check=True, timeout=120)


def test_a_report_says_what_the_worker_is_and_what_it_is_at(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Request:
        _request_dict: Mapping[str, Any] = {"concord_job": "run7/2", "id": "x"}

    monkeypatch.setattr(fleet, "_active", lambda: [Request()])
    reporter = fleet.Reporter("redis://127.0.0.1:1/0", name="a@box", queues={"gpu"}, slots=2)
    reporter._client = pipe = Pipe()
    known(reporter._gpus)
    reporter.beat()
    reporter.beat()
    (key, text), *_ = [given for name, given in pipe.said if name == "set"]
    told = report_from_json(text)
    assert key == f"concord:worker:{told.instance}"
    assert told.instance.startswith(f"a@box/{told.host}/{told.pid}/")
    assert (told.queues, told.slots, told.runs) == (("gpu",), 2, ("run7",))
    assert [gpu.name for gpu in told.gpus][-1] == "NVIDIA T4"
    assert told.cpus == len(os.sched_getaffinity(0))
    assert told.memory_bytes is not None
    assert told.memory_bytes > (told.memory_free_bytes or 0) > 0
    assert [name for name, _ in pipe.said].count("set") == 1, "not more than every few seconds"
    reporter.leave()
    assert ("delete", (key,)) in pipe.said


def test_two_workers_of_one_name_both_are_told_of_and_one_that_leaves_leaves_the_other() -> None:
    said: list[str] = []
    for _ in range(2):  # two containers may agree in name, host and process
        reporter = fleet.Reporter("redis://127.0.0.1:1/0", name="a@box", queues={"gpu"}, slots=1)
        reporter._client = pipe = Pipe()
        reporter.tell(reporter.report())
        reporter.leave()
        said += [given[0] for name, given in pipe.said if name in ("set", "delete")]
    assert said[0] == said[1] != said[2] == said[3]


# --- who can be worked on at once ---


def most_at_work(workers: list[WorkerReport], wanted: dict[str, list[str]]) -> int:
    """By trying: each slot takes any run of its classes, or none."""
    slots = [worker.queues for worker in workers for _ in range(worker.slots)]
    served = {queue for queues in slots for queue in queues}
    slots += [(queue,) for queue in wanted if queue not in served]

    def best(slots: list[tuple[str, ...]], left: dict[str, int]) -> int:
        if not slots:
            return 0
        found = best(slots[1:], left)
        for queue in slots[0]:
            if left.get(queue, 0):
                found = max(found, 1 + best(slots[1:], left | {queue: left[queue] - 1}))
        return found

    return best(slots, {queue: len(runs) for queue, runs in wanted.items()})


def test_as_many_runs_are_placed_as_the_slots_of_workers_of_several_classes_can_take() -> None:
    draw = random.Random(0)
    classes = ("cpu", "gpu", "large")
    for _ in range(200):
        workers = [
            WorkerReport(
                *(f"w{i}", "box", i, tuple(draw.sample(classes, draw.randint(1, 3))), 0.0),
                slots=draw.randint(1, 2),
            )
            for i in range(draw.randint(0, 3))
        ]
        wanted = {c: [f"{c}{i}" for i in range(draw.randint(0, 3))] for c in classes}
        assert Fleet(tuple(workers)).placed(wanted) == most_at_work(workers, wanted)


def test_a_run_that_a_worker_is_at_keeps_its_slot_there() -> None:
    both = WorkerReport("both", "box", 1, ("cpu", "gpu"), 0.0, runs=("c1", "gone"))
    cpu = WorkerReport("cpu", "box", 2, ("cpu",), 0.0)
    assert Fleet((cpu, both)).placed({"cpu": ["c1"], "gpu": ["g1"]}) == 1
    assert Fleet((cpu, both)).placed({"cpu": ["c2"], "gpu": ["g1"]}) == 2
    assert Fleet((cpu, both)).placed({"cpu": ["c1", "c2"], "gpu": []}) == 2


def test_a_worker_that_names_a_thousand_queues_holds_nobody_up() -> None:
    odd = WorkerReport("odd", "box", 1, ("cpu", *(f"q{n}" for n in range(1000))), 0.0)
    assert Fleet((odd,)).placed({"cpu": ["c1", "c2"], "gpu": ["g1"]}) == 2


def test_a_broker_that_is_away_does_not_stop_a_worker() -> None:
    reporter = fleet.Reporter("redis://127.0.0.1:1/0", name="a@box", queues={"cpu"}, slots=1)
    reporter.beat()
    reporter.leave()


REPORT = WorkerReport("a@box", "box", 7, ("gpu",), at=5.0, gpus=(Gpu("T4", 1, 2),), runs=("r",))


def test_a_report_survives_its_json_form() -> None:
    assert report_from_json(report_to_json(REPORT)) == REPORT


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{no", "not JSON"),
        ("[]", "expected an object"),
        ('{"name": "a"}', "missing field 'host'"),
        (report_to_json(REPORT).replace('"gpus": [', '"gpus": 3, "x": ['), "gpus: is no list"),
        (report_to_json(REPORT).replace('"slots": 1', '"slots": -1'), "slots"),
        (report_to_json(REPORT).replace('"at": 5.0', '"at": "now"'), "at: is no time"),
        (report_to_json(REPORT).replace('"at": 5.0', '"at": NaN'), "at: is no time"),
        (report_to_json(REPORT).replace('"host": "box"', '"host": null'), "host: is no text"),
        (report_to_json(REPORT).replace('"name": "a@box"', '"name": 3'), "name: is no text"),
        (report_to_json(REPORT).replace('"pid": 7', '"pid": "x"'), "pid: is no number"),
        (report_to_json(REPORT).replace('"T4"', "5"), "name: is no text"),
        (report_to_json(REPORT).replace('"free_bytes": 2', '"free_bytes": "2"'), "free_bytes"),
        (report_to_json(REPORT).replace('"versions": {', '"versions": {"ray": 2'), "versions"),
    ],
)
def test_a_report_that_cannot_be_read_says_why_and_is_left_out(text: str, words: str) -> None:
    with pytest.raises(ContractError, match=words):
        report_from_json(text)
    assert reports_of([text, None, report_to_json(REPORT)]) == (REPORT,)


def test_what_a_worker_said_before_it_was_started_again_counts_no_more() -> None:
    before = replace(REPORT, pid=1, instance="a", started_at=100.0, at=160.0)
    after = replace(REPORT, pid=2, instance="b", started_at=161.0, at=162.0)
    beside = replace(REPORT, pid=3, instance="c", started_at=150.0, at=163.0)
    elsewhere = replace(before, host="another")
    texts = [report_to_json(one) for one in (before, after, beside, elsewhere)]
    assert {(one.host, one.instance) for one in reports_of(texts)} == {
        (REPORT.host, "b"),
        (REPORT.host, "c"),
        ("another", "a"),
    }


# Workers that are drained.


def test_a_fleet_places_no_run_on_a_worker_that_is_drained() -> None:
    def one(name: str, *runs: str) -> WorkerReport:
        return WorkerReport(name, "box", 1, ("gpu",), at=0.0, runs=runs)

    busy = Fleet((one("a", "r1"), one("b")), draining=frozenset({"a"}))
    assert [worker.name for worker in busy.of_class("gpu")] == ["b"]
    assert [worker.name for worker in busy.draining_of("gpu")] == ["a"]
    assert busy.slots("gpu") == 1
    assert busy.placed({"gpu": ["r1", "r2"]}) == 2, "r1 has its slot where it is"
    assert busy.placed({"gpu": ["r1", "r2", "r3"]}) == 2
    idle = Fleet((one("a"), one("b")), draining=frozenset({"a"}))
    assert idle.placed({"gpu": ["r1", "r2"]}) == 1


class Consumer:
    """As much of Celery's as an intake uses."""

    def __init__(self) -> None:
        self.queues = {"gpu", "cpu"}

    def cancel_task_queue(self, queue: str) -> None:
        self.queues.remove(queue)

    def add_task_queue(self, queue: str) -> None:
        self.queues.add(queue)


def test_an_intake_is_shut_and_opened_once_and_leaves_alone_what_others_command() -> None:
    consumer = Consumer()
    intake = fleet.Intake(consumer, ("gpu", "cpu"))
    intake.set(open_=False)
    intake.set(open_=False)
    assert consumer.queues == set()
    intake.set(open_=True)
    assert consumer.queues == {"gpu", "cpu"}
    consumer.cancel_task_queue("cpu")  # celery control cancel_consumer
    intake.set(open_=True)
    assert consumer.queues == {"gpu"}


def test_a_worker_that_cannot_ask_keeps_to_what_it_was_told() -> None:
    reporter = fleet.Reporter("unix:///nonexistent/redis.sock", name="a@b", queues=(), slots=1)
    reporter.draining = True
    reporter.beat()
    assert reporter.draining
    assert reporter.report().draining
    reporter.leave()

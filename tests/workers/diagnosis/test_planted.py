"""Faults of the benchmark's suite, really run in small: the diagnosis names the link of each, and
says nothing of a healthy run. The whole suite is `python -m benchmarks.diagnosis`."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from benchmarks.diagnosis_world import world as making
from benchmarks.diagnosis_world.faults import FAULTS, HEALTHY, Fault
from benchmarks.diagnosis_world.judging import concord
from benchmarks.diagnosis_world.records import Record
from benchmarks.diagnosis_world.runs import Job, run
from benchmarks.diagnosis_world.world import World, open_world

IN_SMALL = {"steps": 4, "eval_every": 4, "eval_prompts": 4, "baseline_answers": 2}
# Of every kind of planting one: in inputs, in the configuration, in the recipe's code.
QUICK = ("reference_wrong", "padding_in_loss", "sampler_mismatch", "kl_zero", "lr_x100")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The suite's world, hardly trained: enough to break something exact in it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # models of this size lose more by sharing than they gain
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(making, "DEMONSTRATIONS", 8)
        patch.setattr(making, "PAIRS", 200)
        patch.setattr(making, "SFT", making.SFT | {"epochs": 2})
        yield open_world(tmp_path_factory.mktemp("suite"), 7, "llama")
    torch.set_num_threads(threads)


def planted(world: World, fault: Fault, **config: object) -> Record:
    small = replace(fault, config={**IN_SMALL, **config, **fault.config})
    return run(world, Job(small, world.shape, world.seed))


@pytest.mark.parametrize("name", QUICK)
def test_a_planted_fault_is_named_by_its_link(world: World, name: str) -> None:
    said = concord(planted(world, FAULTS[name]))
    assert said.links[:1] == (FAULTS[name].link,)
    assert said.step is not None
    assert said.step <= FAULTS[name].since + 2


def test_a_healthy_run_is_left_alone(world: World) -> None:
    record = planted(world, Fault(HEALTHY, "", "nothing is wrong"), steps=8)
    assert record.failure is None
    assert max(step for step, _ in record.curves["objective/kl"]) == 8
    assert concord(record).rules == ()


def test_what_a_run_was_planted_with_is_gone_after_it(world: World) -> None:
    """A fault of one run must not reach the next."""
    planted(world, FAULTS["padding_in_loss"])
    assert planted(world, Fault(HEALTHY, "", "nothing is wrong"), steps=1).failure is None

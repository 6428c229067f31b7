"""Split weights, whole on every rank for a while; two ranks of one start for all of it."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from torch import nn

from tests.workers.recipes.language import ROOT
from workers.contract.jobs import FSDP, ZERO3
from workers.layouts.gathered import whole_weights

pytestmark = pytest.mark.spread


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each rank found, by layout."""
    folder = tmp_path_factory.mktemp("whole")
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    with (folder / "log.txt").open("wb") as output:
        subprocess.run(
            [*start, "-m", "tests.workers.layouts.whole_ranks", str(folder / "found.json")],
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=600,
        )
    found = folder / "found.json"
    assert found.exists(), (folder / "log.txt").read_text()
    return json.loads(found.read_text())


@pytest.mark.parametrize("layout", [FSDP, ZERO3])
def test_each_rank_asks_split_weights_as_often_as_it_likes_and_trains_on(
    told: list[dict[str, Any]], layout: str
) -> None:
    for found in (of_rank[layout] for of_rank in told):
        assert found["split"]
        assert found["held"] <= 0.5  # of the numbers, after the last step, as before the first
        assert found["far"] < 1e-6  # from the logits of a whole model trained by one process
        assert found["drift"] < 1e-6  # of the weights from its


def test_a_module_whose_hooks_nobody_named_is_refused(told: list[dict[str, Any]]) -> None:
    assert all(of_rank[ZERO3]["refused"] for of_rank in told)


def test_nothing_happens_where_nothing_is_split() -> None:
    with whole_weights(nn.Linear(2, 2)), whole_weights():
        pass

"""One Ray cluster for all tests of this folder, which a process of its own holds.

The tests join it as they would any, by RAY_ADDRESS. Ray reads what `alone` sets when it is
imported, and a test of the pool may import it first.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers.recipes.conftest import PLANTED_PPO, SUBJECTS
from tests.workers.recipes.language import ROOT, Outcome, Workshop, tiny_llama, user
from workers.ray.cluster import ADDRESS_VARIABLE, alone

OWNER = """
import sys
from pathlib import Path
from workers.ray.cluster import alone, start_head
alone()
head, folder, address = start_head(Path(sys.argv[1]), actors=2, gpus=0, store=0)
print(address, head.pid, folder, flush=True)
sys.stdin.read()
"""
SMALL = PLANTED_PPO | {
    "steps": 3,
    "batch_size": 8,
    "minibatch_size": 4,
    "update_epochs": 2,
    "rollout_chunk": 1,
    "eval_every": 3,
    "eval_prompts": 4,
    "baseline_answers": 0,
    "save_every": 3,
}

alone()


class Owner:
    """The process that started the cluster, and what it started."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWNER, str(folder)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        told = self.process.stdout.readline().split()
        assert told, "Ray did not start"
        self.address, self.head, self.folder = told[0], int(told[1]), Path(told[2])

    def daemons(self) -> set[int]:
        """The head and all below it."""
        found, seen = {self.head}, 0
        while seen != len(found):
            seen = len(found)
            found |= {pid for pid, parent in parents().items() if parent in found}
        return found


def parents() -> dict[int, int]:
    """Process -> its parent, of all that live."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        state, parent = text.rpartition(")")[2].split()[:2]
        if state != "Z":
            parents[int(stat.parent.name)] = int(parent)
    return parents


@pytest.fixture(scope="package")
def owner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Owner]:
    held = Owner(tmp_path_factory.mktemp("cluster"))
    os.environ[ADDRESS_VARIABLE] = held.address
    yield held
    del os.environ[ADDRESS_VARIABLE]
    held.process.kill()
    held.process.communicate()


@pytest.fixture(scope="package")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    shop = Workshop(tmp_path_factory.mktemp("shop"))
    shop.put_model("base", tiny_llama())
    shop.put_snapshot("prompts", train=[{"prompt": user(subject)} for subject in SUBJECTS])
    return shop


@pytest.fixture(scope="package")
def here(shop: Workshop) -> Outcome:
    """The run without actors that those with them are compared with."""
    return shop.run_here(
        shop.spec("here", "ppo", SMALL | {"lora_rank": 0}, sft="base", prompts="prompts")
    )

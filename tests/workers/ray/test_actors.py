"""PPO with Ray actors, on one cluster for all tests of this file, which a process of its own holds.

The tests join it as they would any, by RAY_ADDRESS; the last one kills its owner.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.workers.ray import BY_ACTORS
from tests.workers.recipes.conftest import PLANTED_PPO, SUBJECTS
from tests.workers.recipes.language import ROOT, Outcome, Workshop, tiny_llama, user
from workers.ray.cluster import ADDRESS_VARIABLE, alone
from workers.ray.drawer import RayDrawer
from workers.ray.reward_actor import RayReward

pytestmark = [
    pytest.mark.spread,
    # Not imported to see: it reads the environment when it is, and that is made below.
    pytest.mark.skipif(find_spec("ray") is None, reason="the extra 'ray' is not installed"),
    # Ray's own sockets and processes, closed by the interpreter.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

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
            found |= {pid for pid, parent in _parents().items() if parent in found}
        return found


def _parents() -> dict[int, int]:
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


@pytest.fixture(scope="module")
def owner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Owner]:
    before = dict(os.environ)
    alone()
    held = Owner(tmp_path_factory.mktemp("cluster"))
    os.environ[ADDRESS_VARIABLE] = held.address
    yield held
    os.environ.clear()
    os.environ.update(before)
    held.process.kill()
    held.process.communicate()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    shop = Workshop(tmp_path_factory.mktemp("shop"))
    shop.put_model("base", tiny_llama())
    shop.put_snapshot("prompts", train=[{"prompt": user(subject)} for subject in SUBJECTS])
    return shop


def run(shop: Workshop, name: str, **changes: Any) -> Outcome:
    spec = shop.spec(name, "ppo", SMALL | changes, sft="base", prompts="prompts")
    return shop.run_here(spec)


def test_a_run_with_two_actors_is_the_run_without_them_though_one_is_killed_in_the_middle(
    owner: Owner, shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = run(shop, "here", lora_rank=0)
    drawn, killed = RayDrawer.draw_published, []

    def draw(self: RayDrawer, chunks: Any) -> Any:
        for count, one in enumerate(drawn(self, chunks)):
            yield one
            if self._version and count == 0 and not killed:  # of the second step
                actor = self.pool.actors[1]
                killed.append(self._ray.get(actor.ready.remote()))
                os.kill(killed[0], signal.SIGKILL)

    monkeypatch.setattr(RayDrawer, "draw_published", draw)
    there = run(shop, "there", lora_rank=0, rollout_workers=2)
    assert killed
    assert sum(there.curve("rollout/workers_replaced").values()) == 1
    assert sum(there.curve("rollout/redrawn").values()) >= 1
    assert set(there.curve("rollout/lag").values()) == {0.0}
    timed = {name for name in here.metric_names() if name.startswith(("time/", "throughput/"))}
    assert {n: there.curve(n) for n in here.metric_names() - timed} == {
        n: here.curve(n) for n in here.metric_names() - timed
    }
    last = [outcome.all("CheckpointSaved")[-1]["uri"] for outcome in (here, there)]
    weights = [shop.root / "store" / uri / "model.safetensors" for uri in last]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_one_step_off_draws_while_it_learns_and_corrects_though_the_scorer_is_killed(
    owner: Owner, shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    score, killed = RayReward.score, []

    def kill_once(self: RayReward, *texts: Any) -> Any:
        if len(killed) < 3:
            killed.append(1)
            if len(killed) == 3:
                self.pool._ray.kill(self.pool.actors[0])
        return score(self, *texts)

    monkeypatch.setattr(RayReward, "score", kill_once)
    outcome = run(
        shop,
        "lagged",
        steps=4,
        eval_every=4,
        lora_rank=4,
        learning_rate=2e-2,
        update_kl_target=1.0,  # no update ends early: each takes four steps, or none
        rollout_workers=1,
        rollout_lag=1,
        reward_workers=1,
    )
    assert sum(outcome.curve("reward/workers_replaced").values()) == 1
    taken = outcome.curve("update/steps")  # none where all rewards were alike
    age = {step: taken.get(step - 1, 0.0) for step in (1, 2, 3, 4)}
    assert outcome.curve("rollout/age") == age
    assert outcome.curve("rollout/lag") == {step: float(old > 0) for step, old in age.items()}
    assert age[4] == 4.0
    corrected = outcome.curve("rollout/corrected_share")
    assert corrected[1] == 0.0
    assert corrected[4] > 0.5
    assert outcome.curve("rollout/importance_mean")[1] == pytest.approx(1.0, abs=1e-4)
    assert sum(outcome.curve("rollout/dropped").values()) == 0
    assert outcome.metric_names() >= BY_ACTORS
    assert outcome.summary["step"] == 4


def test_a_stranger_without_the_token_is_turned_away(owner: Owner) -> None:
    word = "from ray._raylet import GcsClient; GcsClient(address=%r)" % owner.address  # noqa: UP031
    stranger = {k: v for k, v in os.environ.items() if not k.startswith("RAY_AUTH")}
    told = subprocess.run(
        [sys.executable, "-c", word],
        env=stranger | {"RAY_AUTH_MODE": "disabled"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert told.returncode != 0
    assert "InvalidAuthToken" in told.stderr


def test_nothing_of_the_cluster_outlives_its_owner(owner: Owner) -> None:
    left = owner.daemons()
    assert len(left) >= 3
    os.kill(owner.process.pid, signal.SIGKILL)
    owner.process.wait()
    until = time.monotonic() + 60
    while left & set(_parents()) and time.monotonic() < until:
        time.sleep(0.2)
    assert not left & set(_parents())

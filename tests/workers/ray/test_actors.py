"""PPO with Ray actors, on the cluster that all tests share, and the end of a cluster."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.workers.ray import BY_ACTORS
from tests.workers.ray.conftest import SMALL, Owner, parents
from tests.workers.recipes.language import Outcome, Workshop
from workers.contract.events import RecipeError
from workers.ppo.async_rollout import RayDrawer
from workers.ray.cluster import ADDRESS_VARIABLE, Cluster
from workers.ray.pool import RayReward

pytestmark = [
    pytest.mark.spread,
    # Ray's own sockets and processes, closed by the interpreter.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def run(shop: Workshop, name: str, **changes: Any) -> Outcome:
    spec = shop.spec(name, "ppo", SMALL | changes, sft="base", prompts="prompts")
    return shop.run_here(spec)


def test_a_run_with_two_actors_is_the_run_without_them_though_one_is_killed_in_the_middle(
    owner: Owner, shop: Workshop, here: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    same = here.repeated_names()
    assert {n: there.curve(n) for n in same} == {n: here.curve(n) for n in same}
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


def test_nothing_of_a_cluster_outlives_its_owner_and_nobody_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = Owner(tmp_path)  # one of its own: the others' lives on
    left = owner.daemons()
    assert len(left) >= 3
    os.kill(owner.process.pid, signal.SIGKILL)
    owner.process.wait()
    until = time.monotonic() + 60
    while left & set(parents()) and time.monotonic() < until:
        time.sleep(0.2)
    assert not left & set(parents())
    monkeypatch.setenv(ADDRESS_VARIABLE, owner.address)
    with pytest.raises(RecipeError, match="cannot be joined"):
        Cluster.open(tmp_path, actors=1)

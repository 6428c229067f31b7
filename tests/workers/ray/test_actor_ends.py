"""How runs with actors end, and how they go on: commands in the middle of a rollout, an actor that
hangs, and work that no actor survives."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.workers.ray.conftest import SMALL, Owner, parents
from tests.workers.recipes.language import ROOT, Outcome, Workshop
from workers.control import CONTROL_FILE, Command, command_write
from workers.emitter import EVENTS_FILE, Emitter
from workers.ppo.async_rollout import PolicyActor, RayDrawer
from workers.ray.cluster import ADDRESS_VARIABLE
from workers.recipes.ppo import PPOTrainer
from workers.supervisor.child import MARK
from workers.train import StopSignal, train

pytestmark = [
    pytest.mark.spread,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

# `workers.train`, told to stop while the actors draw the second step's answers.
STOPPED = """
import os, signal, sys
from pathlib import Path
from workers.control import CONTROL_FILE, Command, command_write
from workers.ppo.async_rollout import RayDrawer
from workers.train import main
drawn, seen = RayDrawer.draw_published, []
def draw(self, chunks):
    seen.append(chunks)
    for count, one in enumerate(drawn(self, chunks)):
        yield one
        if (len(seen), count) == (2, 2):
            print("actors", *(self._ray.get([a.ready.remote() for a in self.pool.actors])))
            command_write(Path(sys.argv[1]).with_name(CONTROL_FILE), Command("stop"))
            os.kill(os.getpid(), signal.SIGTERM)
RayDrawer.draw_published = draw
sys.exit(main(sys.argv[1:]))
"""
LAGGED = {
    "steps": 5,
    "eval_every": 5,
    "save_every": 5,
    "lora_rank": 4,
    "learning_rate": 2e-2,
    "update_kl_target": 1.0,
    "rollout_workers": 1,
    "rollout_lag": 1,
}


def spec_of(shop: Workshop, name: str, **changes: Any) -> Any:
    resume = {k: changes.pop(k) for k in ("resume", "attempt") if k in changes}
    return shop.spec(name, "ppo", SMALL | changes, sft="base", prompts="prompts", **resume)


@pytest.fixture
def run(owner: Owner, shop: Workshop) -> Iterator[Callable[..., Outcome]]:
    """A run to its last event, as the trainer does it, in this process."""
    handler = signal.getsignal(signal.SIGTERM)

    def run(name: str, **changes: Any) -> Outcome:
        spec = spec_of(shop, name, **changes)
        folder = shop.folder(spec)
        folder.mkdir(parents=True)
        (folder / "log.txt").touch()
        writer = Emitter(folder / EVENTS_FILE, run=spec.run, attempt=spec.attempt)
        train(spec, folder, writer, StopSignal(folder))
        return shop.outcome(spec)

    yield run
    signal.signal(signal.SIGTERM, handler)


def in_the_middle(
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[RayDrawer], None],
    *,
    rollout: int,
    answers: int = 3,
) -> list[int]:
    """Have `act` done after so many answers of a rollout, the first of which is 1; the processes
    of the actors that were there then."""
    drawn, seen, actors = RayDrawer.draw_published, [], []

    def reached(self: RayDrawer, count: int) -> None:
        if count == answers and len(seen) == rollout:
            actors.extend(self._ray.get([a.ready.remote() for a in self.pool.actors]))
            act(self)

    def draw(self: RayDrawer, chunks: Any) -> Any:
        seen.append(len(chunks))
        reached(self, 0)
        for count, one in enumerate(drawn(self, chunks), start=1):
            reached(self, count)
            yield one

    monkeypatch.setattr(RayDrawer, "draw_published", draw)
    return actors


def gone(processes: set[int]) -> bool:
    until = time.monotonic() + 60
    while processes & set(parents()) and time.monotonic() < until:
        time.sleep(0.1)
    return not processes & set(parents())


def marked(run: str) -> set[int]:
    """Processes of a run, in whatever session."""
    found = set()
    for process in parents():
        try:
            told = Path(f"/proc/{process}/environ").read_bytes()
        except OSError:
            continue
        if f"{MARK}={run}".encode() in told.split(b"\0"):
            found.add(process)
    return found


def test_a_run_stopped_while_actors_draw_leaves_no_process_and_goes_on_as_if_it_had_not_been(
    shop: Workshop, here: Outcome, run: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own cluster first; then, resumed, one of its actors hangs."""
    spec = spec_of(shop, "stopped", lora_rank=0, rollout_workers=2)
    folder = shop.write_job(spec)
    alone = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    assert ADDRESS_VARIABLE not in alone
    with (folder / "log.txt").open("wb") as log:
        ended = subprocess.run(
            [sys.executable, "-c", STOPPED, str(folder / "job.json")],
            cwd=ROOT,
            env=alone | {MARK: "stopped", "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=500,
        )
    stopped = shop.outcome(spec)
    actors = [line.split()[1:] for line in stopped.log.splitlines() if line.startswith("actors ")]
    assert len(actors[0]) == 2, stopped.log
    assert (ended.returncode, stopped.summary["step"]) == (0, 2)
    assert stopped.all("Finished")[0]["stopped_early"]
    assert gone(marked("stopped") | set(map(int, actors[0])))

    hung: list[int] = []

    def hang(drawer: RayDrawer) -> None:
        hung.append(drawer._ray.get(drawer.pool.actors[0].ready.remote()))
        os.kill(hung[0], signal.SIGSTOP)

    # Later it may have drawn all of its answers already.
    in_the_middle(monkeypatch, hang, rollout=1, answers=0)
    resume = shop.resume(stopped)
    resumed = run(
        "stopped",
        attempt=2,
        resume=resume,
        lora_rank=0,
        rollout_workers=2,
        worker_timeout=12.0,
    )
    assert resumed.summary["step"] == 3
    assert resumed.curve("rollout/workers_replaced")[3] >= 1
    assert resumed.curve("rollout/redrawn")[3] >= 1
    assert gone(set(hung))
    same = here.repeated_names()
    after = {n: {3: here.curve(n)[3]} for n in same if 3 in here.curve(n)}
    assert len(after) > 40
    assert {n: {3: resumed.curve(n).get(3)} for n in after} == after


def test_a_sigterm_while_it_draws_ahead_saves_and_the_next_attempt_draws_its_first_step_again(
    shop: Workshop, run: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(drawer: RayDrawer) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patched:
        actors = in_the_middle(patched, end, rollout=3)  # of step 3, during step 2's update
        ended = run("ended", **LAGGED)
    failed = ended.all("Failed")[0]
    assert (failed["kind"], failed["fault"], failed["retryable"]) == ("terminated", "machine", True)
    step = ended.all("CheckpointSaved")[-1]["step"]
    assert step in (2, 3)
    assert gone(set(actors))
    resume = shop.resume(ended)
    resumed = run("ended", attempt=2, resume=resume, **LAGGED)
    assert resumed.summary["step"] == 5
    lag = resumed.curve("rollout/lag")
    assert sorted(lag) == list(range(step + 1, 6))
    assert lag[step + 1] == resumed.curve("rollout/age")[step + 1] == 0.0
    assert resumed.curve("rollout/corrected_share")[step + 1] == 0.0
    steps = resumed.curve("update/steps")
    assert lag[step + 2] == float(steps.get(step + 1, 0.0) > 0)


def test_a_run_cancelled_while_it_draws_ahead_does_not_wait_for_actors_that_hang(
    shop: Workshop, run: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers they owe are those of a step that will not come."""
    folder = shop.folder(spec_of(shop, "cancelled"))
    commanded, learn = threading.Event(), PPOTrainer.learn

    def cancel(drawer: RayDrawer) -> None:
        for actor in drawer._ray.get([a.ready.remote() for a in drawer.pool.actors]):
            os.kill(actor, signal.SIGSTOP)
        command_write(folder / CONTROL_FILE, Command("cancel"))
        os.kill(os.getpid(), signal.SIGTERM)
        commanded.set()

    def learn_meanwhile(self: PPOTrainer, *asked: Any) -> Any:
        assert commanded.wait(200)
        return learn(self, *asked)

    monkeypatch.setattr(PPOTrainer, "learn", learn_meanwhile)
    actors = in_the_middle(monkeypatch, cancel, rollout=2)
    began = time.monotonic()
    ended = run("cancelled", **LAGGED | {"rollout_workers": 2})
    assert ended.ending == "Cancelled"
    assert ended.all("CheckpointSaved")[-1]["step"] == 1
    assert time.monotonic() - began < 500  # worker_timeout is 600
    assert gone(set(actors))


def test_work_that_kills_every_actor_ends_the_run_as_actor_lost(
    run: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Dying(PolicyActor):
        def draw(self, *asked: Any) -> Any:
            os._exit(1)

    monkeypatch.setattr("workers.ppo.async_rollout.PolicyActor", Dying)
    failed = run("lost", rollout_workers=1).all("Failed")[0]
    assert (failed["kind"], failed["fault"]) == ("actor_lost", "machine")
    assert not failed["retryable"]
    assert failed["message"].startswith("3 of")
    assert "died unexpectedly" in failed["message"]

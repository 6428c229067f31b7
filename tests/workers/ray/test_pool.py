"""A pool of actors over a Ray that is made up: who dies, who hangs, who is only slow."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.workers.recipes.language import tiny_llama, user
from tests.workers.recipes.test_ppo_parts import IDS, MESSAGES, improve, ppo, roll_out
from workers.config import settings_for
from workers.contract.events import Fault, RecipeError
from workers.models import invariants
from workers.models.loading import weights_sha256
from workers.ppo.async_rollout import AsyncRollout, load, open_actors, shards, trained
from workers.ppo.model import ActorCritic
from workers.ray.cluster import import_ray
from workers.ray.pool import LOOK_S, READY_S, TRIES, Pool, Stopped, in_order, place_of
from workers.rewards.source import ScoreQueue, Scores
from workers.rl.losses import importance_metrics, importance_weights
from workers.rollouts.drawing import Chunk, Drawn, chunks_of
from workers.rollouts.local import Responses, Sampling


class Died(Exception):
    """Ray's word for it."""


@dataclass(eq=False)
class Reference:
    at: float  # when it is there
    value: Any


@dataclass
class World:
    """Time passes while somebody waits. `takes(actor, call)`: seconds until the answer, or an
    error after so many; `start_s`: of each actor, in the order they are made."""

    takes: Callable[[int, int], float | Exception] = lambda actor, call: 1.0
    start_s: list[float | Exception] = field(default_factory=list)
    now: float = 0.0
    made: int = 0
    killed: list[int] = field(default_factory=list)
    exceptions = SimpleNamespace(RayActorError=Died, ObjectLostError=Died, WorkerCrashedError=Died)

    def actor(self) -> "Actor":
        return Actor(self)

    def wait(self, given: list[Reference], num_returns: int = 1, timeout: float = 0.0) -> Any:
        there = sorted(given, key=lambda one: one.at)[:num_returns]
        if there[-1].at > self.now:
            self.now = min(there[-1].at, self.now + timeout)
        there = [one for one in there if one.at <= self.now]
        return there, [one for one in given if one not in there]

    def get(self, reference: Reference) -> Any:
        assert reference.at <= self.now
        if isinstance(reference.value, Exception):
            raise reference.value
        return reference.value

    def kill(self, actor: "Actor") -> None:
        self.killed.append(actor.number)
        for one in actor.asked:
            if one.at > self.now:
                one.at, one.value = self.now, Died("it was killed by ray.kill")

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 1.0}


class Actor:
    def __init__(self, world: World) -> None:
        self.world, self.number = world, world.made
        world.made += 1
        start = world.start_s[self.number] if self.number < len(world.start_s) else 0.0
        self.awake = world.now + (0.0 if isinstance(start, Exception) else start)
        self.first = Reference(self.awake, start)
        self.asked = [self.first]
        self.ready = SimpleNamespace(remote=lambda: self.first)

    def work(self, call: int) -> Reference:
        takes = self.world.takes(self.number, call)
        begins = max(self.awake, self.world.now)
        late = 0.0 if isinstance(takes, Exception) else takes
        value = takes if isinstance(takes, Exception) else (call, self.number)
        self.asked.append(Reference(begins + late, value))
        return self.asked[-1]


def pool_of(world: World, size: int = 1) -> Pool:
    return Pool(
        world,
        world.actor,
        size,
        what="rollout workers",
        limit_s=60.0,
        clock=lambda: world.now,
    )


def work(count: int) -> list[Callable[[Actor], Reference]]:
    return [lambda actor, call=call: actor.work(call) for call in range(count)]


def test_an_actor_that_hangs_is_killed_after_the_limit_and_its_work_done_again() -> None:
    world = World(takes=lambda actor, call: 1e9 if (actor, call) == (0, 1) else 5.0)
    pool = pool_of(world)
    assert list(pool.map(work(3))) == [(0, 0), (1, 1), (2, 1)]
    assert (pool.replaced, pool.redone, world.killed) == (1, 1, [0])
    assert 70.0 < world.now < 80.0  # three times 5 s, 60 s in vain, and the looks


def test_the_start_of_a_replacement_does_not_count() -> None:
    world = World(takes=lambda actor, call: Died() if actor == 0 else 59.0, start_s=[0.0, 300.0])
    pool = pool_of(world)
    assert list(pool.map(work(1))) == [(0, 1)]
    assert world.killed == []


def test_a_replacement_that_never_starts_is_given_up_too() -> None:
    world = World(takes=lambda actor, call: Died() if actor == 0 else 1.0, start_s=[0.0, 1e9])
    pool = pool_of(world)
    assert list(pool.map(work(1))) == [(0, 2)]
    assert world.killed == [1]
    assert READY_S < world.now < READY_S + 10 * LOOK_S


def test_an_answer_that_lay_here_while_nobody_looked_is_taken() -> None:
    world = World(takes=lambda actor, call: 10.0)
    pool = pool_of(world, 2)
    answers = pool.map(work(4))
    found = [next(answers)]
    world.now += 1e4  # the trainer was at something else
    assert [call for call, _ in [*found, *answers]] == [0, 1, 2, 3]
    assert world.killed == []


@pytest.mark.parametrize(
    ("takes", "word"), [(Died("it ran out of memory"), "out of memory"), (1e9, "worker_timeout")]
)
def test_work_that_no_actor_survives_ends_the_run_as_actor_lost(
    takes: float | Exception, word: str
) -> None:
    world = World(takes=lambda actor, call: takes if call == 1 else 1.0)
    with pytest.raises(RecipeError, match=word) as raised:
        list(pool_of(world).map(work(2)))
    assert (raised.value.kind, raised.value.fault) == ("actor_lost", Fault.MACHINE)
    assert not raised.value.retryable
    assert world.made == TRIES


def test_an_actor_that_dies_as_it_starts_is_named_with_its_reason() -> None:
    told = "The actor died because of an error raised in its creation task\n  at x\nBoom: no room"
    with pytest.raises(RecipeError, match=r"actor died .* no room"):
        pool_of(World(start_s=[Died(told)]))


def test_who_waits_for_a_pool_that_is_stopped_is_told() -> None:
    world = World(takes=lambda actor, call: 1e9)
    pool = pool_of(world)
    pool.stop()
    with pytest.raises(Stopped):
        list(pool.map(work(1)))


# What needs no Ray: weights in shards, importance, answers drawn ahead, settings.


def test_weights_make_what_one_policy_drew_tell_of_another() -> None:
    """Over every token a policy can draw, E_drew[w·A] is E_old[A]."""
    generator = torch.Generator().manual_seed(0)
    drew, old = torch.randn(2, 6, generator=generator).log_softmax(-1)
    advantages = torch.randn(6, generator=generator)
    weights = importance_weights(old[None], drew[None], torch.ones(1, 6), cap=1e9)[0]
    told = (drew.exp() * weights * advantages).sum()
    torch.testing.assert_close(told, (old.exp() * advantages).sum())


def test_weights_are_cut_at_the_cap_and_are_1_under_the_padding() -> None:
    drew = torch.tensor([[-1.0, -2.0, -3.0, -5.0]])
    old = torch.tensor([[-1.0, -1.0, -4.0, 0.0]])
    mask = torch.tensor([[1, 1, 1, 0]])
    weights = importance_weights(old, drew, mask, cap=2.0)
    torch.testing.assert_close(weights, torch.tensor([[1.0, 2.0, 0.36788, 1.0]]))
    assert importance_metrics(weights, mask, cap=2.0) == pytest.approx(
        {
            "rollout/corrected_share": 2 / 3,
            "rollout/capped_share": 1 / 3,
            "rollout/importance_mean": (1 + 2 + 0.36788) / 3,
        },
        abs=1e-5,
    )


def test_weights_multiply_the_policys_loss_and_nothing_else() -> None:
    after = []
    for weight in (None, 1.0, 0.0):
        actor_critic = ActorCritic(tiny_llama()).eval()
        before = weights_sha256(actor_critic.policy)
        rollout = roll_out(actor_critic)
        rollout.importance = None if weight is None else torch.full_like(rollout.logprobs, weight)
        improve(actor_critic, rollout, ppo(value_coef=0.0))
        after.append(weights_sha256(actor_critic.policy))
    assert after[0] == after[1] != before
    assert after[2] == before  # nothing is left to learn from


def test_a_rollout_older_than_allowed_or_from_the_future_breaks_the_contract() -> None:
    invariants.check_fresh(8, 4, allowed=4)
    for drawn, allowed in ((3, 4), (7, 0), (9, 4)):
        with pytest.raises(RecipeError) as raised:
            invariants.check_fresh(8, drawn, allowed=allowed)
        assert raised.value.kind == "contract_stale_rollout"


class FakeDrawer:
    """Draws answers that say which version they are of."""

    def __init__(self) -> None:
        self.version = -1
        self.error: Exception | None = None

    def publish(self, version: int) -> None:
        self.version = version

    def draw_published(self, chunks: Sequence[Chunk]):
        if self.error:
            raise self.error
        for chunk in chunks:
            empty = torch.zeros(len(chunk.ids), 1)
            texts = [f"by {self.version}"] * len(chunk.ids)
            yield Drawn(chunk, Responses(*[empty] * 5, texts=texts), self.version)

    def draw(self, chunks: Sequence[Chunk], *, version: int):
        self.publish(version)
        return self.draw_published(chunks)


class Counted:
    """Scores an answer by the version it names."""

    asked = 0

    def score(self, prompts, responses) -> Scores:
        self.asked += len(responses)
        return Scores([float(text.split()[1]) for text in responses])


def test_answers_drawn_ahead_are_used_once_and_with_their_scores() -> None:
    chunks = chunks_of(MESSAGES, IDS, Sampling(4, seed=1), 3)
    source = Counted()
    with ScoreQueue(source) as queue:
        ahead = AsyncRollout(FakeDrawer(), queue.submit, most_age=4)
        ahead.begin(chunks, version=5)
        drawn = list(ahead.draw(chunks, version=9))
        assert [one.version for one in drawn] == [5, 5, 5]
        pending = [ahead.scores_of(one.chunk.messages, one.responses.texts) for one in drawn]
        assert [one.result().values for one in pending] == [[5.0] * 3, [5.0] * 3, [5.0] * 2]
        assert source.asked == len(MESSAGES)
        assert [one.version for one in ahead.draw(chunks, version=9)] == [9, 9, 9]
        assert ahead.dropped == 0


def test_answers_too_old_or_to_other_questions_are_dropped_and_drawn_again() -> None:
    chunks = chunks_of(MESSAGES, IDS, Sampling(4, seed=1), 3)
    others = chunks_of(MESSAGES, IDS, Sampling(4, seed=2), 3)
    with ScoreQueue(Counted()) as queue:
        ahead = AsyncRollout(FakeDrawer(), queue.submit, most_age=4)
        ahead.begin(chunks, version=5)
        assert {one.version for one in ahead.draw(chunks, version=10)} == {10}
        ahead.begin(chunks, version=10)
        assert {one.version for one in ahead.draw(others, version=11)} == {11}
        assert ahead.dropped == 2 * len(chunks)
        assert ahead.scores_of([user("sun")], ["by 7"]).result().values == [7.0]


def test_what_goes_wrong_while_drawing_ahead_reaches_who_asks() -> None:
    drawer = FakeDrawer()
    drawer.error = RuntimeError("probability tensor contains nan")
    with ScoreQueue(Counted()) as queue:
        ahead = AsyncRollout(drawer, queue.submit, most_age=4)
        chunks = chunks_of(MESSAGES, IDS, Sampling(4, seed=1), 3)
        ahead.begin(chunks, version=0)
        with pytest.raises(RuntimeError, match="probability tensor"):
            list(ahead.draw(chunks, version=0))


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_weights_travel_in_shards_bit_for_bit(kind: torch.dtype) -> None:
    sender, receiver = tiny_llama(0).to(kind), tiny_llama(1).to(kind)
    sent = shards(trained(sender), most=5_000)
    assert len(sent) > 3
    for shard in sent:
        load(receiver, shard)
    assert weights_sha256(receiver) == weights_sha256(sender)


def test_parts_scored_apart_come_back_in_order() -> None:
    texts = [f"text {i}" for i in range(40)]
    places = [place_of(user("sun"), text, 3) for text in texts]
    assert set(places) == {0, 1, 2}
    order = [i for own in range(3) for i, place in enumerate(places) if place == own]
    parts = [[i for i in order if places[i] == own] for own in range(3)]
    scored = [
        Scores([float(i) for i in own], {"a": [-float(i) for i in own]}, cut=[i == 7 for i in own])
        for own in parts
    ]
    whole = in_order(scored, order)
    assert whole.values == [float(i) for i in range(40)]
    assert whole.parts["a"] == [-float(i) for i in range(40)]
    assert [i for i, cut in enumerate(whole.cut) if cut] == [7]


def test_a_machine_without_ray_says_which_extra_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RecipeError, match=r"concord-server\[ray\]") as raised:
        import_ray()
    assert raised.value.kind == "missing_package"


def test_settings_that_contradict_each_other_are_named() -> None:
    for values, name in (
        ({"rollout_lag": 1}, "rollout_workers"),
        ({"rollout_max_age": 3}, "rollout_lag"),
    ):
        with pytest.raises(RecipeError, match=name):
            settings_for("ppo", values)
    lagged = {"rollout_lag": 1, "rollout_workers": 2, "batch_size": 8, "minibatch_size": 4}
    assert settings_for("ppo", lagged | {"update_epochs": 3}).oldest_rollout == 6
    assert settings_for("ppo", lagged | {"rollout_max_age": 5}).oldest_rollout == 5
    assert settings_for("ppo", {}).oldest_rollout == 0


def test_actors_beside_several_ranks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RecipeError, match="reward_workers") as raised:
        open_actors(None, ppo(rollout_workers=1), None, half=False)
    assert raised.value.kind == "bad_config"

"""A pool of actors over a Ray that is made up: who dies, who hangs, who is only slow."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from workers.contract.events import Fault, RecipeError
from workers.ray.pool import LOOK_S, READY_S, TRIES, Pool, Stopped


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
        world,  # type: ignore[arg-type]
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
    with pytest.raises(RecipeError, match=r"while it started: The actor died .* Boom: no room"):
        pool_of(World(start_s=[Died(told)]))


def test_who_waits_for_a_pool_that_is_stopped_is_told() -> None:
    world = World(takes=lambda actor, call: 1e9)
    pool = pool_of(world)
    pool.stop()
    with pytest.raises(Stopped):
        list(pool.map(work(1)))

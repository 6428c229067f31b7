"""Actors that do alike work: whoever is free takes the next piece, and who dies or hangs is
replaced.
"""

import hashlib
import json
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from measures.messages import Messages
from workers.artifacts import Store
from workers.context import RunContext
from workers.contract.events import Fault, RecipeError
from workers.contract.jobs import FLOAT32, JobSpec
from workers.ray.cluster import Cluster
from workers.rewards.build import build_reward
from workers.rewards.source import RewardSource, Scores, join

TRIES = 3  # of one piece: an actor that it kills would be killed again
READY_S = 600.0  # to start, which loads the model
LIMIT_S = 600.0  # over one piece
LOOK_S = 1.0  # between two looks at who takes too long

Call = Callable[[Any], Any]  # an actor's handle -> the reference to what it will answer


@dataclass(frozen=True, slots=True)
class Refused:
    """A `RecipeError` on its way from an actor: exceptions with several arguments do not travel."""

    kind: str
    fault: str
    message: str

    @classmethod
    def of(cls, error: RecipeError) -> "Refused":
        return cls(error.kind, error.fault, error.message)

    def error(self) -> RecipeError:
        return RecipeError(self.kind, Fault(self.fault), self.message)


class Stopped(Exception):
    """Nobody waits for the answers any more."""


class Pool:
    """`size` actors made by `start`. `replaced`, `redone`: how many died, and what was done again
    because of it. An actor that takes over `limit_s` seconds for one piece, its start not counted,
    hangs for all we know: it is killed, and so one of the dead."""

    def __init__(
        self,
        ray: ModuleType,
        start: Callable[[], Any],
        size: int,
        *,
        what: str,
        limit_s: float = LIMIT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.replaced = 0
        self.redone = 0
        self.what = what
        self.limit_s = limit_s
        errors = ray.exceptions
        self._gone = (errors.RayActorError, errors.ObjectLostError, errors.WorkerCrashedError)
        self._ray = ray
        self._start = start
        self._clock = clock
        self._until: dict[int, float] = {}  # actor -> when it must have answered
        self._starting: dict[int, Any] = {}  # actor -> reference to its first sign of life
        self._hung: set[int] = set()
        self._stopped = False
        self.actors = [start() for _ in range(size)]
        self._await_all()

    def _await_all(self) -> None:
        """Until each answers. Ray waits for ever for a processor that no machine has."""
        ray = self._ray
        answers = [actor.ready.remote() for actor in self.actors]
        here, missing = ray.wait(answers, num_returns=len(answers), timeout=READY_S)
        if missing:
            has = {name: n for name, n in ray.cluster_resources().items() if name in ("CPU", "GPU")}
            raise RecipeError(
                "ray_unavailable",
                Fault.MACHINE,
                f"{len(missing)} of {len(answers)} {self.what} did not start within "
                f"{READY_S:.0f} s; the Ray cluster has {has}",
            )
        for answer in here:
            try:
                self._answer(answer)
            except self._gone as error:
                raise RecipeError(
                    "actor_lost",
                    Fault.MACHINE,
                    f"One of the {self.what} died while it started: {_why(error)}",
                ) from error

    def map(self, calls: Sequence[Call], places: Sequence[int] | None = None) -> Iterator[Any]:
        """The answers in the order of `calls`, each as soon as it and all before it are there.
        `places`: by whom each is to be answered, else by whoever is free."""
        waiting = deque(range(len(calls)))
        running: dict[Any, tuple[int, int]] = {}  # reference -> (call, actor)
        tries = [0] * len(calls)
        done: dict[int, Any] = {}
        for index in range(len(calls)):
            while index not in done:
                if self._stopped:
                    raise Stopped
                self._hand_out(calls, places, waiting, running)
                here = self._ray.wait(list(running), num_returns=1, timeout=LOOK_S)[0]
                if not here:
                    self._end_overdue(running)
                for reference in here:
                    call, actor = running.pop(reference)
                    try:
                        done[call] = self._answer(reference)
                    except self._gone as error:
                        tries[call] += 1
                        if tries[call] >= TRIES:
                            raise self._lost(actor, error) from error
                        self.redone += 1
                        self.replace(actor)
                        waiting.appendleft(call)
            yield done.pop(index)

    def _hand_out(
        self,
        calls: Sequence[Call],
        places: Sequence[int] | None,
        waiting: deque[int],
        running: dict[Any, tuple[int, int]],
    ) -> None:
        busy = {actor for _, actor in running.values()}
        for actor in range(len(self.actors)):
            if actor in busy:
                continue
            call = next((c for c in waiting if places is None or places[c] == actor), None)
            if call is not None:
                waiting.remove(call)
                running[calls[call](self.actors[actor])] = (call, actor)
                if actor not in self._starting:
                    self._until[actor] = self._clock() + self.limit_s

    def _end_overdue(self, running: dict[Any, tuple[int, int]]) -> None:
        """Kill who should have answered; its reference then says so. Called when nobody has just
        answered: we may have been away for longer than the limit, with answers lying here."""
        now = self._clock()
        for _, actor in running.values():
            first = self._starting.get(actor)
            if first is not None and self._ray.wait([first], timeout=0)[0]:
                del self._starting[actor]
                self._until[actor] = now + self.limit_s
            elif now > self._until[actor]:
                self._hung.add(actor)
                self._ray.kill(self.actors[actor])

    def _answer(self, reference: Any) -> Any:
        answer = self._ray.get(reference)
        if isinstance(answer, Refused):
            raise answer.error()
        return answer

    def _lost(self, actor: int, error: Exception) -> RecipeError:
        how = (
            f"it gave no answer for {self.limit_s:.0f} s (worker_timeout)"
            if actor in self._hung
            else _why(error)
        )
        return RecipeError(
            "actor_lost",
            Fault.MACHINE,
            f"{TRIES} of the {self.what} were lost one after another over the same work. "
            f"The last: {how}",
        )

    def replace(self, index: int) -> None:
        """A new actor in the place of a dead one."""
        self.replaced += 1
        self.actors[index] = self._start()
        self._hung.discard(index)
        self._starting[index] = self.actors[index].ready.remote()
        self._until[index] = self._clock() + READY_S

    def stop(self) -> None:
        """Whoever waits for an answer, in another thread, is told within a second or so."""
        self._stopped = True

    def close(self) -> None:
        for actor in self.actors:
            self._ray.kill(actor)
        self.actors = []


def _why(error: Exception) -> str:
    """Ray says what happened in the first line; an error of an actor's start ends its text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [repr(error)]
    return lines[0] if "creation task" not in lines[0] else f"{lines[0]} {lines[-1]}"


# Scoring by actors, each with the whole reward: a source like any other.
#
# A text is always scored by the same actor, chosen by its hash, so what that actor remembers of it
# (docs/rewards.md, caches) is found again.


class RewardActor:
    """Builds the reward from the job, as the trainer would: its inputs come from the store."""

    def __init__(
        self,
        spec: JobSpec,
        reward: Mapping[str, Any],
        batch_size: int,
        threads: int,
        precision: str = FLOAT32,
    ) -> None:
        torch.set_num_threads(threads)
        self._folder = tempfile.TemporaryDirectory(prefix="reward-")
        self._source: RewardSource | None = None
        self._made = (spec, dict(reward), batch_size, precision)

    def ready(self) -> Refused | float | None:
        """The threshold of an ensemble, or what is wrong with the reward."""
        try:
            return getattr(self._reward(), "threshold", None)
        except RecipeError as error:
            return Refused.of(error)

    def score(self, prompts: Sequence[Messages], responses: Sequence[str]) -> Scores | Refused:
        try:
            return self._reward().score(prompts, responses)
        except RecipeError as error:
            return Refused.of(error)

    def _reward(self) -> RewardSource:
        if self._source is None:
            spec, reward, batch_size, precision = self._made
            context = RunContext(spec, Store(spec.artifacts_url), Path(self._folder.name))
            self._source = build_reward(context, reward, batch_size=batch_size, precision=precision)
        return self._source


class RayReward:
    """A `RewardSource` of `workers` actors. Several threads may ask."""

    def __init__(
        self,
        cluster: Cluster,
        spec: JobSpec,
        reward: Mapping[str, Any],
        *,
        workers: int,
        batch_size: int,
        precision: str = FLOAT32,
        gpus: float = 0.0,
        limit_s: float = LIMIT_S,
    ) -> None:
        ray = cluster.ray
        make = ray.remote(RewardActor).options(num_cpus=1, num_gpus=gpus, max_restarts=0)
        threads = max(1, torch.get_num_threads() // workers)
        self.pool = Pool(
            ray,
            lambda: make.remote(spec, dict(reward), batch_size, threads, precision),
            workers,
            what="reward workers",
            limit_s=limit_s,
        )
        self.threshold: float | None = ray.get(self.pool.actors[0].ready.remote())
        self._lock = threading.Lock()

    def score(self, prompts: Sequence[Messages], responses: Sequence[str]) -> Scores:
        count = len(self.pool.actors)
        whose = [place_of(p, r, count) for p, r in zip(prompts, responses, strict=True)]
        parts = [[i for i, place in enumerate(whose) if place == own] for own in range(count)]
        asked = [own for own in range(count) if parts[own]]
        calls = [
            _call([prompts[i] for i in parts[own]], [responses[i] for i in parts[own]])
            for own in asked
        ]
        with self._lock:
            scored = list(self.pool.map(calls, asked))
        order = [i for own in asked for i in parts[own]]
        return in_order(scored, order)

    def close(self) -> None:
        self.pool.close()


def _call(prompts: Sequence[Messages], responses: Sequence[str]) -> Call:
    return lambda actor: actor.score.remote(prompts, responses)


def place_of(prompt: Messages, response: str, count: int) -> int:
    """Which of `count` actors scores this text: the same in every process and run."""
    digest = hashlib.sha256(json.dumps([prompt, response], sort_keys=True).encode()).digest()
    return int.from_bytes(digest[:8], "big") % count


def in_order(scored: Sequence[Scores], order: Sequence[int]) -> Scores:
    """Scores of parts as one; `order` says which text each of theirs belongs to."""
    whole = join(list(scored))
    back = sorted(range(len(order)), key=order.__getitem__)
    moved: dict[str, Any] = {}
    for each in fields(Scores):
        value = getattr(whole, each.name)
        if isinstance(value, list):
            moved[each.name] = [value[i] for i in back]
        elif isinstance(value, Mapping):
            moved[each.name] = {name: [v[i] for i in back] for name, v in value.items()}
        else:
            moved[each.name] = value
    return Scores(**moved)

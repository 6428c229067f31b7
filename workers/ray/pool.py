"""Actors that do alike work: whoever is free takes the next piece, and who dies is replaced."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from workers.context import RecipeError
from workers.contract.events import Fault

TRIES = 3  # of one piece: an actor that it kills would be killed again
READY_S = 600.0

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


class Pool:
    """`size` actors made by `start`. `replaced`, `redone`: how many died, and what was done again
    because of it."""

    def __init__(self, ray: ModuleType, start: Callable[[], Any], size: int, *, what: str) -> None:
        self.replaced = 0
        self.redone = 0
        self.what = what
        errors = ray.exceptions
        self._gone = (errors.RayActorError, errors.ObjectLostError, errors.WorkerCrashedError)
        self._ray = ray
        self._start = start
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
            self._answer(answer)

    def map(self, calls: Sequence[Call], places: Sequence[int] | None = None) -> Iterator[Any]:
        """The answers in the order of `calls`, each as soon as it and all before it are there.
        `places`: by whom each is to be answered, else by whoever is free."""
        waiting = deque(range(len(calls)))
        running: dict[Any, tuple[int, int]] = {}  # reference -> (call, actor)
        tries = [0] * len(calls)
        done: dict[int, Any] = {}
        for index in range(len(calls)):
            while index not in done:
                self._hand_out(calls, places, waiting, running)
                for reference in self._ray.wait(list(running), num_returns=1)[0]:
                    call, actor = running.pop(reference)
                    try:
                        done[call] = self._answer(reference)
                    except self._gone as error:
                        tries[call] += 1
                        if tries[call] >= TRIES:
                            raise self._lost(error) from error
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

    def _answer(self, reference: Any) -> Any:
        answer = self._ray.get(reference)
        if isinstance(answer, Refused):
            raise answer.error()
        return answer

    def _lost(self, error: Exception) -> RecipeError:
        return RecipeError(
            "actor_lost",
            Fault.MACHINE,
            f"One of the {self.what} died {TRIES} times over the same work: "
            f"{str(error).splitlines()[0]}",
        )

    def replace(self, index: int) -> None:
        """A new actor in the place of a dead one."""
        self.replaced += 1
        self.actors[index] = self._start()

    def close(self) -> None:
        for actor in self.actors:
            self._ray.kill(actor)
        self.actors = []

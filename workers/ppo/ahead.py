"""One step off: the answers of the next step are drawn elsewhere while the policy learns here."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from workers.data.snapshot import Messages
from workers.rewards.pending import Pending
from workers.rollouts.drawing import Chunk, Drawn

if TYPE_CHECKING:
    from workers.ray.drawer import RayDrawer

Submit = Callable[[Sequence[Messages], Sequence[str]], Pending]


@dataclass(slots=True)
class _Held:
    """Answers on their way, and their scores."""

    chunks: list[Chunk]
    version: int
    thread: threading.Thread | None = None
    drawn: list[Drawn] = field(default_factory=list)
    scores: list[Pending] = field(default_factory=list)
    error: BaseException | None = None


class Ahead:
    """A `Drawer` that has the answers already where it was told what would be asked.

    `dropped`: chunks drawn ahead in vain, for they were over `most_age` optimizer steps old, or
    others were asked for.
    """

    def __init__(self, drawer: "RayDrawer", submit: Submit, *, most_age: int) -> None:
        self.dropped = 0
        self.most_age = most_age
        self._drawer = drawer
        self._submit = submit
        self._held: _Held | None = None
        self._scores: deque[Pending] = deque()
        self._closed = False

    def begin(self, chunks: Sequence[Chunk], *, version: int) -> None:
        """Draw `chunks` with the policy as it stands, and hand them in to be scored, while the
        caller goes on. Nobody else may hand in until they are asked for."""
        self._drawer.publish(version)
        held = self._held = _Held(list(chunks), version)
        held.thread = threading.Thread(target=self._run, args=(held,), name="ahead", daemon=True)
        held.thread.start()

    def _run(self, held: _Held) -> None:
        try:
            for drawn in self._drawer.draw_published(held.chunks):
                if self._closed:
                    return
                held.scores.append(self._submit(drawn.chunk.messages, drawn.responses.texts))
                held.drawn.append(drawn)
        except BaseException as error:  # who asks for the answers must get it
            held.error = error

    def draw(self, chunks: Sequence[Chunk], *, version: int) -> Iterator[Drawn]:
        held = self._taken()
        if held is not None and held.error is not None:
            raise held.error
        fits = held and held.chunks == list(chunks) and version - held.version <= self.most_age
        if held is not None and fits:
            self._scores = deque(held.scores)
            yield from held.drawn
            return
        if held is not None:
            self.dropped += len(held.chunks)
        yield from self._drawer.draw(chunks, version=version)

    def scores_of(self, messages: Sequence[Messages], texts: Sequence[str]) -> Pending:
        """Of the answers drawn last, in their order: those handed in before, or handed in now."""
        return self._scores.popleft() if self._scores else self._submit(messages, texts)

    def _taken(self) -> _Held | None:
        """What was drawn ahead, once it is there."""
        held, self._held = self._held, None
        if held is not None and held.thread is not None:
            held.thread.join()
        return held

    def close(self) -> None:
        """Wait for the thread, which uses what is closed next."""
        self._closed = True
        self._taken()

"""Scoring in the background: who generates hands in answers and collects the scores later.

    queue = ScoreQueue(source)
    pending = [queue.submit(prompts, texts) for prompts, texts in chunks_as_they_come]
    scores = join([one.result() for one in pending])

One thread scores, in batches formed across submissions. Which texts share a batch depends on the
order of `submit` and `result` alone, never on how fast either side is: a run that is repeated or
resumed forms the same batches.
"""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from workers.data.snapshot import Messages
from workers.rewards.source import RewardSource, Scores, join, take

BATCH = 64


class Closed(RuntimeError):
    """The queue was closed before these answers were scored."""


@dataclass(frozen=True, slots=True)
class _Row:
    pending: "Pending"
    prompt: Messages
    response: str


class Pending:
    """Scores that are being made."""

    def __init__(self, owner: "ScoreQueue", count: int) -> None:
        self._owner = owner
        self._missing = count
        self._pieces: list[Scores] = []
        self._error: BaseException | None = None
        self._done = threading.Event()
        if not count:
            self._pieces.append(Scores([]))
            self._done.set()

    def done(self) -> bool:
        return self._done.is_set()

    def result(self) -> Scores:
        """The scores, in the order handed in; raises what the source raised."""
        self._owner._await(self)
        if self._error is not None:
            raise self._error
        return join(self._pieces)

    def _deliver(self, piece: Scores) -> None:
        """Pieces come in order: there is one thread, and batches are worked on in turn."""
        self._pieces.append(piece)
        self._missing -= len(piece.values)
        if not self._missing:
            self._done.set()

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or error
        self._done.set()


class ScoreQueue:
    """Batches hold `batch_size` texts at most, and at least half as many unless somebody waits.

    `waited_s`: how long `result` kept its callers waiting. `worked_s`: how long the source worked.
    """

    def __init__(
        self,
        source: RewardSource,
        *,
        batch_size: int = BATCH,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.waited_s = 0.0
        self.worked_s = 0.0
        self._source = source
        self._batch_size = batch_size
        self._clock = clock
        self._open: list[_Row] = []  # handed in, in no batch yet
        self._batches: queue.SimpleQueue[list[_Row] | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="scoring", daemon=True)
        self._thread.start()

    def submit(self, prompts: Sequence[Messages], responses: Sequence[str]) -> Pending:
        if self._closed:
            raise Closed("the queue of scores is closed")
        pending = Pending(self, len(responses))
        rows = zip(prompts, responses, strict=True)
        self._open.extend(_Row(pending, prompt, response) for prompt, response in rows)
        while len(self._open) >= max(1, self._batch_size // 2):
            self._hand_over()
        return pending

    def close(self) -> None:
        """End the thread, after the batch at hand. What is not scored by then never will be."""
        if self._closed:
            return
        self._closed = True
        self._batches.put(None)
        self._thread.join()
        for row in self._open:
            row.pending._fail(Closed("the queue of scores was closed before this was scored"))
        self._open = []

    def __enter__(self) -> "ScoreQueue":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _await(self, pending: Pending) -> None:
        if pending.done():
            return
        if any(row.pending is pending for row in self._open):
            while self._open:  # the rest of its batch is scored along
                self._hand_over()
        started = self._clock()
        pending._done.wait()
        self.waited_s += self._clock() - started

    def _hand_over(self) -> None:
        self._batches.put(self._open[: self._batch_size])
        self._open = self._open[self._batch_size :]

    def _run(self) -> None:
        while (batch := self._batches.get()) is not None:
            if self._closed:
                for row in batch:
                    row.pending._fail(Closed("the queue of scores was closed"))
                continue
            started = self._clock()
            try:
                scores = self._source.score(
                    [row.prompt for row in batch], [row.response for row in batch]
                )
                _share_out(batch, scores)
            except BaseException as error:  # who waits for it must get it
                for row in batch:
                    row.pending._fail(error)
            finally:
                self.worked_s += self._clock() - started


def _share_out(batch: Sequence[_Row], scores: Scores) -> None:
    """Each submission gets its stretch of the batch."""
    if len(scores.values) != len(batch):
        raise RuntimeError(f"{len(batch)} texts were scored with {len(scores.values)} scores")
    start = 0
    while start < len(batch):
        owner = batch[start].pending
        stop = start
        while stop < len(batch) and batch[stop].pending is owner:
            stop += 1
        owner._deliver(take(scores, start, stop))
        start = stop

"""What every source of rewards answers: text in, one number per response out."""

import queue
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from measures.messages import Messages
from workers import ranks


@dataclass(frozen=True, slots=True)
class Scores:
    """Raw scores, one per response, and the parts they are made of (by component).

    Every list has one entry per response. None where the source has nothing to say of it.
    """

    values: list[float]
    parts: Mapping[str, list[float]] = field(default_factory=dict)
    truncated: int = 0  # responses of which the source could not read the end
    # An ensemble's: the deviation over its members after each was standardised on its validation
    # answers (workers.rewards.ensemble).
    disagreement: list[float] | None = None
    cut: list[bool] | None = None  # which responses were not read to the end
    reviews: list[str | None] | None = None  # why people must see a response
    blocked: list[bool] | None = None  # which responses break a hard constraint
    # Those of the blocked whose value says nothing of it, as the rule they break has no penalty:
    # they must give no gradient, or breaking the rule would be rewarded.
    withheld: list[bool] | None = None
    known: list[bool] | None = None  # which scores a cache had
    reasons: list[str | None] | None = None  # why a response has its score

    @property
    def asked(self) -> int | None:
        """Texts that a cache was asked for; None without one."""
        return None if self.known is None else len(self.known)

    @property
    def cache_hits(self) -> int | None:
        return None if self.known is None else sum(self.known)

    def parts_of(self, index: int) -> dict[str, float]:
        return {name: values[index] for name, values in self.parts.items()}


class RewardSource(Protocol):
    """Scores text, so a source may use any tokenizer or none. Same text, same score."""

    def score(self, prompts: Sequence[Messages], responses: Sequence[str]) -> Scores: ...


def join(pieces: Sequence[Scores]) -> Scores:
    """Scores of one source, asked piece by piece, as one answer in that order."""
    pieces = [piece for piece in pieces if piece.values]  # of no text, nothing is known
    if len(pieces) < 2:
        return pieces[0] if pieces else Scores([])
    names = pieces[0].parts
    return Scores(
        [value for piece in pieces for value in piece.values],
        {name: [v for piece in pieces for v in piece.parts[name]] for name in names},
        sum(piece.truncated for piece in pieces),
        _joined([piece.disagreement for piece in pieces]),
        _joined([piece.cut for piece in pieces]),
        _joined([piece.reviews for piece in pieces]),
        _joined([piece.blocked for piece in pieces]),
        _joined([piece.withheld for piece in pieces]),
        _joined([piece.known for piece in pieces]),
        _joined([piece.reasons for piece in pieces]),
    )


def take(scores: Scores, start: int, stop: int) -> Scores:
    """The scores of the responses `start` to `stop`. A source that counts what it could not read
    says which, or the count would be nobody's."""

    def cut(values: list[Any] | None) -> list[Any] | None:
        return None if values is None else values[start:stop]

    which = cut(scores.cut)
    return Scores(
        scores.values[start:stop],
        {name: values[start:stop] for name, values in scores.parts.items()},
        sum(which or ()),
        cut(scores.disagreement),
        which,
        cut(scores.reviews),
        cut(scores.blocked),
        cut(scores.withheld),
        cut(scores.known),
        cut(scores.reasons),
    )


def _joined(lists: Sequence[list[Any] | None]) -> list[Any] | None:
    """None unless every piece has it: one source says it of every text or of none."""
    if not lists or any(values is None for values in lists):
        return None
    return [value for values in lists for value in values or []]


# A planted reward: how often a word occurs. For tests of the engine, not for people.


class TokenCount:
    """Counts `token` as a whole word, whatever its case; more than `cap` count as `cap`."""

    def __init__(self, token: str, *, cap: int | None = None) -> None:
        self._word = re.compile(rf"(?<!\w){re.escape(token)}(?!\w)", re.IGNORECASE)
        self._cap = cap

    def score(self, prompts: Sequence[Messages], responses: Sequence[str]) -> Scores:
        counts = [float(len(self._word.findall(text))) for text in responses]
        values = [min(count, self._cap) for count in counts] if self._cap else counts
        return Scores(values, {"token_count": values})


# Scores with an origin and a unit, for alerts: c = σ((r − m)/T), SPEC F2.
#
# Raw Bradley–Terry scores have neither, so a bound on them means nothing. c is the chance, as far
# as
# the reward model is calibrated, that people prefer the answer to a typical one of the baseline:
# 0.5
# is as good as it. Not for the update: far from the baseline it hardly moves.

Floats = NDArray[np.float64]


def calibrate(
    scores: Sequence[float], baseline: Sequence[float] | float, temperature: float = 1.0
) -> Floats:
    """(n,) raw scores -> (n,) between 0 and 1.

    baseline: m, raw score: per answer the mean over what the baseline (SFT or reference) answers to
    the same prompt, four answers where they exist; one number where it is known over prompts only,
    which is coarser, as prompts differ in what their answers score. temperature: T, raw score, from
    the reward model's assessment, or 1. `ValueError` where T is not over 0.
    """
    if not temperature > 0:
        raise ValueError(f"a temperature of {temperature} does not calibrate")
    return expit((np.asarray(scores, float) - np.asarray(baseline, float)) / temperature)


# Several sources as one: a weighted sum, with every component in view.


@dataclass(frozen=True, slots=True)
class Part:
    """A component; its raw score is multiplied by `weight`."""

    name: str
    weight: float
    source: RewardSource


class WeightedSum:
    """Σ weight · score. `parts` hold each component's raw score under its name, and what it is made
    of itself as `<name>/<part>`.

    What one component blocks or withholds is blocked or withheld; reasons for review stand beside
    each other. The disagreement is that of the first component that has one.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = list(parts)

    @property
    def threshold(self) -> float | None:
        known = (getattr(part.source, "threshold", None) for part in self.parts)
        return next((threshold for threshold in known if threshold is not None), None)

    def score(self, prompts: Sequence[Messages], responses: Sequence[str]) -> Scores:
        scored = [part.source.score(prompts, responses) for part in self.parts]
        columns = [
            [part.weight * value for value in scores.values]
            for part, scores in zip(self.parts, scored, strict=True)
        ]
        parts: dict[str, list[float]] = {}
        for part, scores in zip(self.parts, scored, strict=True):
            parts[part.name] = list(scores.values)
            if len(scores.parts) > 1:  # else the component is its only part
                inner = scores.parts.items()
                parts |= {f"{part.name}/{name}": values for name, values in inner}
        cut = _either([scores.cut for scores in scored])
        return Scores(
            [sum(row) for row in zip(*columns, strict=True)],
            parts,
            sum(cut or ()),
            next((scores.disagreement for scores in scored if scores.disagreement), None),
            cut,
            _together([scores.reviews for scores in scored]),
            _either([scores.blocked for scores in scored]),
            _either([scores.withheld for scores in scored]),
            _all([scores.known for scores in scored]),
            _together([scores.reasons for scores in scored]),
        )


CORRECT, FORMED = "correct", "formed"  # parts that say of each answer whether it is so, 1 or 0


def verifier_metrics(scores: Scores) -> dict[str, float]:
    """Shares of answers that are right by every verifier of the reward, and of the form that its
    verifiers read and its rules of format ask for; nothing where no part says so."""
    found = {}
    for name, part in (("correct_share", CORRECT), ("form_share", FORMED)):
        said = [values for key, values in scores.parts.items() if key.split("/")[-1] == part]
        if said:
            both = [min(row) for row in zip(*said, strict=True)]
            found[f"verifier/{name}"] = sum(both) / len(both)
    return found


def _either(lists: Sequence[list[bool] | None]) -> list[bool] | None:
    said = [values for values in lists if values is not None]
    return [any(row) for row in zip(*said, strict=True)] if said else None


def _all(lists: Sequence[list[bool] | None]) -> list[bool] | None:
    said = [values for values in lists if values is not None]
    return [all(row) for row in zip(*said, strict=True)] if said else None


def _together(lists: Sequence[list[str | None] | None]) -> list[str | None] | None:
    said = [values for values in lists if values is not None]
    if not said:
        return None
    return [". ".join(filter(None, row)) or None for row in zip(*said, strict=True)]


# Scoring in the background: who generates hands in answers and collects the scores later.
#
#     queue = ScoreQueue(source)
#     pending = [queue.submit(prompts, texts) for prompts, texts in chunks_as_they_come]
#     scores = join([one.result() for one in pending])
#
# One thread scores, in batches formed across submissions. Which texts share a batch depends on the
# order of `submit` and `result` alone, never on how fast either side is: a run that is repeated or
# resumed forms the same batches.

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


# Scoring by all ranks of a job: each scores what it drew, and all of them hold every score.


class RankedQueue:
    """A `ScoreQueue` on each rank. Every rank hands in the same answers in the same order; they
    are scored by one rank each, in turn, which then tells the others."""

    def __init__(self, own: ScoreQueue) -> None:
        self._own = own
        self._handed_in = 0

    @property
    def worked_s(self) -> float:
        return self._own.worked_s

    @property
    def waited_s(self) -> float:
        return self._own.waited_s

    def submit(self, prompts: Sequence[Messages], responses: Sequence[str]) -> "RankedPending":
        owner = self._handed_in % ranks.world()
        self._handed_in += 1
        mine = owner == ranks.rank()
        return RankedPending(owner, self._own.submit(prompts, responses) if mine else None)

    def close(self) -> None:
        self._own.close()


@dataclass(frozen=True, slots=True)
class RankedPending:
    """Scores that the rank `owner` is making; here, where there is a `pending`."""

    owner: int
    pending: Pending | None

    def result(self) -> Scores:
        """The scores; every rank must ask, in the same order."""
        scores: Scores = ranks.from_rank(self.owner, self.pending and self.pending.result())
        return scores

"""Scoring by all ranks of a job: each scores what it drew, and all of them hold every score."""

from collections.abc import Sequence
from dataclasses import dataclass

from workers import ranks
from workers.data.snapshot import Messages
from workers.rewards.pending import Pending, ScoreQueue
from workers.rewards.source import Scores


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

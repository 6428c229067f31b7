"""MACE: an annotator either knows, or votes by a habit of their own."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from measures.consensus.posterior import Floats

_INNER = 3


@dataclass(slots=True)
class Mace:
    """P(vote c | truth k) = know_j [c = k] + (1 − know_j) habit_jc.

    Source: Hovy, Berg-Kirkpatrick, Vaswani & Hovy, NAACL 2013. Prior: Beta on know, Dirichlet on
    habit around the crowd's own votes.
    """

    know_prior: tuple[float, float] = (1.0, 1.0)
    habit_weight: float = 5.0
    know: Floats = field(default_factory=lambda: np.zeros(0))
    habit: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    crowd: Floats = field(default_factory=lambda: np.zeros(0))

    def learn(self, counts: Floats) -> None:
        k = counts.shape[-1]
        cast = counts.sum(axis=(0, 1)) + 1.0
        self.crowd = cast / cast.sum()
        if self.habit.shape != (len(counts), k):
            self.know = np.full(len(counts), 0.5)
            self.habit = np.tile(self.crowd, (len(counts), 1))
        self.know, self.habit = self._stepped(counts, self.know, self.habit)

    def matrices(self, counts: Floats, of: NDArray[np.int64] | None = None) -> Floats:
        if of is None and len(counts) == len(self.know):
            know, habit = self.know, self.habit
        else:
            if of is None:
                know = np.full(len(counts), 0.5)
                habit = np.tile(self.crowd, (len(counts), 1))
            else:
                know, habit = self.know[of], self.habit[of]
            know, habit = self._stepped(counts, know, habit)
        k = counts.shape[-1]
        made = np.repeat(((1 - know)[:, None] * habit)[:, None, :], k, axis=1)
        diagonal = np.arange(k)
        made[:, diagonal, diagonal] += know[:, None]
        return made

    def _stepped(self, counts: Floats, know: Floats, habit: Floats) -> tuple[Floats, Floats]:
        right = np.diagonal(counts, axis1=-2, axis2=-1)
        cast = counts.sum(axis=-2)
        total = cast.sum(axis=-1)
        first, second = self.know_prior
        for _ in range(_INNER):
            chance = know[:, None] / np.maximum(know[:, None] + (1 - know)[:, None] * habit, 1e-300)
            known = right * chance
            by_habit = cast - known + self.habit_weight * self.crowd
            know = (known.sum(axis=-1) + first) / (total + first + second)
            habit = by_habit / by_habit.sum(axis=-1, keepdims=True)
        return know, habit

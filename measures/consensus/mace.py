"""MACE: an annotator either knows what is right, or votes by a habit of their own."""

from dataclasses import dataclass, field

import numpy as np

from measures.consensus.posterior import Floats
from measures.consensus.votes import Ints

KNOW_WEIGHT, HABIT_WEIGHT = 4.0, 5.0
_STEPS = 3


@dataclass(slots=True)
class Mace:
    """P(vote c | truth k) = know_j [c = k] + (1 − know_j) habit_jc.

    Source: Hovy, Berg-Kirkpatrick, Vaswani & Hovy, "Learning whom to trust with MACE", NAACL 2013.
    Departures:

    - Priors: know_j has a Beta prior of `know_weight` votes around the crowd's share of votes cast
      knowingly, habit_j a Dirichlet of `habit_weight` votes around what the crowd votes when it
      does not know; both centres are learned. The paper has Beta(0.5, 0.5) and Dirichlet(10): it
      takes somebody with one agreeing vote for nearly sure to know, which loses on sparse crowds.
    - Posterior means instead of the digamma weights of variational Bayes.
    - One start, at the shares of the votes, instead of ten at random: labels cannot switch, and two
      runs agree. The truths' priors are estimated (the paper's are even).

    The split of j's votes into known and habitual ones is a small EM of its own on N. Every
    iteration of the outer loop does three steps of it, going on where the last one stopped.
    """

    know_weight: float = KNOW_WEIGHT
    habit_weight: float = HABIT_WEIGHT
    know: Floats = field(default_factory=lambda: np.zeros(0))
    habit: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    crowd_know: float = 0.5
    crowd_habit: Floats = field(default_factory=lambda: np.zeros(0))

    def learn(self, counts: Floats) -> None:
        k = counts.shape[-1]
        if self.habit.shape != (len(counts), k):
            self.know = np.full(len(counts), 0.5)
            self.crowd_habit = np.full(k, 1 / k)
            self.habit = np.tile(self.crowd_habit, (len(counts), 1))
        self.know, self.habit, known, unknown = self._stepped(counts, self.know, self.habit)
        self.crowd_know = float((known + 1) / (known + unknown.sum() + 2))
        self.crowd_habit = (unknown + 1) / (unknown.sum() + k)

    def matrices(self, counts: Floats, of: Ints | None = None) -> Floats:
        k = counts.shape[-1]
        if of is not None:
            know, habit, _, _ = self._stepped(counts, self.know[of], self.habit[of])
        elif len(counts) == len(self.know):
            know, habit = self.know, self.habit
        else:
            know = np.full(len(counts), self.crowd_know)
            habit = np.tile(self.crowd_habit, (len(counts), 1))
        made = np.repeat(((1 - know)[:, None] * habit)[:, None, :], k, axis=1)
        diagonal = np.arange(k)
        made[:, diagonal, diagonal] += know[:, None]
        return made

    def _stepped(
        self, counts: Floats, know: Floats, habit: Floats
    ) -> tuple[Floats, Floats, float, Floats]:
        """know (m,), habit (m, K), votes known in all, votes by habit per choice (K,)."""
        right = np.diagonal(counts, axis1=-2, axis2=-1)
        cast = counts.sum(axis=-2)
        total = cast.sum(axis=-1)
        for _ in range(_STEPS):
            sure = know[:, None]
            known = right * (sure / np.maximum(sure + (1 - sure) * habit, 1e-300))
            unknown = cast - known
            know = (known.sum(axis=-1) + self.know_weight * self.crowd_know) / (
                total + self.know_weight
            )
            habit = unknown + self.habit_weight * self.crowd_habit
            habit /= habit.sum(axis=-1, keepdims=True)
        return know, habit, float(known.sum()), unknown.sum(axis=0)

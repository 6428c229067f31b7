"""One-coin Dawid–Skene: one number per annotator, the chance q to vote for what is right."""

from dataclasses import dataclass

import numpy as np

from measures.consensus.posterior import Floats
from measures.consensus.votes import Ints

# Beta(4, 1.5): mean 0.73, as good as four votes right and one and a half wrong.
RIGHT, WRONG = 4.0, 1.5


@dataclass(slots=True)
class OneCoin:
    """q_j = (right_j + 4) / (n_j + 5.5); the rest, 1 − q_j, is spread over the other choices.

    With two choices an item's log-odds are Σ ± log(q_j / (1 − q_j)). Source: Dawid & Skene, Applied
    Statistics 28 (1979) with one parameter per annotator; prior Beta(4, 1.5) on q.

    Departures. q is the mean of its Beta posterior, not the mode (which is the mode under
    Beta(5, 2.5), so the loop still climbs one objective): an annotator never seen has q = 4/5.5 =
    0.73. With more than two choices wrong votes are spread evenly over the K − 1 others, which is
    what makes it one coin; where ties are taken for A or B more often than A for B, that is wrong,
    and the check says so.
    """

    right: float = RIGHT
    wrong: float = WRONG

    def learn(self, counts: Floats) -> None:
        """Nothing is shared but the prior, which is given."""

    def matrices(self, counts: Floats, of: Ints | None = None) -> Floats:
        k = counts.shape[-1]
        if k == 1:
            return np.ones(counts.shape)
        right = np.trace(counts, axis1=-2, axis2=-1)
        total = counts.sum(axis=(-2, -1))
        q = (right + self.right) / (total + self.right + self.wrong)
        made = np.empty(counts.shape)
        made[...] = ((1 - q) / (k - 1))[:, None, None]
        diagonal = np.arange(k)
        made[:, diagonal, diagonal] = q[:, None]
        return made

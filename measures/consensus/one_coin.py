"""One-coin Dawid–Skene: one number per annotator, the chance q to vote for what is right."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from measures.consensus.posterior import Floats

# Beta(4, 1.5): mean 0.73, as good as four votes right and one and a half wrong.
RIGHT, WRONG = 4.0, 1.5


@dataclass(slots=True)
class OneCoin:
    """q_j = (right_j + 4) / (n_j + 5.5); the rest, 1 − q_j, spread over the other choices.

    Source: Dawid & Skene, Applied Statistics 28 (1979) with one parameter per annotator; prior
    Beta(4, 1.5) on q. Departures: q is the mean of its Beta posterior, not the mode (which is the
    mode under Beta(5, 2.5), so the loop still climbs one objective): an annotator who was never
    seen has q = 4/5.5 = 0.73. The wrong votes are spread evenly over the K − 1 other choices.
    """

    right: float = RIGHT
    wrong: float = WRONG
    n_classes: int = field(default=2)

    def learn(self, counts: Floats) -> None:
        self.n_classes = counts.shape[-1]

    def matrices(self, counts: Floats, of: NDArray[np.int64] | None = None) -> Floats:
        k = counts.shape[-1]
        if k == 1:
            return np.ones_like(counts)
        right = np.trace(counts, axis1=-2, axis2=-1)
        total = counts.sum(axis=(-2, -1))
        q = (right + self.right) / np.maximum(total + self.right + self.wrong, 1e-12)
        made = np.empty(counts.shape)
        made[...] = ((1 - q) / (k - 1))[:, None, None]
        diagonal = np.arange(k)
        made[:, diagonal, diagonal] = q[:, None]
        return made

"""Full Dawid–Skene: a confusion matrix per annotator, shrunk towards the crowd's."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from measures.consensus.posterior import Floats


@dataclass(slots=True)
class DawidSkene:
    """Rows (N_jkc + s·C_kc) / (N_jk + s), C the crowd's own confusion matrix.

    Source: Dawid & Skene, Applied Statistics 28 (1979). Departure: each row has a Dirichlet prior
    with its mean at the crowd's row and the weight of `strength` votes, so that somebody with few
    votes is taken for an average member of the crowd.
    """

    strength: float = 8.0
    floor: float = 0.01
    crowd: Floats = field(default_factory=lambda: np.eye(2))

    def learn(self, counts: Floats) -> None:
        k = counts.shape[-1]
        pooled = counts.sum(axis=0) + self.floor * (1 + (k - 1) * np.eye(k))
        self.crowd = pooled / pooled.sum(axis=1, keepdims=True)

    def matrices(self, counts: Floats, of: NDArray[np.int64] | None = None) -> Floats:
        made = counts + self.strength * self.crowd
        return made / made.sum(axis=-1, keepdims=True)

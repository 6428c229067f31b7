"""Full Dawid–Skene: a confusion matrix per annotator, shrunk towards the crowd's."""

from dataclasses import dataclass, field

import numpy as np

from measures.consensus.posterior import Floats
from measures.consensus.votes import Ints

STRENGTH = 8.0
# Votes imagined for the crowd's own matrix: enough that it is defined where a choice never occurs.
_RIGHT, _WRONG = 0.1, 0.01


@dataclass(slots=True)
class DawidSkene:
    """Rows (N_jkc + s·C_kc) / (N_jk + s): C is the crowd's matrix, s = 8 votes per row.

    Source: Dawid & Skene, Applied Statistics 28 (1979). Departures:

    - Each row has a Dirichlet prior with its mean at the crowd's row, so that somebody with few
      votes is taken for an average member of the crowd (partial pooling, as in Paun et al., TACL 6,
      2018). Strengths of 3 and 20 were worse on simulated crowds on the whole; so was estimating
      the strength or shrinking towards the annotator's own accuracy first.
    - The crowd's matrix is pooled over all annotators and then made symmetric under exchanging A
      and B: which response is called A is arbitrary, and letting a sparse crowd be wrong about A
      more than about B lets the model drift to "all A". A single annotator may still have a side.
    """

    strength: float = STRENGTH
    symmetric: bool = True
    crowd: Floats = field(default_factory=lambda: np.eye(2))

    def learn(self, counts: Floats) -> None:
        k = counts.shape[-1]
        pooled = counts.sum(axis=0) + _WRONG + (_RIGHT - _WRONG) * np.eye(k)
        if self.symmetric and k > 1:
            swapped = np.arange(k)
            swapped[:2] = 1, 0
            pooled = (pooled + pooled[swapped][:, swapped]) / 2
        self.crowd = pooled / pooled.sum(axis=1, keepdims=True)

    def matrices(self, counts: Floats, of: Ints | None = None) -> Floats:
        made = counts + self.strength * self.crowd
        made /= made.sum(axis=-1, keepdims=True)
        return made

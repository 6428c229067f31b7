"""Full Dawid–Skene: a confusion matrix per annotator, shrunk towards the crowd's."""

from dataclasses import dataclass, field

import numpy as np

from measures.consensus.posterior import Floats
from measures.consensus.votes import Ints

# Votes per cell of a matrix for which the crowd's counts in everybody's.
STRENGTH = 4.0
# Votes imagined per truth in the crowd's own matrix, as many as the one-coin prior Beta(4, 1.5).
_RIGHT, _WRONG = 4.0, 1.5


@dataclass(slots=True)
class DawidSkene:
    """Rows (N_jkc + s·C_kc) / (N_jk + s): C is the crowd's matrix, s = 4 K votes.

    Source: Dawid & Skene, Applied Statistics 28 (1979). Departures:

    - Each row has a Dirichlet prior with its mean at the crowd's row, so that somebody with few
      votes is taken for an average member of the crowd (partial pooling, as in Paun et al., TACL 6,
      2018). Half of s lost on sparse crowds and twice as much on one-sided ones; estimating it,
      or shrinking towards the annotator's own accuracy first, was worse on the whole.
    - The crowd's matrix is pooled over all annotators, then made symmetric under exchanging A and B
      (which response is called A is arbitrary, and letting a sparse crowd be wrong about A more
      than about B lets the model drift to "all A"), then averaged with one in which every truth is
      recognised equally often and errors fall on the other choices as they do in all. Without that
      a rare choice turns into a class for whatever is hard: the votes are predicted better and the
      labels are wrong. A single annotator may still have a side, and see ties worse than others.
    """

    strength: float = STRENGTH
    right: float = _RIGHT
    wrong: float = _WRONG
    levelled: bool = True
    crowd: Floats = field(default_factory=lambda: np.eye(2))

    def learn(self, counts: Floats) -> None:
        k = counts.shape[-1]
        if k == 1:
            self.crowd = np.ones((1, 1))
            return
        wrong = self.wrong / (k - 1)
        pooled = counts.sum(axis=0) + wrong + (self.right - wrong) * np.eye(k)
        if self.levelled:
            swapped = np.arange(k)
            swapped[:2] = 1, 0
            pooled = (pooled + pooled[swapped][:, swapped]) / 2
        self.crowd = pooled / pooled.sum(axis=1, keepdims=True)
        if self.levelled:
            self.crowd = (self.crowd + _levelled(pooled)) / 2

    def matrices(self, counts: Floats, of: Ints | None = None) -> Floats:
        made = counts + self.strength * counts.shape[-1] * self.crowd
        made /= made.sum(axis=-1, keepdims=True)
        return made


def _levelled(pooled: Floats) -> Floats:
    """(K, K) rows with one accuracy for every truth, errors shared out as over all truths."""
    k = len(pooled)
    accuracy = np.trace(pooled) / pooled.sum()
    errors = pooled.sum(axis=0) - np.diag(pooled)
    rows = np.tile(errors, (k, 1)) * (1 - np.eye(k))
    rows *= (1 - accuracy) / rows.sum(axis=1, keepdims=True)
    return rows + accuracy * np.eye(k)

"""How much more data would help: a learning curve of the text model."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from measures.accuracy import pair_credit
from measures.datasets.shares import pair_share
from measures.estimate import Interval
from measures.intervals import dyadic_interval
from measures.textmodel import fit, folds_of

SHARES = (0.125, 0.25, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class LearningCurve:
    """pairs: rows trained on at each step; accuracy: of each; doubling: last step − the one before.

    The gain of the next doubling is rarely more than that of the last: curves flatten.
    """

    pairs: tuple[int, ...]
    accuracy: tuple[Interval, ...]
    doubling: Interval


def learning_curve(
    differences: sparse.csr_matrix,
    units: Sequence[object],
    first: ArrayLike,
    second: ArrayLike,
    *,
    seed: int = 0,
) -> LearningCurve:
    """Accuracy on unseen units after training on 12.5, 25, 50 and 100 % of the others' pairs.

    differences: (n, features) chosen − rejected; units: (n,) what must not stand on both sides
    (debates, arguments); first, second: (n,) texts of each row. Cross-validated over five folds of
    units, so every row is tested on once at every step; smaller steps are parts of larger ones.
    """
    x = sparse.csr_matrix(differences)
    n = x.shape[0]
    fold = folds_of(units, seed=seed)
    rank = np.random.default_rng(seed).permutation(n) / max(n, 1)
    credit = np.zeros((len(SHARES), n))
    trained = np.zeros(len(SHARES))
    for number in np.unique(fold):
        tested = fold == number
        for step, share in enumerate(SHARES):
            used = ~tested & (rank < share)
            trained[step] += used.sum() * tested.sum() / n
            credit[step, tested] = pair_credit(x[tested] @ fit(x[used]))
    return LearningCurve(
        tuple(round(size) for size in trained),
        tuple(pair_share(row, first, second) for row in credit),
        dyadic_interval(credit[-1] - credit[-2], first, second),
    )

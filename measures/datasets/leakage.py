"""Does anything but the answers' texts give the label away?

A predictor that sees order, origin, position and circumstances, and no word of either answer,
should do no better than a coin on groups it has not seen. If it does better, a reward model can
learn that instead of quality, and every accuracy measured on such pairs is too high.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from measures.accuracy import pair_credit
from measures.datasets.shares import pair_share
from measures.estimate import Interval
from measures.textmodel import fit

Floats = NDArray[np.float64]

CHANCE = 0.5
RIDGE = 1.0


def blind_accuracy(
    signed: ArrayLike | sparse.csr_matrix,
    fold: ArrayLike,
    first: ArrayLike,
    second: ArrayLike,
) -> Interval:
    """Accuracy, on unseen folds, of a logistic model that is given `signed` alone.

    signed: (n, features) chosen − rejected; a circumstance that is the same for both sides (topic,
    person, month) enters multiplied by which side was stored first. fold: (n,) whole groups in one
    fold (take ten); first, second: (n,) the texts of each row, for the interval. A prediction of
    neither side counts ½.

    Every fold is predicted from the folds before it (Dawid, JRSS A 147, 1984), the first from none
    and left out. In ordinary cross-validation two rows each help to predict the other, which makes
    the accuracy of clean data vary by more than its interval says; here no row does. Clean data
    leave the interval around ½ in 95 % of datasets, so one clean dataset in forty is called leaking
    by it (and one in forty worse than chance, which is no leak).
    """
    table = sparse.csr_matrix(signed, dtype=np.float64)
    of = np.asarray(fold)
    margin = np.zeros(table.shape[0])
    for number in np.unique(of)[1:]:
        margin[of == number] = table[of == number] @ fit(table[of < number], ridge=RIDGE)
    # A margin that rounding alone made is no prediction.
    margin[np.abs(margin) < 1e-9] = 0.0
    tested = of > of.min(initial=0)
    one, other = np.asarray(first), np.asarray(second)
    return pair_share(pair_credit(margin[tested]), one[tested], other[tested])


def leaks(accuracy: Interval) -> bool:
    """Better than a coin by more than chance."""
    return accuracy.low is not None and accuracy.low > CHANCE

"""One Bayes step: what the votes on an item say, given how each annotator votes.

Everything a model of the voters has learned is its priors and one confusion matrix per annotator;
this step turns them and the votes into posteriors. The fits end with it, the web application
repeats it for the one comparison whose votes have changed, and both get the same numbers.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from measures.consensus.votes import Votes

Floats = NDArray[np.float64]
Labels = NDArray[np.int8]

# Two posteriors or shares closer than this are the same number, differently rounded.
SAME = 1e-9


def posteriors_of(
    votes: Votes, priors: ArrayLike, confusion: ArrayLike, default: ArrayLike
) -> Floats:
    """(n_items, 4) P(truth k | an item's votes) ∝ prior_k Π_v confusion[annotator_v, k, choice_v].

    priors: (4,) summing to 1, 0 where a choice is not offered. confusion: (m, 4, 4), of annotator j
    P(vote c | truth k) at [j, k, c]; default: (4, 4), used for every annotator numbered m or more.
    Assumes that annotators err independently given the truth.

    An item without votes gets the priors. A vote that is impossible under every truth with a
    positive prior (a choice the model never saw) says nothing and is passed over; contradicting
    votes that are impossible only together leave the priors.
    """
    prior = np.asarray(priors, dtype=np.float64)
    matrices = np.concatenate(
        [
            np.asarray(confusion, dtype=np.float64).reshape(-1, 4, 4),
            np.asarray(default, dtype=np.float64)[None],
        ]
    )
    known = prior > 0
    # [annotator, choice, truth], so that a vote's row lies together
    by_vote = np.ascontiguousarray(matrices.transpose(0, 2, 1))
    by_vote[by_vote[:, :, known].max(axis=2, initial=0.0) <= 0] = 1.0
    with np.errstate(divide="ignore"):
        rows = np.log(by_vote).reshape(-1, 4)
        score = np.log(prior)
    annotator = np.minimum(votes.annotators, len(matrices) - 1)
    cell = annotator * 4 + votes.choices
    scores = np.full((votes.n_items, 4), -np.inf)
    for k in np.flatnonzero(known):
        scores[:, k] = score[k] + np.bincount(
            votes.items, weights=rows[cell, k], minlength=votes.n_items
        )
    impossible = ~np.isfinite(row_max(scores))
    scores[impossible] = score
    return softmax(scores)


def softmax(scores: Floats) -> Floats:
    """Rows of log-weights to rows that sum to 1; −inf becomes exactly 0."""
    weights = np.exp(scores - row_max(scores)[:, None])
    weights /= (weights @ np.ones(weights.shape[1]))[:, None]
    return weights


def row_max(table: Floats) -> Floats:
    """(n,) largest entry per row of (n, K), by columns: ten times faster than along the axis."""
    largest = table[:, 0].copy()
    for column in table.T[1:]:
        np.maximum(largest, column, out=largest)
    return largest


def winners(scores: ArrayLike) -> Labels:
    """(n,) index of the largest entry per row, −1 where it is not alone (or the row is empty).

    scores: (n, 4) posteriors, shares or counts. Entries closer than 1e-9 count as equal: a tie is
    never broken by the rounding of the last digit, nor at random.
    """
    table = np.asarray(scores, dtype=np.float64)
    top = table.max(axis=1, initial=0.0)
    alone = (table >= top[:, None] - SAME).sum(axis=1) == 1
    return np.where(alone & (top > 0), table.argmax(axis=1), -1).astype(np.int8)


def share_right(scores: ArrayLike, gold: ArrayLike) -> Floats:
    """(n,) 1 where the largest entry is the gold one, 1/m where it is one of m equal ones, else 0.

    scores: (n, 4); gold: (n,) index, or −1 where none is known (NaN there). The convention by which
    methods that leave ties open are compared with those that do not.
    """
    table, truth = np.asarray(scores, dtype=np.float64), np.asarray(gold, dtype=np.int64)
    tops = table >= table.max(axis=1, keepdims=True, initial=0.0) - SAME
    right = tops[np.arange(len(truth)), truth] / tops.sum(axis=1)
    return np.where(truth >= 0, right, np.nan)

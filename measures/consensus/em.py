"""The loop that every model of the voters shares: posteriors, expected counts, matrices, again.

Letters: n votes, I items, J annotators, K choices offered, k a truth, c a vote. All models are
functions of the tensor N (J, K, K): N[j, k, c] is the expected number of j's votes for c on items
whose truth is k, the posteriors taken as weights. Only the step from N to matrices differs.

The votes are one sparse matrix X (I, J·K) with a 1 at (item, annotator·K + choice). The E-step is
X · log matrices and the M-step Xᵀ · posteriors, so that an iteration costs two sparse products.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from measures.consensus.posterior import Floats, softmax
from measures.consensus.votes import Votes

MOST_ITERATIONS = 200
# Mean over items of the largest change of a posterior at which the loop stops.
TOLERANCE = 1e-5


class Model(Protocol):
    """A model of the voters: how expected counts become confusion matrices."""

    def learn(self, counts: Floats) -> None:
        """Take from N (J, K, K) what is shared by the whole crowd."""

    def matrices(self, counts: Floats, of: NDArray[np.int64] | None = None) -> Floats:
        """(m, K, K) rows P(vote | truth) from counts (m, K, K), given what was learned.

        of: (m,) the annotator of each entry, None for 0 … J − 1 in order. Counts of zero give the
        matrix of an annotator who was never seen.
        """


@dataclass(frozen=True, slots=True)
class Cells:
    """Votes in the form the loop works on; `classes` are the K offered indices into `CHOICES`."""

    by_item: sparse.csr_array
    by_cell: sparse.csr_array
    classes: NDArray[np.int64]
    n_annotators: int

    @property
    def n_classes(self) -> int:
        return len(self.classes)

    def expected_counts(self, posteriors: Floats) -> Floats:
        """N (J, K, K) from posteriors (I, K)."""
        k = self.n_classes
        cells = self.by_cell @ posteriors
        return cells.reshape(self.n_annotators, k, k).transpose(0, 2, 1)

    def log_likelihoods(self, matrices: Floats) -> Floats:
        """(I, K) log P(votes of the item | truth) from matrices (J, K, K)."""
        table = np.log(np.maximum(matrices, 1e-300)).transpose(0, 2, 1)
        return self.by_item @ np.ascontiguousarray(table).reshape(-1, self.n_classes)


def cells_of(votes: Votes) -> Cells:
    """The two sparse forms of the votes."""
    classes = np.flatnonzero(votes.offered)
    number = np.cumsum(votes.offered) - 1
    column = votes.annotators * len(classes) + number[votes.choices]
    shape = (votes.n_items, votes.n_annotators * len(classes))
    ones = np.ones(len(votes))
    by_item = sparse.csr_array((ones, (votes.items, column)), shape=shape)
    by_cell = sparse.csr_array((ones, (column, votes.items)), shape=shape[::-1])
    return Cells(by_item, by_cell, classes, votes.n_annotators)


@dataclass(frozen=True, slots=True)
class Settled:
    """Where the loop ended: priors (K,), matrices (J, K, K), posteriors (I, K)."""

    priors: Floats
    matrices: Floats
    posteriors: Floats
    log_likelihood: float
    iterations: int
    converged: bool


def settle(
    model: Model,
    cells: Cells,
    posteriors: Floats,
    *,
    prior_weight: float,
    most_iterations: int = MOST_ITERATIONS,
    tolerance: float = TOLERANCE,
) -> Settled:
    """Expectation–maximisation from the given posteriors (I, K) on, until they stop moving.

    prior_weight: items that are imagined for every choice when the priors are taken from the
    posteriors (a symmetric Dirichlet). Items without votes take no part. Source: Dempster, Laird &
    Rubin, JRSS B 39 (1977).
    """
    voted = np.diff(cells.by_item.indptr) > 0
    n_voted = int(voted.sum())
    current = posteriors
    log_likelihood, converged, iteration = 0.0, False, 0
    while True:
        iteration += 1
        counts = cells.expected_counts(current)
        model.learn(counts)
        matrices = model.matrices(counts)
        totals = current.sum(axis=0) if n_voted == len(voted) else current[voted].sum(axis=0)
        priors = (totals + prior_weight) / (n_voted + prior_weight * cells.n_classes)
        scores = cells.log_likelihoods(matrices) + np.log(priors)
        top = scores.max(axis=1, keepdims=True)
        scores -= top
        np.exp(scores, out=scores)
        mass = scores.sum(axis=1, keepdims=True)
        scores /= mass
        moved = float(np.abs(scores - current).max(axis=1, initial=0.0)[voted].sum()) / max(
            1, n_voted
        )
        current = scores
        if moved <= tolerance or iteration >= most_iterations:
            log_likelihood = float((np.log(mass) + top)[voted].sum())
            converged = moved <= tolerance
            return Settled(priors, matrices, current, log_likelihood, iteration, converged)


def vote_shares(votes: Votes, cells: Cells) -> Floats:
    """(I, K) shares of the votes, the usual start; even where there are none."""
    counts = votes.counts()[:, cells.classes].astype(np.float64)
    total = counts.sum(axis=1, keepdims=True)
    even = np.full_like(counts, 1 / cells.n_classes)
    return np.divide(counts, total, out=even, where=total > 0)


__all__ = ["Cells", "Model", "Settled", "cells_of", "settle", "softmax", "vote_shares"]

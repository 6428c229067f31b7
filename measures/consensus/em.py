"""The loop that every model of the voters shares: posteriors, expected counts, matrices, again.

Letters: n votes, I items, J annotators, K choices offered, k a truth, c a vote. All models are
functions of the tensor N (J, K, K): N[j, k, c] is the expected number of j's votes for c on items
whose truth is k, the posteriors taken as weights. Only the step from N to matrices differs.

The votes are one sparse matrix X (I, J·K) with a 1 at (item, annotator·K + choice). The E-step is
X · log matrices and the M-step Xᵀ · posteriors, so that an iteration costs two sparse products.

Without an echo: plain EM judges an item by matrices that the item itself has shaped. Somebody with
two votes is then right about both because they said so. So once the loop has nearly settled, each
item is judged by its annotators' expected counts less what the item itself put there (Dawid–Skene
on the argument pairs, where half the people voted once: 91.4 instead of 90.7 % right, and 91.0
instead of 86.9 where the crowd's own matrix is free, see docs/consensus.md).
That is collapsed variational inference of order zero (Asuncion, Welling, Smyth & Teh,
"On smoothing and inference for topic models", UAI 2009). Annotators with `ECHO_VOTES` votes or more
are spared the effort: one item moves their matrices by less than half a per cent.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy import sparse

from measures.consensus.posterior import Floats, row_max, softmax
from measures.consensus.votes import Ints, Votes

ECHO_VOTES = 200
MOST_ITERATIONS = 100
# Mean over items of the largest change of a posterior: where the echo is taken out, and where the
# loop stops.
NEARLY, TOLERANCE = 2e-3, 5e-4
# Items imagined for every choice when priors are taken from posteriors: one for each, so that a
# choice which nobody has cast yet stays possible.
PRIOR_ITEMS = 1.0
_CHUNK = 100_000  # votes whose matrices are held at once


class Model(Protocol):
    """A model of the voters: how expected counts become confusion matrices."""

    def learn(self, counts: Floats) -> None:
        """Take from N (J, K, K) what is shared by the whole crowd."""

    def matrices(self, counts: Floats, of: Ints | None = None) -> Floats:
        """(m, K, K) rows P(vote | truth) from counts (m, K, K), given what was learned.

        of: (m,) the annotator whose counts each entry nearly has; None where the counts are those
        of `learn`, or of somebody never seen (all zero).
        """


@dataclass(frozen=True, slots=True)
class Cells:
    """Votes in the form the loop works on; `classes` are the K offered indices into `CHOICES`.

    items, annotators, choices: (n,), the choices numbered within `classes`; n_by: (J,) votes cast.
    """

    items: Ints
    annotators: Ints
    choices: Ints
    by_item: sparse.csr_array
    by_cell: sparse.csr_array
    classes: Ints
    n_by: Ints

    @property
    def n_classes(self) -> int:
        return len(self.classes)

    def expected_counts(self, posteriors: Floats) -> Floats:
        """N (J, K, K) from posteriors (I, K)."""
        k = self.n_classes
        return (self.by_cell @ posteriors).reshape(len(self.n_by), k, k).transpose(0, 2, 1)

    def log_likelihoods(self, matrices: Floats) -> Floats:
        """(I, K) log P(votes of the item | truth) from matrices (J, K, K)."""
        table = np.log(np.maximum(matrices, 1e-300)).transpose(0, 2, 1)
        return self.by_item @ np.ascontiguousarray(table).reshape(-1, self.n_classes)


def cells_of(votes: Votes) -> Cells:
    """The two sparse forms of the votes."""
    classes = np.flatnonzero(votes.offered)
    choices = (np.cumsum(votes.offered) - 1)[votes.choices]
    shape = (votes.n_items, votes.n_annotators * len(classes))
    columns = votes.annotators * len(classes) + choices
    by_item = sparse.csr_array((np.ones(len(votes)), (votes.items, columns)), shape=shape)
    return Cells(
        votes.items,
        votes.annotators,
        choices,
        by_item,
        by_item.T.tocsr(),
        classes,
        np.bincount(votes.annotators, minlength=votes.n_annotators),
    )


@dataclass(frozen=True, slots=True)
class Settled:
    """Where the loop ended: priors (K,), matrices (J, K, K), posteriors (I, K) without an echo."""

    model: Model
    priors: Floats
    matrices: Floats
    posteriors: Floats
    iterations: int
    converged: bool


def settle(
    model: Model,
    cells: Cells,
    posteriors: Floats,
    *,
    alike: bool,
    tie_weight: float = 0.0,
    echo: bool = False,
    most_iterations: int = MOST_ITERATIONS,
    tolerance: float = TOLERANCE,
) -> Settled:
    """Expectation–maximisation from the given posteriors (I, K) on, until they stop moving.

    alike, tie_weight: see `priors_from`. echo: True for plain EM (Dempster, Laird & Rubin, JRSS B
    39, 1977), which the reference implementations run. Items without votes take no part.
    """
    voted = (np.diff(cells.by_item.indptr) > 0).astype(np.float64)
    n_voted = float(voted.sum())
    few = np.flatnonzero(cells.n_by[cells.annotators] < ECHO_VOTES)
    cast = np.bincount(cells.choices, minlength=cells.n_classes) / max(1, len(cells.choices))
    echo = echo or not len(few)
    removing, current, iteration = False, posteriors, 0
    while True:
        iteration += 1
        counts = cells.expected_counts(current)
        model.learn(counts)
        matrices = model.matrices(counts)
        priors = priors_from(voted @ current, cast, n=n_voted, alike=alike, tie_weight=tie_weight)
        scores = cells.log_likelihoods(matrices)
        if removing:
            scores += _echo(model, cells, counts, matrices, current, few)
        following = softmax(scores + np.log(priors))
        moved = float(row_max(np.abs(following - current)) @ voted) / max(1.0, n_voted)
        current = following
        settled = moved <= tolerance and (removing or echo)
        if settled or iteration >= most_iterations:
            return Settled(model, priors, matrices, current, iteration, settled)
        removing = removing or (not echo and moved <= NEARLY)


def without_echo(
    model: Model, cells: Cells, counts: Floats, posteriors: Floats, priors: Floats
) -> Floats:
    """(I, K) one step without an echo by a model that has learned from counts."""
    matrices = model.matrices(counts)
    scores = cells.log_likelihoods(matrices) + np.log(priors)
    few = np.flatnonzero(cells.n_by[cells.annotators] < ECHO_VOTES)
    if len(few):
        scores += _echo(model, cells, counts, matrices, posteriors, few)
    return softmax(scores)


def priors_from(
    totals: Floats, cast: Floats, *, n: float, alike: bool, tie_weight: float
) -> Floats:
    """(K,) P(truth): the mean posterior, with `PRIOR_ITEMS` imagined items per choice.

    totals: (K,) posteriors summed over n items; cast: (K,) shares of the choices among all votes.
    alike: A and B, which come first, get their mean. tie_weight: ties and both-bad are drawn
    towards `cast` with the weight of so many items for each that there is.
    """
    k = len(totals)
    priors = (totals + PRIOR_ITEMS) / (n + PRIOR_ITEMS * k)
    if k > 2:
        rest = (priors[2:] + tie_weight * cast[2:]) / (1 + tie_weight)
        priors[:2] *= (1 - rest.sum()) / priors[:2].sum()
        priors[2:] = rest
    if alike:
        priors[:2] = priors[:2].mean()
    return priors


def matrices_without(
    model: Model, cells: Cells, counts: Floats, posteriors: Floats, votes: Ints
) -> Floats:
    """(m, K, K) the matrix of each vote's annotator with the vote's own item taken out of N.

    votes: (m,) numbers of the votes.
    """
    annotators, choices = cells.annotators[votes], cells.choices[votes]
    left = counts[annotators]
    left[np.arange(len(votes)), :, choices] -= posteriors[cells.items[votes]]
    np.maximum(left, 0.0, out=left)
    return model.matrices(left, annotators)


def _echo(
    model: Model,
    cells: Cells,
    counts: Floats,
    matrices: Floats,
    posteriors: Floats,
    few: Ints,
) -> Floats:
    """(I, K) what taking the echo out adds to the log-likelihoods."""
    added = np.empty((len(few), cells.n_classes))
    for begin in range(0, len(few), _CHUNK):
        part = few[begin : begin + _CHUNK]
        choices = cells.choices[part]
        made = matrices_without(model, cells, counts, posteriors, part)
        clean = made[np.arange(len(part)), :, choices]
        with_echo = matrices[cells.annotators[part], :, choices]
        added[begin : begin + _CHUNK] = np.log(np.maximum(clean, 1e-300)) - np.log(
            np.maximum(with_echo, 1e-300)
        )
    return summed_by_item(added, cells.items[few], len(posteriors))


def summed_by_item(values: Floats, items: Ints, n_items: int) -> Floats:
    """(n_items, K) sums of (m, K) values over the votes of each item."""
    return np.stack(
        [np.bincount(items, weights=column, minlength=n_items) for column in values.T], axis=1
    )


def vote_shares(votes: Votes, cells: Cells) -> Floats:
    """(I, K) shares of the votes, the usual start; even where there are none."""
    counts = votes.counts()[:, cells.classes].astype(np.float64)
    total = counts.sum(axis=1, keepdims=True)
    even = np.full_like(counts, 1 / cells.n_classes)
    return np.divide(counts, total, out=even, where=total > 0)

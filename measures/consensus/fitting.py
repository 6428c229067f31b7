"""`fit`: votes and the name of a model in, everything the model has learned out."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from measures.consensus.dawid_skene import DawidSkene
from measures.consensus.em import Cells, Model, Settled, cells_of, settle, vote_shares
from measures.consensus.mace import Mace
from measures.consensus.one_coin import OneCoin
from measures.consensus.posterior import Floats, posteriors_of
from measures.consensus.votes import N_CHOICES, Votes

# One imagined item per choice keeps a choice that nobody has cast yet possible.
PRIOR_WEIGHT = 1.0

MODELS: dict[str, Callable[[], Model]] = {
    "one_coin": OneCoin,
    "dawid_skene": DawidSkene,
    "mace": Mace,
}
METHODS = tuple(MODELS)


@dataclass(frozen=True, slots=True)
class Fit:
    """What a model of the voters has learned.

    priors: (4,) P(truth k), 0 where a choice is not offered. confusion: (n_annotators, 4, 4), of
    annotator j P(vote c | truth k) at [j, k, c]; rows sum to 1 (a choice that is not offered has
    the identity's row and column). default_confusion: (4, 4), for an annotator never seen.
    posteriors: (n_items, 4), always `posteriors_of(votes, priors, confusion, default_confusion)`.
    reliability: (n_annotators,) chance to vote for what is right, Σ_k prior_k confusion[j, k, k].
    log_likelihood: of all votes, in nats. An annotator without votes has the default matrix, an
    item without votes the priors.
    """

    method: str
    priors: Floats
    confusion: Floats
    default_confusion: Floats
    posteriors: Floats
    reliability: Floats
    log_likelihood: float
    iterations: int
    converged: bool


def fit(method: str, votes: Votes, *, start: Fit | None = None) -> Fit:
    """Fit one of `METHODS` to the votes.

    start: an earlier fit to go on from. Its annotators keep their numbers, and those numbered
    beyond it start from its default; items are taken from the votes, so they may have changed in
    any way. The result is that of a fresh fit up to the tolerance of the loop, in fewer steps.
    """
    if method not in MODELS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, not {method}")
    cells = cells_of(votes)
    first = vote_shares(votes, cells)
    if start is not None:
        first = _posteriors_by(start, votes)[:, cells.classes]
        total = first.sum(axis=1, keepdims=True)
        first = np.where(total > 0.5, first / np.maximum(total, 0.5), vote_shares(votes, cells))
    model = MODELS[method]()
    return _spread_out(
        method, model, votes, cells, settle(model, cells, first, prior_weight=PRIOR_WEIGHT)
    )


def _spread_out(method: str, model: Model, votes: Votes, cells: Cells, settled: Settled) -> Fit:
    """The loop's result over all four choices."""
    k = cells.n_classes
    unseen = model.matrices(np.zeros((1, k, k)))[0]
    priors = np.zeros(N_CHOICES)
    priors[cells.classes] = settled.priors
    confusion = _widened(settled.matrices, cells)
    default = _widened(unseen[None], cells)[0]
    return Fit(
        method=method,
        priors=priors,
        confusion=confusion,
        default_confusion=default,
        posteriors=posteriors_of(votes, priors, confusion, default),
        reliability=np.einsum("k,jkk->j", priors, confusion),
        log_likelihood=settled.log_likelihood,
        iterations=settled.iterations,
        converged=settled.converged,
    )


def _posteriors_by(start: Fit, votes: Votes) -> Floats:
    return posteriors_of(votes, start.priors, start.confusion, start.default_confusion)


def _widened(matrices: Floats, cells: Cells) -> Floats:
    wide = np.tile(np.eye(N_CHOICES), (len(matrices), 1, 1))
    wide[:, cells.classes[:, None], cells.classes[None, :]] = matrices
    return wide

"""Fitting a model of consensus to votes, and what a fitted model says of votes to come."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from measures.consensus.models import (
    Cells,
    DawidSkene,
    Mace,
    Model,
    OneCoin,
    Settled,
    cells_of,
    matrices_without,
    settle,
    summed_by_item,
    vote_shares,
)
from measures.consensus.votes import N_CHOICES, Floats, Ints, Votes, posteriors_of, row_max, softmax

# How the next person will vote: every vote predicted from the others.
#
# For vote v of annotator j on item i the truth is inferred from the other votes on i, and j's
# choice from that. Nothing of item i is left in the matrices that are used (its share is taken out
# of the expected counts), so an annotator with two votes is judged by one other, not by an echo of
# this one. What stays are the priors and what the crowd shares, which one item hardly moves.

_CHUNK = 100_000  # votes whose matrices are held at once
_LEAST = 1e-12  # a probability is never taken for less: no prediction costs more than 28 nats


@dataclass(frozen=True, slots=True)
class Predictions:
    """claims: (m, K) P(choice) for m votes; cast: (m,) which of the K it was; items: (m,)."""

    claims: Floats
    cast: Ints
    items: Ints

    def log_losses(self) -> Floats:
        """(m,) −log of the probability of what was cast, nats."""
        return -np.log(np.maximum(self.claims[np.arange(len(self.cast)), self.cast], _LEAST))


def judged_votes(votes: Votes, most: int) -> Ints:
    """Numbers of the votes that can be predicted: those with another vote on their item.

    Where there are more than `most`, those on every m-th item only.
    """
    others = np.bincount(votes.items, minlength=votes.n_items) > 1
    total = int(others[votes.items].sum())
    if total > most:
        voted = np.flatnonzero(others)
        keep = np.zeros(votes.n_items, dtype=bool)
        keep[voted[:: -(-total // most)]] = True
        others &= keep
    return np.flatnonzero(others[votes.items])


def predicted(
    model: Model,
    cells: Cells,
    counts: Floats,
    priors: Floats,
    posteriors: Floats,
    judged: Ints,
) -> Predictions:
    """Predict the judged votes (all of an item's or none) by a model that has learned from counts.

    counts: N (J, K, K) from the posteriors (I, K); priors: (K,).
    """
    k, items, cast = cells.n_classes, cells.items[judged], cells.choices[judged]
    chances = np.empty((len(judged), k, k))
    for begin in range(0, len(judged), _CHUNK):
        part = slice(begin, begin + _CHUNK)
        chances[part] = matrices_without(model, cells, counts, posteriors, judged[part])
    own = np.log(np.maximum(chances[np.arange(len(judged)), :, cast], 1e-300))
    together = summed_by_item(own, items, len(posteriors))
    truths = softmax(np.log(priors) + together[items] - own)
    return Predictions(np.einsum("vk,vkc->vc", truths, chances), cast, items)


def counted(votes: Votes, classes: Ints, judged: Ints) -> Predictions:
    """The same by counting: (others for c + 1) / (others + K), majority with Laplace's rule."""
    cast = (np.cumsum(votes.known) - 1)[votes.choices[judged]]
    items = votes.items[judged]
    others = votes.counts()[items][:, classes].astype(np.float64)
    others[np.arange(len(judged)), cast] -= 1
    others += 1
    return Predictions(others / others.sum(axis=1, keepdims=True), cast, items)


def by_item_mean(values: Floats, items: Ints) -> tuple[float, float]:
    """Mean of (m,) values and its standard error, items as independent units."""
    mean = float(values.mean())
    sums = np.bincount(items, weights=values - mean)
    return mean, float(np.sqrt((sums**2).sum())) / len(values)


# `fit`: votes and the name of a model in, everything the model has learned out.

MODELS: dict[str, Callable[[], Model]] = {
    "one_coin": OneCoin,
    "dawid_skene": DawidSkene,
    "mace": Mace,
}
METHODS = tuple(MODELS)

# Nats per vote that separate priors for A and B must gain on held-back votes before they are used;
# where the middle annotator leans to one side by `LEANING`, nats that they may lose.
LEAST_GAIN, MOST_LOSS = 0.002, 0.002
LEANING = 0.1
# Weight of their shares of the votes in the priors of tie and both-bad, in items per item.
TIE_WEIGHT = 1.0
_OWN_SHARE = 10  # votes for A or B from which somebody's share of A counts by itself
_JUDGED = 50_000  # votes that decide about it; more only where a project has no fewer


@dataclass(frozen=True, slots=True)
class Fit:
    """What a model of the voters has learned.

    priors: (4,) P(truth k), 0 where a choice is not known. confusion: (n_annotators, 4, 4), of
    annotator j P(vote c | truth k) at [j, k, c]; rows sum to 1 (a choice that is not known has
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

    The loop first runs with even-handed priors of the truths: one for A and B, since which response
    is called A is arbitrary, and ties and both-bad half way to their share of the votes. Then it
    continues with freer ones, which are kept only where they predict held-back votes better:

    - ties and both-bad as the posteriors have them. By the votes alone a true tie can hardly be
      told from hesitation over A or B; where people are sparse the loop slides to far too few or
      too many (argument pairs: 91.4 % right with the pull, 86.6 without), and where they are not,
      or nothing is ever a tie, the pull costs as much;
    - A and B apart, if that gains `LEAST_GAIN` (a crowd where A is right in 80 % gains some 0.01
      nats), or if the middle annotator votes for one of them in 60 % or more and it loses no more
      than `MOST_LOSS`. Free priors everywhere would let crowds with habits drift to "all A"; even
      ones everywhere would lose up to 30 points where nearly everything is A.

    start: an earlier fit to go on from. Its annotators keep their numbers, and those numbered
    beyond it start from its default; items are taken from the votes, so they may have changed in
    any way. The result is that of a fresh fit up to the tolerance of the loop, in fewer steps.
    """
    if method not in MODELS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, not {method}")
    cells = cells_of(votes)
    first = vote_shares(votes, cells) if start is None else _posteriors_by(start, votes, cells)
    best = settle(MODELS[method](), cells, first, alike=True, tie_weight=TIE_WEIGHT)
    iterations, tie_weight = best.iterations, TIE_WEIGHT
    if cells.n_classes > 2:
        freer = settle(MODELS[method](), cells, best.posteriors, alike=True)
        iterations += freer.iterations
        if _gain(votes, cells, best, freer) > 0:
            best, tie_weight = freer, 0.0
    apart = settle(MODELS[method](), cells, best.posteriors, alike=False, tie_weight=tie_weight)
    iterations += apart.iterations
    needed = -MOST_LOSS if abs(_lean(votes) - 0.5) >= LEANING else LEAST_GAIN
    if _gain(votes, cells, best, apart) >= needed:
        best = apart
    return _spread_out(method, votes, cells, best, iterations)


def _lean(votes: Votes) -> float:
    """The share of A among A and B of the annotator in the middle, each weighing as many votes.

    A few people who always click one side move this little, as they would the share of all votes.
    Those with few votes count together as one.
    """
    sided = votes.choices < 2
    cast = np.bincount(votes.annotators[sided], minlength=votes.n_annotators)
    for_a = np.bincount(votes.annotators[votes.choices == 0], minlength=votes.n_annotators)
    own = cast >= _OWN_SHARE
    weights = np.append(cast[own], cast[~own].sum())
    shares = np.append(for_a[own], for_a[~own].sum()) / np.maximum(1, weights)
    order = np.argsort(shares)
    reached = np.cumsum(weights[order])
    if reached[-1] == 0:
        return 0.5
    return float(shares[order][np.searchsorted(reached, reached[-1] / 2)])


def _gain(votes: Votes, cells: Cells, before: Settled, after: Settled) -> float:
    """Nats per held-back vote by which the second predicts better."""
    judged = judged_votes(votes, _JUDGED)
    if not len(judged):
        return 0.0
    losses = [
        predicted(
            made.model,
            cells,
            cells.expected_counts(made.posteriors),
            made.priors,
            made.posteriors,
            judged,
        ).log_losses()
        for made in (before, after)
    ]
    return float((losses[0] - losses[1]).mean())


def _posteriors_by(start: Fit, votes: Votes, cells: Cells) -> Floats:
    """(I, K) by an earlier fit; a choice that it did not know starts from the shares."""
    shares = vote_shares(votes, cells)
    if not (start.priors[cells.classes] > 0).all():
        return shares
    return posteriors_of(votes, start.priors, start.confusion, start.default_confusion)[
        :, cells.classes
    ]


def _spread_out(method: str, votes: Votes, cells: Cells, settled: Settled, iterations: int) -> Fit:
    """The loop's result over all four choices."""
    k = cells.n_classes
    unseen = settled.model.matrices(np.zeros((1, k, k)), None)
    priors = np.zeros(N_CHOICES)
    priors[cells.classes] = settled.priors
    confusion = _widened(settled.matrices, cells)
    default = _widened(unseen, cells)[0]
    confusion[cells.n_by == 0] = default
    scores = cells.log_likelihoods(settled.matrices) + np.log(settled.priors)
    return Fit(
        method=method,
        priors=priors,
        confusion=confusion,
        default_confusion=default,
        posteriors=posteriors_of(votes, priors, confusion, default),
        reliability=np.einsum("k,jkk->j", priors, confusion),
        log_likelihood=float(_log_sum(scores).sum()),
        iterations=iterations,
        converged=settled.converged,
    )


def _log_sum(scores: Floats) -> Floats:
    top = row_max(scores)
    return top + np.log(np.exp(scores - top[:, None]).sum(axis=1))


def _widened(matrices: Floats, cells: Cells) -> Floats:
    wide = np.tile(np.eye(N_CHOICES), (len(matrices), 1, 1))
    wide[:, cells.classes[:, None], cells.classes[None, :]] = matrices
    return wide

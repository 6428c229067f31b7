"""How the next person will vote: every vote predicted from the others.

For vote v of annotator j on item i the truth is inferred from the other votes on i, and j's choice
from that. Nothing of item i is left in the matrices that are used (its share is taken out of the
expected counts), so an annotator with two votes is judged by one other, not by an echo of this one.
What stays are the priors and what the crowd shares, which one item hardly moves.
"""

from dataclasses import dataclass

import numpy as np

from measures.consensus.em import (
    Cells,
    Model,
    matrices_without,
    summed_by_item,
)
from measures.consensus.posterior import Floats, softmax
from measures.consensus.votes import Ints, Votes

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
    cast = (np.cumsum(votes.offered) - 1)[votes.choices[judged]]
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

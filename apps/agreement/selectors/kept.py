"""How right is what a rule keeps, and how much of it chance alone would have passed."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from measures.consensus import Votes, posteriors_of
from measures.estimate import Interval
from measures.intervals import wilson
from measures.voting import PosteriorRule, decide_many_by_posterior

_FLIPPED_ITEMS = 20_000  # comparisons whose votes are replaced by coin flips; error under 0.4 %
_SEED = 20_161


def kept_accuracy(golds: NDArray[np.int64], winner: NDArray[np.integer[Any]]) -> Interval | None:
    """How many of the accepted comparisons with a known answer were decided for it (Wilson)."""
    known = (golds >= 0) & (winner >= 0)
    if not known.any():
        return None
    return wilson(int((winner[known] == golds[known]).sum()), int(known.sum()))


def flipped_keep_rate(
    votes: Votes,
    priors: NDArray[np.float64],
    confusion: NDArray[np.float64],
    default: NDArray[np.float64],
    rule: PosteriorRule,
) -> float | None:
    """The share of comparisons that pass when every vote on them is a coin flip between A and B.

    The voters keep their numbers of votes and what the model believes of them, so this is what the
    posterior lets through by chance here. One seeded draw over at most 20,000 comparisons.
    """
    rng = np.random.default_rng(_SEED)
    with_votes = np.unique(votes.items)
    if not len(with_votes):
        return None
    chosen = np.zeros(votes.n_items, dtype=bool)
    sample = with_votes
    if len(sample) > _FLIPPED_ITEMS:
        sample = rng.choice(with_votes, _FLIPPED_ITEMS, replace=False)
    chosen[sample] = True
    part = votes.subset(chosen[votes.items])
    flips = Votes(
        part.items,
        part.annotators,
        rng.integers(0, 2, size=len(part)),
        part.n_items,
        part.n_annotators,
        part.offered,
    )
    shares = posteriors_of(flips, priors, confusion, default)
    decided = decide_many_by_posterior(flips.counts()[sample], shares[sample], rule)
    return float((decided.winner >= 0).mean())

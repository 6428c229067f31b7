"""Majority and Wawa: labels by counting, with vote ties left visible."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from measures.consensus.posterior import Floats, Labels, winners
from measures.consensus.votes import Votes


@dataclass(frozen=True, slots=True)
class Counted:
    """shares: (n_items, 4), rows sum to 1, all 0 without votes; winner: (n_items,) index into
    `CHOICES`, −1 at a tie or without votes; weights: (n_annotators,) what one vote counted.
    """

    shares: Floats
    winner: Labels
    weights: NDArray[np.float64]


def majority(votes: Votes) -> Counted:
    """Every vote counts 1; a tie of votes has no winner."""
    return _counted(votes, np.ones(votes.n_annotators))


def wawa(votes: Votes) -> Counted:
    """Worker agreement with aggregate: a vote counts as much as its annotator agrees with majority.

    Weight of annotator j: the mean over j's votes of 1 where the majority of that item is j's
    choice, 1/m at a tie of m that holds it, else 0 (j's own vote is in that majority). Source:
    crowd-kit's `Wawa`; departure: it breaks ties of votes before it counts agreement. An annotator
    without votes has weight 0.
    """
    counts = votes.counts()
    tops = (counts == counts.max(axis=1, keepdims=True, initial=0)) & (counts > 0)
    credit = tops / np.maximum(1, tops.sum(axis=1, keepdims=True))
    earned = np.bincount(
        votes.annotators,
        weights=credit[votes.items, votes.choices],
        minlength=votes.n_annotators,
    )
    cast = np.bincount(votes.annotators, minlength=votes.n_annotators)
    return _counted(votes, earned / np.maximum(1, cast))


def _counted(votes: Votes, weights: NDArray[np.float64]) -> Counted:
    totals = np.bincount(
        votes.items * 4 + votes.choices,
        weights=weights[votes.annotators],
        minlength=votes.n_items * 4,
    )
    totals = totals.astype(np.float64).reshape(-1, 4)  # whole numbers where there are no votes
    total = totals.sum(axis=1, keepdims=True)
    shares = np.divide(totals, total, out=np.zeros_like(totals), where=total > 0)
    return Counted(shares, winners(shares), weights)

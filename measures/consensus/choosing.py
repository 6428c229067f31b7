"""Which method decides by default: chosen by evidence from the project's own votes."""

from dataclasses import dataclass

import numpy as np

from measures.consensus.counting import majority
from measures.consensus.fitting import METHODS, Fit, fit
from measures.consensus.held_out import Check, leave_one_vote_out
from measures.consensus.posterior import Floats, Labels, winners
from measures.consensus.votes import Votes

MAJORITY = "votes"


@dataclass(frozen=True, slots=True)
class Comparison:
    """All models beside each other on the same votes.

    fits, checks: by method. method: the recommended one, "votes" (counting) or one of `METHODS`;
    reason: one sentence. trusted: the recommended model's own check passed, so that its posteriors
    may be read as probabilities.
    """

    fits: dict[str, Fit]
    checks: dict[str, Check]
    method: str
    trusted: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Recommended:
    """winner: (n_items,) index into `CHOICES`, −1 undecided; posteriors: (n_items, 4), for "votes"
    the shares of the votes.
    """

    winner: Labels
    posteriors: Floats
    method: str
    reason: str


def compare(votes: Votes) -> Comparison:
    """Fit every model, check each by the votes it did not see, and recommend one."""
    fits = {method: fit(method, votes) for method in METHODS}
    checks = {method: leave_one_vote_out(made, votes) for method, made in fits.items()}
    known = {m: c.log_loss for m, c in checks.items() if c.log_loss is not None}
    if not known:
        return Comparison(fits, checks, MAJORITY, False, "too few votes to compare models")
    best = min(known, key=lambda m: known[m])
    if checks[best].gain[0] <= 0:
        return Comparison(
            fits, checks, MAJORITY, False, "counting predicts a vote better than every model"
        )
    return Comparison(
        fits,
        checks,
        best,
        checks[best].calibrated,
        f"{best} predicts held-back votes best ({known[best]:.3f} nats)",
    )


def recommended(votes: Votes, comparison: Comparison | None = None) -> Recommended:
    """What Concord's default decides for every item."""
    found = compare(votes) if comparison is None else comparison
    if found.method == MAJORITY:
        counted = majority(votes)
        return Recommended(counted.winner, counted.shares, MAJORITY, found.reason)
    posteriors = found.fits[found.method].posteriors
    empty = np.bincount(votes.items, minlength=votes.n_items) == 0
    return Recommended(
        np.where(empty, -1, winners(posteriors)).astype(np.int8),
        posteriors,
        found.method,
        found.reason,
    )

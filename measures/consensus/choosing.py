"""Which method decides by default: chosen by evidence from the project's own votes.

What decides is how well each model predicts a vote that was held back (`leave_one_vote_out`), in
nats. That ranks label accuracy only roughly: over 62 kinds of simulated crowds, taking the smallest
log loss among 19 variants of the models ended 1.7 points below the best method on average, one
fixed Dawid–Skene 0.7, because free parameters predict votes better and lose labels. So the evidence
has to be clear: full Dawid–Skene, whose shrunken matrices lost least, stands unless another model
is ahead by `CLEAR` nats with an interval clear of zero. See docs/consensus.md for the figures.
"""

from dataclasses import dataclass

import numpy as np

from measures.consensus.fitting import METHODS, Fit, fit
from measures.consensus.held_out import Check, leave_one_vote_out, paired
from measures.consensus.votes import Floats, Labels, Votes, majority, winners

COUNTING = "votes"
INCUMBENT = "dawid_skene"
CLEAR = 0.01
# Fewer held-back votes than this say nothing about who is reliable: counting decides.
LEAST_JUDGED = 200
# Votes a project needs before the posterior is proposed to its admin (SPEC B2).
LEAST_PROPOSED = 500
# Share of clear leads (two votes or more) that may be overruled without a word of caution.
MUCH_OVERRULED = 0.05

WORDS = {
    "votes": "counting votes",
    "one_coin": "one-coin Dawid–Skene",
    "dawid_skene": "Dawid–Skene",
    "mace": "MACE",
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """All models beside each other on the same votes.

    fits, checks: by method. method: the recommended one, "votes" (counting) or one of `METHODS`;
    reason: one sentence. trusted: a model is recommended and its own check passes, so that its
    posteriors may be read as probabilities. proposed: worth proposing to an admin who counts votes
    now: trusted, from 500 votes on. overruled: share of items with a lead of two votes or more that
    the recommended model decides otherwise, None for counting. caution: a sentence where that is
    much, else None.
    """

    fits: dict[str, Fit]
    checks: dict[str, Check]
    method: str
    reason: str
    trusted: bool
    proposed: bool
    overruled: float | None
    caution: str | None


@dataclass(frozen=True, slots=True)
class Recommended:
    """winner: (n_items,) index into `CHOICES`, −1 undecided (a tie, or no votes); posteriors:
    (n_items, 4), for "votes" the shares of the votes.
    """

    winner: Labels
    posteriors: Floats
    method: str
    reason: str


def compare(votes: Votes, *, starts: dict[str, Fit] | None = None) -> Comparison:
    """Fit every model, check each by the votes it did not see, and recommend one.

    starts: earlier fits by method to go on from.
    """
    fits = {method: fit(method, votes, start=(starts or {}).get(method)) for method in METHODS}
    checks = {method: leave_one_vote_out(made, votes) for method, made in fits.items()}
    method, reason = _chosen(checks)
    overruled = None if method == COUNTING else _overruled(fits[method], votes)
    trusted = method != COUNTING and checks[method].calibrated
    return Comparison(
        fits=fits,
        checks=checks,
        method=method,
        reason=reason,
        trusted=trusted,
        proposed=trusted and len(votes) >= LEAST_PROPOSED,
        overruled=overruled,
        caution=_caution(method, overruled),
    )


def recommended(votes: Votes, comparison: Comparison | None = None) -> Recommended:
    """What Concord's default decides for every item; an exact tie stays undecided."""
    found = compare(votes) if comparison is None else comparison
    if found.method == COUNTING:
        by_count = majority(votes)
        return Recommended(by_count.winner, by_count.shares, COUNTING, found.reason)
    posteriors = found.fits[found.method].posteriors
    empty = np.bincount(votes.items, minlength=votes.n_items) == 0
    winner = np.where(empty, -1, winners(posteriors)).astype(np.int8)
    return Recommended(winner, posteriors, found.method, found.reason)


def _chosen(checks: dict[str, Check]) -> tuple[str, str]:
    incumbent = checks[INCUMBENT]
    n = incumbent.n_votes
    if n < LEAST_JUDGED or incumbent.gain is None or incumbent.losses is None:
        return COUNTING, (
            f"counting votes: {n:,} votes stand beside another on the same comparison, too few to "
            f"learn who is reliable ({LEAST_JUDGED} are needed)"
        )
    best, lead = INCUMBENT, CLEAR
    for method, check in checks.items():
        if method != INCUMBENT and check.losses is not None and check.items is not None:
            ahead = paired(incumbent.losses, check.losses, check.items)
            if ahead.value > lead and ahead.low > 0:
                best, lead = method, ahead.value
    gain = checks[best].gain
    if gain is None or gain.value <= 0:
        return COUNTING, (
            "counting votes: no model of the voters predicts a held-back vote better than counting "
            f"the others does (n = {n:,} votes)"
        )
    why = (
        f"predicts a held-back vote better than counting, by {gain.value:.3f} nats "
        f"({gain.low:.3f} to {gain.high:.3f}, n = {n:,} votes), and no other model does so clearly "
        "better still"
        if best == INCUMBENT
        else f"predicts a held-back vote better than {WORDS[INCUMBENT]}, by {lead:.3f} nats, and "
        f"than counting, by {gain.value:.3f} (n = {n:,} votes)"
    )
    return best, f"{WORDS[best]}: it {why}"


def _overruled(made: Fit, votes: Votes) -> float | None:
    counts = np.sort(votes.counts(), axis=1)
    clear = counts[:, -1] - counts[:, -2] >= 2
    if not clear.any():
        return None
    by_count, by_model = majority(votes).winner[clear], winners(made.posteriors)[clear]
    return float((by_count != by_model).mean())


def _caution(method: str, overruled: float | None) -> str | None:
    if overruled is None or overruled <= MUCH_OVERRULED:
        return None
    return (
        f"{WORDS[method]} overrules {overruled:.0%} of the comparisons with a lead of two votes or "
        "more. A few people who agree with each other may be the experts or a clique: votes cannot "
        "tell, gold comparisons can"
    )

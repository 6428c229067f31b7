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
from measures.consensus.votes import Floats, Ints, Labels, Votes, majority, share_right, winners
from measures.intervals import wilson

COUNTING = "votes"
INCUMBENT = "dawid_skene"
CLEAR = 0.01
# Fewer held-back votes than this say nothing about who is reliable: counting decides.
LEAST_JUDGED = 200
# Votes a project needs before the posterior is proposed to its admin (SPEC B2).
LEAST_PROPOSED = 500
# Share of clear leads (two votes or more) that may be overruled without a word of caution.
MUCH_OVERRULED = 0.05
# Known answers from which they are asked whether posteriors are probabilities.
LEAST_GOLD = 20


@dataclass(frozen=True, slots=True)
class Known:
    """Of n items with a known answer: mean probability claimed, share right, its interval."""

    claimed: float
    right: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """All models beside each other on the same votes.

    fits, checks: by method. method: the recommended one, "votes" (counting) or one of `METHODS`;
    lead: nats by which it is ahead of `INCUMBENT`, where it is another model. trusted: whether the
    posteriors of the recommended model may be read as probabilities: True where known answers bear
    them out, False where these contradict, or the model's own check fails, or votes are counted;
    None where the check passes and nothing is known of the truth. Predicting votes is not being
    right: a crowd that errs together is predicted well. known: what it claims of known answers,
    None under `LEAST_GOLD` of them. proposed: worth proposing to an admin who counts votes now: the
    check passes and known answers do not find it over-confident, from 500 votes on. overruled:
    share of items with a lead of two votes or more that it decides otherwise, None for counting.
    """

    fits: dict[str, Fit]
    checks: dict[str, Check]
    method: str
    lead: float | None
    trusted: bool | None
    known: Known | None
    proposed: bool
    overruled: float | None

    @property
    def overrules_much(self) -> bool:
        return self.overruled is not None and self.overruled > MUCH_OVERRULED


@dataclass(frozen=True, slots=True)
class Recommended:
    """winner: (n_items,) index into `CHOICES`, −1 undecided (a tie, or no votes); posteriors:
    (n_items, 4), for "votes" the shares of the votes.
    """

    winner: Labels
    posteriors: Floats
    method: str


def compare(votes: Votes, *, golds: Ints | None = None) -> Comparison:
    """Fit every model, check each by the votes it did not see, and recommend one.

    golds: (n_items,) index into `CHOICES` of the known answer, −1 where there is none; what the
    recommended model claims of these is compared with how often it is right.
    """
    fits = {method: fit(method, votes) for method in METHODS}
    checks = {method: leave_one_vote_out(made, votes) for method, made in fits.items()}
    method, lead = _chosen(checks)
    overruled = None if method == COUNTING else _overruled(fits[method], votes)
    passed = method != COUNTING and checks[method].calibrated
    known = None if method == COUNTING else _known(fits[method], votes, golds)
    over = known is not None and known.claimed > known.high
    return Comparison(
        fits=fits,
        checks=checks,
        method=method,
        lead=lead,
        trusted=_trusted(method, passed, known),
        known=known,
        proposed=passed and not over and len(votes) >= LEAST_PROPOSED,
        overruled=overruled,
    )


def recommended(votes: Votes, comparison: Comparison | None = None) -> Recommended:
    """What Concord's default decides for every item; an exact tie stays undecided."""
    found = compare(votes) if comparison is None else comparison
    if found.method == COUNTING:
        by_count = majority(votes)
        return Recommended(by_count.winner, by_count.shares, COUNTING)
    posteriors = found.fits[found.method].posteriors
    empty = np.bincount(votes.items, minlength=votes.n_items) == 0
    winner = np.where(empty, -1, winners(posteriors)).astype(np.int8)
    return Recommended(winner, posteriors, found.method)


def _chosen(checks: dict[str, Check]) -> tuple[str, float | None]:
    """The method, and by how many nats it is ahead of `INCUMBENT` where it is another model."""
    incumbent = checks[INCUMBENT]
    if incumbent.n_votes < LEAST_JUDGED or incumbent.gain is None or incumbent.losses is None:
        return COUNTING, None
    best, lead = INCUMBENT, CLEAR
    for method, check in checks.items():
        if method != INCUMBENT and check.losses is not None and check.items is not None:
            ahead = paired(incumbent.losses, check.losses, check.items)
            if ahead.value > lead and ahead.low > 0:
                best, lead = method, ahead.value
    gain = checks[best].gain
    if gain is None or gain.value <= 0:
        return COUNTING, None
    return best, None if best == INCUMBENT else lead


def _known(made: Fit, votes: Votes, golds: Ints | None) -> Known | None:
    """None where fewer than `LEAST_GOLD` items with votes have a known answer."""
    if golds is None:
        return None
    held = (np.asarray(golds) >= 0) & (np.bincount(votes.items, minlength=votes.n_items) > 0)
    n = int(held.sum())
    if n < LEAST_GOLD:
        return None
    posteriors = made.posteriors[held]
    right = float(share_right(posteriors, golds[held]).sum())
    seen = wilson(right, n)
    if seen.low is None or seen.high is None:
        return None
    return Known(float(posteriors.max(axis=1).mean()), right / n, seen.low, seen.high, n)


def _trusted(method: str, passed: bool, known: Known | None) -> bool | None:
    if method == COUNTING or not passed:
        return False
    return None if known is None else known.low <= known.claimed <= known.high


def _overruled(made: Fit, votes: Votes) -> float | None:
    counts = np.sort(votes.counts(), axis=1)
    clear = counts[:, -1] - counts[:, -2] >= 2
    if not clear.any():
        return None
    by_count, by_model = majority(votes).winner[clear], winners(made.posteriors)[clear]
    return float((by_count != by_model).mean())

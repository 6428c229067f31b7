"""What the agreement of people implies for how good a model of their votes can get."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincc

from measures.estimate import reason


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What two-way agreement a implies, all as fractions.

    annotator_accuracy: the most an annotator can be right, q; low, high: the range in which the
    accuracy of the best possible reward model against single votes lies, [a, q].
    """

    agreement: float
    annotator_accuracy: float | None
    low: float | None
    high: float | None
    undefined: str | None = None


def ceiling_from_agreement(agreement: float) -> Ceiling:
    """q = (1 + √(2a − 1)) / 2 and the ceiling range [a, q].

    Two annotators who are right with probability q, independently given the pair, agree with
    a = q² + (1 − q)²; this solves it for q ≥ ½. A model that knows every right answer scores the
    mean of q over pairs against single votes. That is q where all pairs are equally hard, and a
    where each is either certain or a coin flip; every mixture lies between (Jensen's inequality).

    Assumes two-way votes (no ties, no both-bad) and equally good annotators. Against decided pairs
    the ceiling is another one: compare like with like. Undefined under a = ½, where no q fits:
    independent voters cannot agree less often than that.
    """
    if not 0 <= agreement <= 1:
        raise ValueError(f"agreement must lie between 0 and 1, not {agreement}")
    if agreement < 0.5:
        why = reason("agreement_under_half", agreement=agreement)
        return Ceiling(agreement, None, None, None, why)
    accuracy = (1 + math.sqrt(2 * agreement - 1)) / 2
    return Ceiling(agreement, accuracy, agreement, accuracy)


@dataclass(frozen=True, slots=True)
class DecidedCeiling:
    """How good a model can get against pairs that a crowd decided, as fractions.

    again: how often a second crowd of the same size would decide alike; best: how often a model
    that knew every pair's true share of votes would give the decided answer. n_pairs: pairs that
    entered.
    """

    n_pairs: int
    again: float | None
    best: float | None
    undefined: str | None = None


_LEAST_SPREAD = 1e-6  # of the Beta prior, where nobody ever disagreed


def decided_ceiling(
    for_label: ArrayLike, against: ArrayLike, *, agreement: float
) -> DecidedCeiling:
    """The ceiling against decided pairs, from the votes each was decided by.

    for_label, against: (n,) A-or-B votes for the label of each pair and for its other answer.
    agreement: two-way agreement a of single votes over all of the project's pairs, decided or not;
    taken over decided pairs only it would be too high, since the rule picked those that agree.

    A pair's true share p of people for an answer is drawn from Beta(s, s), which is even because
    the order of answers is arbitrary. Two voters on a pair then agree with (s + 1) / (2s + 1), so
    s = (1 − a) / (2a − 1). Given its votes the share is Beta(s + w, s + l). best is the mean over
    pairs of P(p > ½ | votes); again is the mean chance that as many new votes have the same
    majority, a tie of them counting ½ (beta-binomial; Skellam, JRSS B 10, 1948). That the rule
    chose the pairs by these votes changes neither: it tells nothing of p that the votes do not.

    Assumes interchangeable, independent voters and shares that follow that Beta; where pairs are
    either plain or hopeless with nothing between, both figures are a little low. Pairs without an
    A-or-B vote are left out. Undefined at a ≤ ½, where no s fits, and without pairs.
    """
    won, lost = np.asarray(for_label, dtype=np.int64), np.asarray(against, dtype=np.int64)
    if won.shape != lost.shape or won.ndim != 1:
        raise ValueError("for_label and against must be vectors of one length")
    if (won < 0).any() or (lost < 0).any():
        raise ValueError("votes are counted: none may be negative")
    if not 0 <= agreement <= 1:
        raise ValueError(f"agreement must lie between 0 and 1, not {agreement}")
    voted = won + lost > 0
    n = int(voted.sum())
    if not n:
        return DecidedCeiling(0, None, None, reason("no_decided_pair"))
    if agreement <= 0.5:
        return DecidedCeiling(n, None, None, reason("agreement_of_coins", agreement=agreement))
    spread = max((1 - agreement) / (2 * agreement - 1), _LEAST_SPREAD)
    kinds, times = np.unique(np.column_stack([won[voted], lost[voted]]), axis=0, return_counts=True)
    a, b = spread + kinds[:, 0], spread + kinds[:, 1]
    size = kinds.sum(axis=1)
    half = size // 2
    from scipy.stats import betabinom  # a quarter of what a process loads at its start

    more = betabinom.sf(half, size, a, b)
    tied = np.where(size % 2 == 0, betabinom.pmf(half, size, a, b), 0.0)
    return DecidedCeiling(
        n_pairs=n,
        again=float(np.average(more + tied / 2, weights=times)),
        best=float(np.average(betaincc(a, b, 0.5), weights=times)),
    )

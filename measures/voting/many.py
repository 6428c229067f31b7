"""The same decision for a whole project at once, for previews and imports."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from measures.voting.by_posterior import PosteriorRule
from measures.voting.rule import CHOICES, DEFAULT_RULE, Choice, Outcome, Rule

OUTCOMES = (Outcome.ACCEPTED, Outcome.CONTESTED, Outcome.NEEDS_VOTES)
_ACCEPTED, _CONTESTED, _NEEDS_VOTES = range(3)


@dataclass(frozen=True, slots=True)
class Decisions:
    """One entry per comparison, arrays of length n.

    outcome: index into `OUTCOMES`; winner: index into `CHOICES`, −1 where nothing is accepted;
    share: n_agreeing / n_votes, NaN exactly where n_votes is 0.
    """

    outcome: NDArray[np.int8]
    winner: NDArray[np.int8]
    n_votes: NDArray[np.int64]
    n_agreeing: NDArray[np.int64]
    share: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.outcome)

    def outcomes(self) -> list[Outcome]:
        """The outcomes as words."""
        return [OUTCOMES[code] for code in self.outcome]

    def winners(self) -> list[Choice | None]:
        """The winners as choices."""
        return [None if code < 0 else CHOICES[code] for code in self.winner]

    def tally(self) -> dict[Outcome, int]:
        """How many comparisons have each outcome."""
        counted = np.bincount(self.outcome, minlength=len(OUTCOMES))
        return {outcome: int(n) for outcome, n in zip(OUTCOMES, counted, strict=True)}


def decide_many(
    counts: ArrayLike, rule: Rule = DEFAULT_RULE, *, votes_possible: ArrayLike | None = None
) -> Decisions:
    """`measures.voting.decide` for each row of counts.

    counts: (n, 4) votes in the order of `CHOICES`. votes_possible: one number, (n,) numbers, or
    None for the rule's max_votes; it means what it means in `decide`.
    """
    table = np.asarray(counts)
    if table.ndim != 2 or table.shape[1] != len(CHOICES):
        raise ValueError(f"counts must have shape (n, {len(CHOICES)}), not {table.shape}")
    if table.size and (not np.issubdtype(table.dtype, np.integer) or table.min() < 0):
        raise ValueError("counts must be whole numbers of at least 0")
    table = table.astype(np.int64)
    n_votes = table.sum(axis=1)
    top = table.max(axis=1, initial=0)
    alone = ((table == top[:, None]).sum(axis=1) == 1) & (top > 0)

    accepted = alone & _holds(rule, n_votes, top)
    total = rule.max_votes if votes_possible is None else votes_possible
    if total is None:
        open_still = (top == n_votes) | (rule.least_share < 1)
    else:
        remaining = np.maximum(0, np.asarray(total, dtype=np.int64) - n_votes)
        open_still = (remaining > 0) & _holds(rule, n_votes + remaining, top + remaining)
    return Decisions(
        outcome=np.where(
            accepted, _ACCEPTED, np.where(open_still, _NEEDS_VOTES, _CONTESTED)
        ).astype(np.int8),
        winner=np.where(accepted, table.argmax(axis=1), -1).astype(np.int8),
        n_votes=n_votes,
        n_agreeing=top,
        share=_share(top, n_votes),
    )


def decide_many_by_posterior(
    counts: ArrayLike,
    posteriors: ArrayLike,
    rule: PosteriorRule,
    *,
    votes_possible: ArrayLike | None = None,
) -> Decisions:
    """`measures.voting.decide_by_posterior` for each row.

    counts: (n, 4) votes, posteriors: (n, 4) probabilities, both in the order of `CHOICES`;
    votes_possible as in `decide_many`.
    """
    table = np.asarray(counts, dtype=np.int64)
    shares = np.asarray(posteriors, dtype=np.float64)
    if table.shape != shares.shape or table.ndim != 2 or table.shape[1] != len(CHOICES):
        raise ValueError(
            f"counts and posteriors must both have shape (n, {len(CHOICES)}), "
            f"not {table.shape} and {shares.shape}"
        )
    n_votes = table.sum(axis=1)
    best = shares.max(axis=1, initial=0.0)
    alone = ((shares >= best[:, None] - 1e-12).sum(axis=1) == 1) & (n_votes > 0)
    accepted = alone & (n_votes >= rule.least_votes) & (best >= rule.least_posterior)
    total = rule.max_votes if votes_possible is None else votes_possible
    open_still = np.ones(len(table), dtype=bool)
    if total is not None:
        open_still = np.asarray(total, dtype=np.int64) - n_votes > 0
    leading = shares.argmax(axis=1) if len(shares) else np.zeros(0, dtype=np.int64)
    top = np.where(alone, table[np.arange(len(table)), leading], table.max(axis=1, initial=0))
    return Decisions(
        outcome=np.where(
            accepted, _ACCEPTED, np.where(open_still, _NEEDS_VOTES, _CONTESTED)
        ).astype(np.int8),
        winner=np.where(accepted, leading, -1).astype(np.int8),
        n_votes=n_votes,
        n_agreeing=top,
        share=_share(top, n_votes),
    )


def _holds(rule: Rule, n_votes: NDArray[np.int64], top: NDArray[np.int64]) -> NDArray[np.bool_]:
    return (
        (n_votes >= rule.least_votes)
        & (top >= rule.least_agreeing)
        & (_share(top, n_votes) >= rule.least_share)
    )


def _share(top: NDArray[np.int64], n_votes: NDArray[np.int64]) -> NDArray[np.float64]:
    missing = np.full(top.shape, np.nan)
    return np.divide(top, n_votes, out=missing, where=n_votes > 0)

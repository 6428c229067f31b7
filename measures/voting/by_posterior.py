"""One comparison under a model of its voters: the posterior, and the decision it leads to.

Every model that `measures.consensus` fits comes down to the same two things: how often each truth
occurs, and for each annotator a matrix of P(vote | truth). With them fixed, the posterior of a
comparison is one application of Bayes' rule to its own votes. Standard library only, because this
runs inside every vote's own transaction.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from measures.voting.rule import CHOICES, Choice, Decision, Outcome

# No vote rules a truth out for good: somebody who never slipped in a hundred votes still may.
_LEAST = 1e-6


@dataclass(frozen=True, slots=True)
class PosteriorRule:
    """Accept at `least_posterior`, after `least_votes` votes of any kind; never over `max_votes`.

    A choice is accepted whichever it is, tie and both-bad included.
    """

    least_posterior: float = 0.9
    least_votes: int = 2
    max_votes: int | None = 5

    def __post_init__(self) -> None:
        if not 0.5 < self.least_posterior < 1:
            raise ValueError(
                f"least_posterior must lie between 0.5 and 1, not {self.least_posterior}"
            )
        if self.least_votes < 1:
            raise ValueError(f"least_votes must be at least 1, not {self.least_votes}")
        if self.max_votes is not None and self.max_votes < self.least_votes:
            raise ValueError(
                f"max_votes is {self.max_votes}, but the rule needs at least {self.least_votes}"
            )


def posterior(
    votes: Iterable[tuple[Choice | str, Sequence[float] | None]],
    priors: Sequence[float],
    unknown: Sequence[float],
) -> tuple[float, float, float, float]:
    """P(truth = k | votes) in the order of `CHOICES`; it sums to 1.

    votes: (choice, matrix) of each vote, the matrix as 16 numbers, entry 4 k + c = P(vote c |
    truth k), or None for an annotator whose matrix is not known: then `unknown` serves. priors: 4
    numbers, 0 for a choice that nobody has made. p_k ∝ prior_k Π_v m_v[k, c_v]: Dawid and
    Skene, Applied Statistics 28 (1979). Assumes that annotators err independently given the truth;
    where they err together (a text that misleads everybody) it is too sure. Without votes it is
    the priors. Entries under 1e-6 count as 1e-6.
    """
    logs = [math.log(prior) if prior > 0 else -math.inf for prior in priors]
    for choice, matrix in votes:
        column = _COLUMN[choice]
        row = unknown if matrix is None else matrix
        for k in range(len(CHOICES)):
            logs[k] += math.log(max(row[4 * k + column], _LEAST))
    top = max(logs)
    if top == -math.inf:
        raise ValueError("every prior is 0: no choice is known")
    weights = [math.exp(value - top) for value in logs]
    total = math.fsum(weights)
    a, b, tie, both_bad = (weight / total for weight in weights)
    return a, b, tie, both_bad


def decide_by_posterior(
    counts: Mapping[Choice, int],
    posteriors: Sequence[float],
    rule: PosteriorRule,
    *,
    votes_possible: int | None = None,
) -> Decision:
    """Decide one comparison by its posterior; `votes_possible` as in `measures.voting.decide`.

    Accepted: enough votes and one choice at or over least_posterior. Otherwise more votes are
    asked for while they may still come, and then it is contested. `n_agreeing` and `share` are of
    the votes for what is most probable, so a reader sees when the two differ.
    """
    n_votes = sum(counts.values())
    best = max(posteriors)
    leaders: tuple[Choice, ...] = ()
    if n_votes:
        leaders = tuple(c for c, p in zip(CHOICES, posteriors, strict=True) if p >= best - 1e-12)
    leading = leaders[0] if len(leaders) == 1 else None
    total = rule.max_votes if votes_possible is None else votes_possible
    remaining = None if total is None else max(0, total - n_votes)
    enough = n_votes >= rule.least_votes and best >= rule.least_posterior
    if leading is not None and enough:
        outcome = Outcome.ACCEPTED
    elif remaining is None or remaining > 0:
        outcome = Outcome.NEEDS_VOTES
    else:
        outcome = Outcome.CONTESTED
    n_agreeing = counts.get(leading, 0) if leading is not None else max(counts.values(), default=0)
    return Decision(
        outcome=outcome,
        winner=leading if outcome is Outcome.ACCEPTED else None,
        leaders=leaders,
        n_votes=n_votes,
        n_agreeing=n_agreeing,
        share=n_agreeing / n_votes if n_votes else None,
        remaining=remaining,
        probability=best,
    )


_COLUMN: dict[str, int] = {choice: column for column, choice in enumerate(CHOICES)}

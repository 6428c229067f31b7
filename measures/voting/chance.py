"""What a rule lets through when nobody reads: exact, by enumeration."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat

from measures.voting.rule import CHOICES, Outcome, Rule, decide

# C(n + 3, 3) count vectors: 23,426 at 50 votes over four choices, still well under a second.
MOST_VOTES = 50


def chance_keep_rate(
    rule: Rule,
    n_votes: int,
    n_choices: int = 2,
    probabilities: Sequence[float] | None = None,
    *,
    stop_when_met: bool = False,
) -> float:
    """The probability that a comparison voted on at random is accepted.

    Each of n_votes voters picks independently: uniformly among the first n_choices of `CHOICES`
    (2: A or B; 3: with ties; 4: with both-bad), or by `probabilities` in that order. Every vector
    of counts is visited and its multinomial probability added where `decide` accepts it, so the
    figure is exact but for rounding.

    stop_when_met: votes come one after another and collecting stops at the first acceptance, as
    with adaptive overlap. A rule that may stop early keeps at least as much by chance.
    """
    chances = _crowd(n_choices, probabilities)
    if not 1 <= n_votes <= MOST_VOTES:
        raise ValueError(f"n_votes must lie between 1 and {MOST_VOTES}, not {n_votes}")
    if stop_when_met:
        return _keep_rate_in_sequence(rule, n_votes, chances)
    return min(
        1.0,
        math.fsum(
            _multinomial(counts, chances)
            for counts in _count_vectors(n_votes, len(chances))
            if _accepted(rule, counts)
        ),
    )


def expected_keep_rate(
    rule: Rule, votes_per_item: Iterable[int], times: Iterable[int] | None = None
) -> float | None:
    """The share of these comparisons that a crowd flipping coins between A and B would pass.

    The mean of `chance_keep_rate` over the comparisons' own numbers of votes; one without votes
    passes nothing, numbers over `MOST_VOTES` count as that many. None without comparisons.
    times: how many comparisons each number stands for, one where it is not given.
    """
    by_number: Counter[int] = Counter()
    for n, k in zip(votes_per_item, repeat(1) if times is None else times, strict=False):
        by_number[min(n, MOST_VOTES)] += k
    total = sum(by_number.values())
    if not total:
        return None
    return sum(k * chance_keep_rate(rule, n) for n, k in by_number.items() if n) / total


def two_way_posterior(n_a: int, n_b: int, accuracy: float) -> float:
    """P(A is right | votes) for n_a votes for A and n_b for B.

    1 / (1 + ((1 − q)/q)^(n_a − n_b)): Bayes with an even prior, for independent annotators who
    all have accuracy q, and no ties (one-coin model: Dawid & Skene 1979 with one parameter).
    """
    if not 0.5 < accuracy < 1:
        raise ValueError(f"accuracy must lie between 0.5 and 1, not {accuracy}")
    if n_a < 0 or n_b < 0:
        raise ValueError(f"vote counts must be at least 0, not {n_a} and {n_b}")
    # exp of a bounded number: a wide lead gives exactly 0 or 1, never an overflow
    log_odds = (n_a - n_b) * math.log(accuracy / (1 - accuracy))
    return 1 / (1 + math.exp(-max(-700.0, min(700.0, log_odds))))


def posterior_keep_rate(accuracy: float, least_posterior: float, n_votes: int) -> float:
    """The probability that coin-flippers reach the posterior: the rate to show beside the rule's.

    Each of n_votes flips a fair coin between A and B; kept where the larger `two_way_posterior`
    at the assumed accuracy is at least `least_posterior`. Exact (binomial enumeration).
    """
    if not 0.5 <= least_posterior <= 1:
        raise ValueError(f"least_posterior must lie in [0.5, 1], not {least_posterior}")
    if n_votes < 1:
        raise ValueError(f"n_votes must be at least 1, not {n_votes}")
    kept = 0
    for n_a in range(n_votes + 1):
        posterior = two_way_posterior(n_a, n_votes - n_a, accuracy)
        if max(posterior, 1 - posterior) >= least_posterior:
            kept += math.comb(n_votes, n_a)
    return kept / 2**n_votes


def _crowd(n_choices: int, probabilities: Sequence[float] | None) -> tuple[float, ...]:
    if probabilities is None:
        if not 1 <= n_choices <= len(CHOICES):
            raise ValueError(f"n_choices must lie between 1 and {len(CHOICES)}, not {n_choices}")
        return (1 / n_choices,) * n_choices
    if not 1 <= len(probabilities) <= len(CHOICES):
        raise ValueError(f"give one probability for each of at most {len(CHOICES)} choices")
    if min(probabilities) < 0 or not math.isclose(math.fsum(probabilities), 1, abs_tol=1e-9):
        raise ValueError(f"probabilities must be at least 0 and sum to 1: {list(probabilities)}")
    return tuple(probabilities)


def _accepted(rule: Rule, counts: tuple[int, ...]) -> bool:
    by_choice = dict(zip(CHOICES, counts, strict=False))
    return decide(by_choice, rule, votes_possible=sum(counts)).outcome is Outcome.ACCEPTED


def _count_vectors(n_votes: int, n_choices: int) -> Iterator[tuple[int, ...]]:
    if n_choices == 1:
        yield (n_votes,)
        return
    for first in range(n_votes + 1):
        for rest in _count_vectors(n_votes - first, n_choices - 1):
            yield (first, *rest)


def _multinomial(counts: tuple[int, ...], chances: tuple[float, ...]) -> float:
    ways, left = 1, sum(counts)
    for count in counts:
        ways *= math.comb(left, count)
        left -= count
    return ways * math.prod(p**k for p, k in zip(chances, counts, strict=True))


def _keep_rate_in_sequence(rule: Rule, n_votes: int, chances: tuple[float, ...]) -> float:
    undecided = {(0,) * len(chances): 1.0}
    kept = 0.0
    for _ in range(n_votes):
        reached: dict[tuple[int, ...], float] = {}
        for counts, weight in undecided.items():
            for k, chance in enumerate(chances):
                following = (*counts[:k], counts[k] + 1, *counts[k + 1 :])
                reached[following] = reached.get(following, 0.0) + weight * chance
        undecided = {}
        for counts, weight in reached.items():
            if _accepted(rule, counts):
                kept += weight
            else:
                undecided[counts] = weight
    return min(1.0, kept)

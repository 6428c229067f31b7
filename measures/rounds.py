"""Agreement before and after a comparison was judged again, on the same comparisons."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from measures.ambiguity import disagreement_evidence
from measures.estimate import Interval
from measures.intervals import mean_interval, paired_difference

Floats = NDArray[np.float64]

_LIGHTEST, _HEAVIEST = 0.01, 1_000.0  # votes that the prior counts for


@dataclass(frozen=True, slots=True)
class BeforeAfter:
    """Percent agreement of two rounds of votes; fractions, intervals 95 %.

    before, after: of each round; difference: after − before, comparison by comparison. expected:
    the agreement a second round would show if nothing had changed (see `before_after`), None
    without a project to learn it from; beyond: after − expected.
    """

    before: Interval
    after: Interval
    difference: Interval
    expected: float | None
    beyond: Interval | None
    n: int


def pair_agreement(counts: ArrayLike) -> Floats:
    """(n,) the share of pairs of votes that agree, NaN where there are fewer than two votes."""
    differing, evidence = disagreement_evidence(counts)
    share = np.full(len(evidence), np.nan)
    np.divide(differing, evidence, out=share, where=evidence > 0)
    return 1 - share


def before_after(
    before: ArrayLike,
    after: ArrayLike,
    *,
    seen: ArrayLike | None = None,
    project: ArrayLike | None = None,
) -> BeforeAfter:
    """Compare two rounds on the comparisons that have two votes or more in both.

    before, after: (n, choices) votes per choice in the first and the second round; seen: (n,
    choices) every vote of the first round, where `before` holds some of them; project: (m,
    choices) first-round votes of the project's comparisons, these n included.

    Only votes that were asked for whatever the others said belong in before, after and project:
    where a further vote is asked for because the first ones differ, and none because they agree,
    agreement over all votes is too high (coin-flippers asked for three votes, and for up to five
    where these differ, seem to agree in 59 % instead of 50).

    Comparisons are sent again because their first votes differed, so a second round agrees more
    even when nothing was improved: regression to the mean. `expected` says how much of the rise
    that is: the posterior mean of Σ p_k², where the chances p of a comparison's choices have a
    Dirichlet prior with the project's agreement and shares of choices (see `_prior`), and all that
    was seen of it is counted in. Being conditional on what was seen, it is not biased by choosing
    comparisons for it. It assumes that these were chosen from the project's comparisons by their
    votes, and is itself taken as known.

    Intervals resample comparisons, in pairs for the differences. Undefined without a comparison
    that has two votes in both rounds.
    """
    first, second = _table(before), _table(after)
    all_seen = first if seen is None else _table(seen)
    if not first.shape == second.shape == all_seen.shape:
        raise ValueError(f"one row of each per comparison: {first.shape} and {second.shape}")
    was, now = pair_agreement(first), pair_agreement(second)
    both = ~np.isnan(was) & ~np.isnan(now)
    was, now = was[both], now[both]
    expected, beyond = None, None
    if project is not None and both.any():
        without_change = _expected(all_seen[both], _table(project))
        expected = float(without_change.mean())
        beyond = paired_difference(now, without_change)
    return BeforeAfter(
        before=mean_interval(was),
        after=mean_interval(now),
        difference=paired_difference(now, was),
        expected=expected,
        beyond=beyond,
        n=int(both.sum()),
    )


def _expected(chosen: Floats, project: Floats) -> Floats:
    """(n,) agreement to expect of a second look at each of the chosen comparisons.

    With a = prior + votes and A = Σ a_k, E[Σ p_k²] = Σ a_k (a_k + 1) / (A (A + 1)).
    """
    weighed = chosen + _prior(project)
    total = weighed.sum(axis=1)
    return (weighed * (weighed + 1)).sum(axis=1) / (total * (total + 1))


def _prior(project: Floats) -> Floats:
    """(choices,) the Dirichlet that comparisons' chances are drawn from, by moments.

    Its mean m is the share of each choice, A and B alike since their order is arbitrary; its weight
    κ is that at which two votes agree as often as they do: a = (κ Σ m_k² + 1) / (κ + 1), so
    κ = (1 − a) / (a − Σ m_k²). Where comparisons differ no more than chance makes them, κ is at
    its bound and a second look shows the project's mean.
    """
    shares = project.sum(axis=0)
    shares[:2] = shares[:2].mean()
    mean = shares / shares.sum()
    agreement = float(np.nanmean(pair_agreement(project)))
    apart = agreement - float((mean**2).sum())
    weight = (1 - agreement) / apart if apart > 0 else _HEAVIEST
    return mean * min(max(weight, _LIGHTEST), _HEAVIEST)


def _table(counts: ArrayLike) -> Floats:
    return np.atleast_2d(np.asarray(counts, dtype=np.float64))

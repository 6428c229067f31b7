"""How strongly the left side pulls each person: b_k of logit P(left) = b_k + s_left − s_right.

The left rate of somebody with 40 votes says little, and understates the pull where most pairs are
clear. Here the other votes on each pair say how clear it is, and the people of a project say how
far pulls differ at all; each person's estimate is drawn towards the project's by as much.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import log_expit, logsumexp

from measures.estimate import reason
from measures.position import position_bias

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

MERITS = np.linspace(-6, 6, 25)  # s_left − s_right
PULLS = np.linspace(-5, 5, 101)
STEPS = 60  # of either EM; both settle in fewer
WIDEST, NARROWEST = 4.0, 0.05  # the spread of pulls in a project, as a standard deviation


@dataclass(frozen=True, slots=True)
class Pulls:
    """(J,) posterior mean and 95 % interval of b_k; n: votes of each that told; centre, spread:
    mean and standard deviation of b over people; undefined: why there is nothing to show."""

    value: Floats
    low: Floats
    high: Floats
    n: Ints
    centre: float | None
    spread: float | None
    undefined: str | None = None


def pulls_of(who: Ints, pair: Ints, chose_left: Ints, a_left: Bools, n_people: int) -> Pulls:
    """Empirical Bayes on grids, from the votes whose side is known (`chose_left` 0 or 1).

    The distribution of s_left − s_right over pairs is estimated without a shape, on `MERITS`, by EM
    over the votes' patterns, at the project's side-flip estimate of b (0 where it is undefined);
    sides are drawn, so it is symmetric. The likelihood of b_k is then, for each of k's votes, the
    mean of σ(b_k + s) over s given the *other* votes on the pair, on `PULLS`. b_k ~ N(centre,
    spread²), both by EM. Source: Carlin & Louis, Bayes and Empirical Bayes Methods, 2nd ed. (2000),
    3.3 and 3.2.3 (Laird's nonparametric EM). Departures: the others' pulls are taken to be the
    project's, and the spread of the estimates of centre and spread is not carried on, so intervals
    are slightly short with few people.
    """
    kept = chose_left >= 0
    who, left, a_left = who[kept], chose_left[kept] == 1, a_left[kept]
    if not len(who):
        nothing = np.full(n_people, np.nan)
        none = np.zeros(n_people, dtype=np.int64)
        return Pulls(nothing, nothing, nothing, none, None, None, reason("no_known_side"))
    _, place = np.unique(pair[kept], return_inverse=True)
    crowd = position_bias(place, who, left.astype(np.int64), a_left)
    b = crowd.logit or 0.0
    table = np.bincount(place * 4 + a_left * 2 + left).astype(np.int64)
    table = np.pad(table, (0, -len(table) % 4)).reshape(-1, 4)
    weights = _merit_weights(table, b)

    # The pair as this voter saw it: [their right-hand answer stood left: chose right, left;
    # the same way round: chose right, left], without their own vote.
    seen = table[place]
    seen[np.arange(len(who)), a_left * 2 + left] -= 1
    turned = np.where(a_left[:, None], seen, seen[:, [2, 3, 0, 1]])
    kinds, kind, _ = _kinds(turned)
    posterior = _posterior(kinds, b, weights)
    chance = np.exp(log_expit(MERITS[:, None] + PULLS[None, :]))  # (merits, pulls)
    p_left = np.clip(posterior @ chance, 1e-12, 1 - 1e-12)
    logs = np.concatenate([np.log1p(-p_left), np.log(p_left)])  # by kind: right, then left
    cell = kind + left * len(kinds)
    votes = sparse.csr_array((np.ones(len(who)), (who, cell)), shape=(n_people, 2 * len(kinds)))
    return _shrunk(votes @ logs, np.bincount(who, minlength=n_people), b)


def _kinds(patterns: Ints) -> tuple[Ints, Ints, Ints]:
    """The different rows, which of them each row is, and how many there are of each."""
    base = int(patterns.max(initial=0)) + 1
    code = patterns @ np.array([base**3, base**2, base, 1])  # votes on a pair: far from overflow
    _, first, kind, n = np.unique(code, return_index=True, return_inverse=True, return_counts=True)
    return patterns[first], kind, n


def _pattern_logs(patterns: Ints, b: float) -> Floats:
    """(kinds, merits) log-likelihood of [turned: right, left; as is: right, left] counts."""
    as_is = np.stack([log_expit(-(MERITS + b)), log_expit(MERITS + b)])
    turned = np.stack([log_expit(MERITS - b), log_expit(b - MERITS)])
    return patterns @ np.concatenate([turned, as_is])


def _posterior(patterns: Ints, b: float, weights: Floats) -> Floats:
    logs = _pattern_logs(patterns, b) + np.log(weights)
    return np.exp(logs - logsumexp(logs, axis=1, keepdims=True))


def _merit_weights(table: Ints, b: float) -> Floats:
    """The share of pairs at each merit, symmetric; with one vote a pair nothing shows that pairs
    differ, and the start (a normal with deviation 1.5) stays."""
    start = np.exp(-0.5 * (MERITS / 1.5) ** 2)
    weights = start / start.sum()
    several = table[table.sum(axis=1) >= 2]
    if not len(several):
        return weights
    kinds, _, n = _kinds(several)
    likelihood = np.exp(_pattern_logs(kinds, b))
    for _ in range(STEPS):
        joint = likelihood * weights
        share = (n[:, None] * joint / joint.sum(axis=1, keepdims=True)).sum(axis=0)
        weights = np.maximum((share + share[::-1]) / (2 * n.sum()), 1e-9)
        weights /= weights.sum()
    return weights


def _shrunk(logs: Floats, n: Ints, b: float) -> Pulls:
    """logs: (J, pulls) log-likelihood of each person's pull."""
    there = n > 0
    centre, spread = b, 0.5
    for _ in range(STEPS):
        weight = logs[there] - 0.5 * ((PULLS - centre) / spread) ** 2
        weight = np.exp(weight - logsumexp(weight, axis=1, keepdims=True))
        mean = weight @ PULLS
        centre = float(mean.mean())
        variance = float((weight @ PULLS**2 - mean**2 + (mean - centre) ** 2).mean())
        spread = min(max(np.sqrt(variance), NARROWEST), WIDEST)
    prior = -0.5 * ((PULLS - centre) / spread) ** 2
    posterior = np.exp(logs + prior - logsumexp(logs + prior, axis=1, keepdims=True))
    upto = np.cumsum(posterior, axis=1)
    step = PULLS[1] - PULLS[0]
    low, high = (PULLS[(upto < q).sum(axis=1).clip(0, len(PULLS) - 1)] for q in (0.025, 0.975))
    return Pulls(
        value=posterior @ PULLS,
        low=low - step / 2,
        high=high + step / 2,
        n=n,
        centre=centre,
        spread=float(spread),
    )

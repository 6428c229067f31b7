"""Which pairs to ask people next: what the replay compares and what a selection chooses by.

uncertainty    pairs whose predicted P(first) is nearest to ½.
d_optimal      greedily by the determinant of the information, det(ρI + Σ xxᵀ) over all pairs asked
               so far (D-optimal design, Fedorov 1972; for reward models Shen, Sun & Ton, arXiv
               2502.04354, who weight each pair by p(1 − p); unweighted here, which did better on
               real votes and needs no model).
entropy        greedily by U · D. U is how much a vote would tell the ensemble (BALD: the entropy of
               the mean prediction less the mean entropy, nats; Houlsby et al., arXiv 1112.5745). D
               is the distance to the 5th nearest pair asked so far, whose logarithm is what the
               pair adds to the entropy of the questions asked (Kozachenko & Leonenko 1987). After
               BAL-PM (Melo et al., arXiv 2406.10023), which adds U and a weighted entropy of the
               prompts in a language model's features; a product needs no weight, and the place of a
               pair here is its prompt beside the midpoint of its answers, since a prompt that
               recurs has distance 0 to itself.
disagreement   the largest variance of the predicted P(first) over the ensemble.

The ensemble: Bradley–Terry heads on the same features, each fitted on a bootstrap sample of the
pairs that have votes. Heads that share features agree where the features are wrong, so the ensemble
sees too little doubt there (Gleave & Irving, arXiv 2203.07472, found no gain on real votes).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import entr, expit

from measures.textmodel import fit

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

UNCERTAINTY, D_OPTIMAL = "uncertainty", "d_optimal"
ENTROPY, DISAGREEMENT = "entropy", "disagreement"
STRATEGIES = (UNCERTAINTY, D_OPTIMAL, ENTROPY, DISAGREEMENT)
HEADS = 5
NEIGHBOURS = 5
_STEPS = 2  # of Newton's method, from the head fitted on all pairs
_NO_DISTANCE = 1e-9  # of a pair that stands where five others do


@dataclass(frozen=True, slots=True)
class Pairs:
    """x: (n, features) first − second; place: (n, m) where the pair lies; prompt: (n,) what
    `most_per_prompt` counts by; first, votes: (n,) votes for the first answer, and for either, 0
    where nobody has voted yet."""

    x: Floats
    place: Floats
    prompt: Ints
    first: Floats
    votes: Floats

    def only(self, rows: Ints) -> "Pairs":
        return Pairs(*(getattr(self, name)[rows] for name in self.__slots__))


def choose(
    strategy: str,
    pairs: Pairs,
    *,
    asked: Ints,
    left: Ints,
    n: int,
    ridge: float,
    weights: Floats | None = None,
    most_per_prompt: int | None = None,
    seed: int = 0,
) -> Ints:
    """At most n of the rows `left`, the best first; fewer where the limit allows no more.

    asked: rows that have been asked, with votes or not yet. weights: of the head fitted on them, if
    the caller has it. most_per_prompt: of one prompt among the chosen. seed: of the bootstrap.
    """
    limit = _Limit(pairs.prompt[left], most_per_prompt)
    known = pairs.only(asked)
    if strategy == D_OPTIMAL:
        return left[_d_optimal(known, pairs.x[left], n, ridge, limit)]
    if weights is None:
        weights = head(known, ridge=ridge)
    if strategy == UNCERTAINTY:
        return left[_ranked(-np.abs(pairs.x[left] @ weights), n, limit)]
    p = expit(pairs.x[left] @ ensemble(known, weights, ridge=ridge, seed=seed).T)
    if strategy == DISAGREEMENT:
        return left[_ranked(p.var(axis=1), n, limit)]
    return left[_entropy(_bald(p), known.place, pairs.place[left], n, limit)]


def head(known: Pairs, *, ridge: float) -> Floats:
    """(features,) of the Bradley–Terry model of all votes."""
    sides = sparse.csr_matrix(np.vstack([known.x, -known.x]))
    counted = np.concatenate([known.first, known.votes - known.first])
    return fit(sides[counted > 0], ridge=ridge, weights=counted[counted > 0])


def ensemble(
    known: Pairs, weights: Floats, *, ridge: float, seed: int, heads: int = HEADS
) -> Floats:
    """(heads, features): fitted again on as many pairs as have votes, drawn with replacement, by
    Newton's method from `weights`. Where nobody has voted all heads are the given one."""
    x, first, votes = (values[known.votes > 0] for values in (known.x, known.first, known.votes))
    if not len(x):
        return np.tile(weights, (heads, 1))
    drawn = np.random.default_rng(seed).multinomial(len(x), np.full(len(x), 1 / len(x)), heads)
    return np.array([_refitted(x, first * of, votes * of, weights, ridge) for of in drawn])


def _refitted(x: Floats, first: Floats, votes: Floats, start: Floats, ridge: float) -> Floats:
    w = start.copy()
    for _ in range(_STEPS):
        p = expit(x @ w)
        curvature = (x * (votes * p * (1 - p))[:, None]).T @ x
        curvature.flat[:: len(w) + 1] += ridge
        w = w + np.linalg.solve(curvature, x.T @ (first - votes * p) - ridge * w)
    return w


def _bald(p: Floats) -> Floats:
    """p: (n, heads). (n,) nats that a vote would tell about which head is right, never negative."""

    def entropy(q: Floats) -> Floats:
        return entr(q) + entr(1 - q)

    return np.maximum(entropy(p.mean(axis=1)) - entropy(p).mean(axis=1), 0.0)


class _Limit:
    """At most so many rows of one prompt: which rows are still free."""

    def __init__(self, prompt: Ints, most: int | None) -> None:
        self.prompt, self.most = prompt, most
        self.free = np.ones(len(prompt), dtype=bool)
        self._taken: dict[int, int] = {}

    def take(self, row: int) -> None:
        self.free[row] = False
        prompt = int(self.prompt[row])
        self._taken[prompt] = self._taken.get(prompt, 0) + 1
        if self._taken[prompt] == self.most:
            self.free &= self.prompt != prompt

    def take_best(self, score: Floats) -> int:
        row = int(np.argmax(np.where(self.free, score, -np.inf)))
        self.take(row)
        return row


def _ranked(score: Floats, n: int, limit: _Limit) -> Ints:
    chosen: list[int] = []
    for row in np.argsort(-score, kind="stable").tolist():
        if len(chosen) == n:
            break
        if limit.free[row]:
            limit.take(row)
            chosen.append(row)
    return np.array(chosen, dtype=np.int64)


def _d_optimal(known: Pairs, x: Floats, n: int, ridge: float, limit: _Limit) -> Ints:
    """Adding x multiplies the determinant by 1 + xᵀA⁻¹x; A⁻¹ by Sherman–Morrison."""
    inverse = np.linalg.inv(ridge * np.eye(x.shape[1]) + known.x.T @ known.x)
    gain = ((x @ inverse) * x).sum(axis=1)
    chosen: list[int] = []
    while len(chosen) < n and limit.free.any():
        chosen.append(row := limit.take_best(gain))
        direction = inverse @ x[row]
        scale = 1 + float(x[row] @ direction)
        gain -= (x @ direction) ** 2 / scale
        inverse = inverse - np.outer(direction, direction) / scale
    return np.array(chosen, dtype=np.int64)


def _entropy(told: Floats, asked: Floats, place: Floats, n: int, limit: _Limit) -> Ints:
    """told: (n,) U of each row; asked, place: (…, m) of the pairs asked and of the rows."""
    nearest = _nearest(place, asked)
    chosen: list[int] = []
    while len(chosen) < n and limit.free.any():
        row = limit.take_best(told * np.sqrt(nearest[:, -1] + _NO_DISTANCE))
        chosen.append(row)
        to_it = ((place - place[row]) ** 2).sum(axis=1)
        # Kept in order: the new distance takes its place and the farthest falls out.
        nearest = np.sort(np.column_stack([nearest, to_it]), axis=1)[:, : nearest.shape[1]]
    return np.array(chosen, dtype=np.int64)


def _nearest(place: Floats, asked: Floats) -> Floats:
    """(n, k) squared distances to the k nearest of `asked`, the nearest first; k is 5, or as many
    as there are; a single column of ones where there is none."""
    if not len(asked):
        return np.ones((len(place), 1))
    k = min(NEIGHBOURS, len(asked))
    one, other = place.astype(np.float32), asked.astype(np.float32)
    squared = (other**2).sum(axis=1) - 2 * (one @ other.T)
    near = np.partition(squared, k - 1, axis=1)[:, :k] + (one**2).sum(axis=1)[:, None]
    return np.sort(np.maximum(near.astype(np.float64), 0.0), axis=1)

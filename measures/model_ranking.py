"""Which of several models is better: pairs of them, and an order with strengths.

A vote compares the answers of two models to one prompt, shown side by side to one person. Votes
hang together twice, by prompt and by person, so nothing here treats them as independent.

Ties count as half a win for either model. Votes that both answers are bad say nothing about which
is better: they are left out of every rate and strength, and counted beside them.

    n votes (both bad left out), M models, P prompts, A people
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components
from scipy.special import expit, stdtr, stdtrit

from measures.bootstrap import MOST_UNDEFINED

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

LEAST_PEOPLE = 5
LEAST_PROMPTS = 20
REPLICATES = 200  # of each of the three resamplings; the interval's width is then right to 5 %
LENGTH_STEP = 0.1  # of the log ratio of lengths: finer differences count as equal
CONTROLS = ("side", "length")
_STEPS, _TOLERANCE, _FARTHEST = 50, 1e-9, 30.0

# Why there is no interval, or no order.
TOO_FEW_MODELS = "too_few_models"
TOO_FEW_PEOPLE = "too_few_people"
TOO_FEW_PROMPTS = "too_few_prompts"
NOT_CONNECTED = "not_connected"
SEPARATED = "separated"
NO_VOTES = "no_votes"
ALL_ALIKE = "all_alike"
UNSTABLE = "unstable"


@dataclass(frozen=True, slots=True)
class ModelVotes:
    """Votes on answers of two models each, one entry a vote in every array.

    first, second: places of the models, 0 to n_models − 1, of which `first` is that of answer A;
    score: 1 where A is better, 0 where B is, ½ a tie, NaN both are bad; prompt, person: any whole
    numbers; side: ½ where A stood left, −½ where B did, 0 unknown; length: log of the characters of
    A over those of B.
    """

    n_models: int
    first: Ints
    second: Ints
    score: Floats
    prompt: Ints
    person: Ints
    side: Floats
    length: Floats

    def __len__(self) -> int:
        return len(self.first)

    def only(self, rows: Bools) -> "ModelVotes":
        parts = (getattr(self, name)[rows] for name in self.__slots__[1:])
        return ModelVotes(self.n_models, *parts)


@dataclass(frozen=True, slots=True)
class Rate:
    """A share with its 95 % interval; `reason` says why there is no interval, or no share."""

    value: float | None
    low: float | None
    high: float | None
    n: int
    n_prompts: int
    n_people: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Meeting:
    """What two models did against each other; `rate` is the win rate of `first`."""

    first: int
    second: int
    wins: int
    losses: int
    ties: int
    both_bad: int
    rate: Rate


def meetings(votes: ModelVotes) -> list[Meeting]:
    """Every pair of models that met, those with most votes first."""
    found = []
    low, high = np.minimum(votes.first, votes.second), np.maximum(votes.first, votes.second)
    for code in np.unique(low * votes.n_models + high).tolist():
        i, j = divmod(code, votes.n_models)
        here = votes.only((low == i) & (high == j))
        score = np.where(here.first == i, here.score, 1 - here.score)
        found.append(
            Meeting(
                i,
                j,
                wins=int((score == 1).sum()),
                losses=int((score == 0).sum()),
                ties=int((score == 0.5).sum()),
                both_bad=int(np.isnan(score).sum()),
                rate=two_way_rate(score, here.prompt, here.person),
            )
        )
    return sorted(found, key=lambda m: (-(m.rate.n + m.both_bad), m.first, m.second))


def win_rates(votes: ModelVotes) -> list[Rate]:
    """Of each model against whatever it met: fair between models that met the same opponents."""
    found = []
    for model in range(votes.n_models):
        here = votes.only((votes.first == model) | (votes.second == model))
        score = np.where(here.first == model, here.score, 1 - here.score)
        found.append(two_way_rate(score, here.prompt, here.person))
    return found


def two_way_rate(score: Floats, prompt: Ints, person: Ints) -> Rate:
    """Mean of scores that hang together by prompt and by person; NaN is left out.

    d_v = y_v − mean; V_P = P/(P − 1) Σ_p (Σ_{v of p} d_v)² / n², V_A the same by people, V_PA by
    (prompt, person); V = max(V_P + V_A − V_PA, V_P, V_A); mean ± t(.975, min(P, A) − 1) √V, cut
    to [0, 1]. Source: Cameron, Gelbach & Miller, J. Business & Economic Statistics 29 (2011).
    Assumes prompts and people drawn independently of one another. Under LEAST_PEOPLE people or
    LEAST_PROMPTS prompts the mean has no interval: who happened to vote decides it.
    """
    kept = ~np.isnan(score)
    values, prompts, people = score[kept], _places(prompt[kept]), _places(person[kept])
    n, n_prompts, n_people = len(values), _count(prompts), _count(people)
    about = (n, n_prompts, n_people)
    if not n:
        return Rate(None, None, None, *about, reason=NO_VOTES)
    mean = float(values.mean())
    reason = _too_few(n_prompts, n_people) or (ALL_ALIKE if np.ptp(values) == 0 else "")
    if reason:
        return Rate(mean, None, None, *about, reason=reason)
    variance = two_way_variances((values - mean) / n, prompts, people).two_way
    half = float(stdtrit(min(n_prompts, n_people) - 1, 0.975)) * math.sqrt(variance)
    return Rate(mean, max(mean - half, 0.0), min(mean + half, 1.0), *about)


@dataclass(frozen=True, slots=True)
class Variances:
    """Of a weighted mean of votes: by clusters of prompts, of people, and of both at once."""

    by_prompt: float
    by_person: float
    by_both: float

    @property
    def two_way(self) -> float:
        """V_P + V_A − V_PA, but never under either."""
        return max(self.by_prompt + self.by_person - self.by_both, self.by_prompt, self.by_person)


def two_way_variances(rest: Floats, prompts: Ints, people: Ints) -> Variances:
    """rest: (n,) deviations from the mean times their weights, which add up to 1; prompts, people:
    (n,) places from 0. Each is C/(C − 1) times the sum of the clusters' squared sums."""
    return Variances(*(_squares(rest, of) for of in (prompts, people, _both(prompts, people))))


def _squares(rest: Floats, cluster: Ints) -> float:
    sums = np.bincount(cluster, weights=rest)
    return float((sums**2).sum()) * len(sums) / max(len(sums) - 1, 1)


def _too_few(n_prompts: int, n_people: int) -> str:
    if n_people < LEAST_PEOPLE:
        return TOO_FEW_PEOPLE
    return TOO_FEW_PROMPTS if n_prompts < LEAST_PROMPTS else ""


# The order of all models: Bradley–Terry.


@dataclass(frozen=True, slots=True)
class Strength:
    """A model's place. value: its log odds against a model of mean strength, low and high the 95 %
    interval; best, worst: its rank where it is as high and as low
    as the differences from the other models allow."""

    model: int
    value: float
    low: float | None
    high: float | None
    best: int
    worst: int

    @property
    def wins(self) -> tuple[float | None, ...]:
        """(value, low, high) as the probability to win."""
        known = (self.value, self.low, self.high)
        return tuple(None if x is None else float(expit(x)) for x in known)


@dataclass(frozen=True, slots=True)
class Control:
    """What a habit of people adds to the log odds: of the left answer (side), or for each factor e
    in length (length)."""

    name: str
    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Order:
    """The models by strength, best first; `reason` says why there is none, or none with intervals
    (then ranks are by strength alone)."""

    strengths: list[Strength]
    controls: list[Control]
    n: int
    n_both_bad: int
    n_prompts: int
    n_people: int
    reason: str = ""


def bradley_terry(
    votes: ModelVotes,
    *,
    controls: Sequence[str] = (),
    replicates: int = REPLICATES,
    seed: int = 0,
) -> Order:
    """Strengths s with P(A better) = σ(s_A − s_B + b · side + c · length), Σ s = 0.

    Maximum likelihood by Newton's method, a tie as half a win (a quasi-likelihood). controls: the
    terms in use, of CONTROLS; the strengths are then those at equal length and on no side. Lengths
    are rounded to LENGTH_STEP, so that equal votes are counted together.

    Intervals: prompts are resampled, then people, then (prompt, person) pairs, each `replicates`
    times with a new fit; with the covariances of the three, each times C/(C − 1) for C clusters,
    V = V_P + V_A − V_PA, but no variance smaller than by prompts or by people alone, and s ± t √V
    with min(P, A) − 1 degrees of freedom. (Resampling prompts and people at once would count the
    noise of single votes three times: Owen, Annals of Applied Statistics 1, 2007.) Ranks come from
    the differences between models, Holm over all of them, and not from bars that overlap.

    Sources: Bradley & Terry, Biometrika 39 (1952); Cameron, Gelbach & Miller (2011); controls as in
    Chiang et al., "Chatbot Arena" (2024), with differences that are not centred. Assumes that one
    number a model explains all pairs: look at the pairs too.

    No order: fewer than two models, models that nothing compares (NOT_CONNECTED), or some that only
    ever won or only ever lost against the others (SEPARATED: their strength has no bound; Ford,
    American Mathematical Monthly 64, 1957). No intervals: too few people or prompts, or more than
    5 % of the resamples without an order (UNSTABLE).
    """
    clear = votes.only(~np.isnan(votes.score))
    prompts, people = _places(clear.prompt), _places(clear.person)
    about = (len(clear), len(votes) - len(clear), _count(prompts), _count(people))
    problem = _Problem.of(clear, controls)
    if reason := _no_order(problem, clear):
        return Order([], [], *about, reason=reason)
    estimate = problem.fitted()
    if estimate is None:
        return Order([], [], *about, reason=SEPARATED)
    reason = _too_few(about[2], about[3])
    spread = None
    if not reason:
        spread = _two_way_covariance(problem, estimate, prompts, people, replicates, seed)
        reason = UNSTABLE if spread is None else ""
    df = max(min(about[2], about[3]) - 1, 1)
    return Order(*_described(problem, estimate, spread, df), *about, reason=reason)


@dataclass(frozen=True, slots=True)
class Gaps:
    """Differences of strengths with the covariance of the fit, for what is asked many times.

    values: (M, M) log odds of the row's model less the column's; errors: (M, M) their standard
    errors by two-way clusters, 0 on the diagonal; by_people: (M, M) the part of the squares that
    only more people would shrink; controls: what each control adds, with errors in
    control_errors; pull: (n,) of each vote that counts, and per model (n, M), how much the strength
    rises by it (`row`: its place among all votes); df: of Student's t; reason: why there is none;
    groups: models by what votes connect, where not all are.
    """

    values: Floats
    errors: Floats
    by_people: Floats
    controls: dict[str, tuple[float, float]]
    pull: Floats
    row: Ints
    n: int
    n_both_bad: int
    n_prompts: int
    n_people: int
    reason: str = ""
    groups: tuple[tuple[int, ...], ...] = ()

    @property
    def df(self) -> int:
        return max(min(self.n_prompts, self.n_people) - 1, 1)


def strength_gaps(votes: ModelVotes, *, controls: Sequence[str] = ()) -> Gaps:
    """The fit of `bradley_terry`, with a covariance that takes no resampling.

    V = H⁻¹ M H⁻¹ with H the curvature at the maximum and M = M_P + M_A − M_PA, where M_C is
    C/(C − 1) Σ_c s_c s_cᵀ and s_c is the sum over the cluster's votes of x_v (y_v − p_v); no
    variance is smaller than by prompts or by people alone. Source: Cameron, Gelbach & Miller
    (2011), as for a logistic regression. Assumes many clusters both ways: who uses it refuses few.
    """
    counted = ~np.isnan(votes.score)
    clear = votes.only(counted)
    prompts, people = _places(clear.prompt), _places(clear.person)
    about = (len(clear), len(votes) - len(clear), _count(prompts), _count(people))
    problem = _Problem.of(clear, controls)
    size = votes.n_models
    reason = _no_order(problem, clear)
    estimate = None if reason else problem.fitted()
    if estimate is None:
        groups = _groups(size, problem) if reason == NOT_CONNECTED else ()
        flat = np.zeros((size, size))
        none = np.zeros((0, size))
        return Gaps(
            *(flat, flat, flat, {}, none, np.flatnonzero(counted)),
            *about,
            reason=reason or SEPARATED,
            groups=groups,
        )
    full, whole = _linear(problem, estimate)
    spreads = [_squared_sums(whole, of) for of in (prompts, people, _both(prompts, people))]
    two_way = spreads[0] + spreads[1] - spreads[2]
    ways = np.zeros((size, size, len(estimate)))
    for model in range(size):
        ways[model, :, model] += 1
        ways[:, model, model] -= 1
    by_each = [np.einsum("ijk,kl,ijl->ij", ways, of, ways) for of in (two_way, *spreads)]
    errors = np.sqrt(np.maximum(np.maximum.reduce(by_each[:3]), 0))
    of_controls = {
        name: (
            float(full[size + k]),
            math.sqrt(max(float(of[size + k, size + k]) for of in (two_way, *spreads[:2]))),
        )
        for k, name in enumerate(problem.controls)
    }
    return Gaps(
        full[:size, None] - full[None, :size],
        errors,
        np.maximum(by_each[2] - by_each[3], 0),
        of_controls,
        whole[:, :size],
        np.flatnonzero(counted),
        *about,
    )


def _linear(problem: "_Problem", estimate: Floats) -> tuple[Floats, Floats]:
    """(M + controls,) and (n, M + controls): the estimate with the first model at 0, and what each
    vote adds to it."""
    free = np.r_[estimate[1 : problem.n_models] - estimate[0], estimate[problem.n_models :]]
    p = expit(problem.rows @ free)
    n = np.bincount(problem.cell, minlength=len(problem.rows)).astype(np.float64)
    curvature = (problem.rows * (n * p * (1 - p))[:, None]).T @ problem.rows
    rest = problem.score - p[problem.cell]
    adds = (problem.rows[problem.cell] * rest[:, None]) @ np.linalg.inv(curvature)
    return np.r_[0.0, free], np.column_stack([np.zeros(len(adds)), adds])


def _squared_sums(adds: Floats, cluster: Ints) -> Floats:
    size = _count(cluster)
    sums = np.zeros((size, adds.shape[1]))
    np.add.at(sums, cluster, adds)
    return sums.T @ sums * size / max(size - 1, 1)


def _groups(size: int, problem: "_Problem") -> tuple[tuple[int, ...], ...]:
    graph = csr_matrix((np.ones(len(problem.first)), (problem.first, problem.second)), (size, size))
    labels = connected_components(graph, directed=False)[1]
    return tuple(tuple(np.flatnonzero(labels == k).tolist()) for k in range(labels.max() + 1))


@dataclass(frozen=True, slots=True)
class _Problem:
    """Votes counted in cells of equal models, side and length.

    cell: (n,) of each vote; score: (n,); rows: (cells, M + controls), the terms of a cell, of which
    the fit leaves out the first model, whose strength is then 0.
    """

    n_models: int
    controls: tuple[str, ...]
    cell: Ints
    score: Floats
    first: Ints
    second: Ints
    rows: Floats

    @classmethod
    def of(cls, votes: ModelVotes, controls: Sequence[str]) -> "_Problem":
        terms = {"side": votes.side, "length": np.round(votes.length / LENGTH_STEP) * LENGTH_STEP}
        chosen = [terms[name] for name in controls]
        if not len(votes):
            empty = np.zeros(0, dtype=np.int64)
            return cls(votes.n_models, tuple(controls), empty, votes.score, empty, empty, _NONE)
        keys = np.column_stack([votes.first, votes.second, *chosen]).astype(np.float64)
        cells, cell = np.unique(keys, axis=0, return_inverse=True)
        first, second = (cells[:, k].astype(np.int64) for k in (0, 1))
        rows = np.zeros((len(cells), votes.n_models + len(chosen)))
        places = np.arange(len(cells))
        rows[places, first] += 1
        rows[places, second] -= 1
        rows[:, votes.n_models :] = cells[:, 2:]
        return cls(
            votes.n_models,
            tuple(controls),
            cell.reshape(-1),
            votes.score,
            first,
            second,
            rows[:, 1:],
        )

    def fitted(self, weights: Floats | None = None, start: Floats | None = None) -> Floats | None:
        """(M + controls,) with strengths that add up to 0; None where there is no such maximum."""
        size = len(self.rows)
        n = np.bincount(self.cell, weights=weights, minlength=size).astype(np.float64)
        scored = self.score if weights is None else weights * self.score
        won = np.bincount(self.cell, weights=scored, minlength=size).astype(np.float64)
        if not self._bounded(n, won):
            return None
        theta = np.zeros(self.rows.shape[1]) if start is None else self._from_first(start)
        for _ in range(_STEPS):
            p = expit(self.rows @ theta)
            gradient = self.rows.T @ (won - n * p)
            curvature = (self.rows * (n * p * (1 - p))[:, None]).T @ self.rows
            try:
                step = np.linalg.solve(curvature, gradient)
            except np.linalg.LinAlgError:
                return None
            theta = theta + step * min(1.0, 5.0 / max(float(np.abs(step).max()), 1e-300))
            if not np.all(np.abs(theta) < _FARTHEST):
                return None
            if np.abs(step).max() < _TOLERANCE:
                return self._centred(theta)
        return None

    def _bounded(self, n: Floats, won: Floats) -> bool:
        """Every model can be reached from every other over wins (a tie is one either way)."""
        ahead, behind = won > 0, n - won > 1e-12
        winners = np.concatenate([self.first[ahead], self.second[behind]])
        losers = np.concatenate([self.second[ahead], self.first[behind]])
        return _parts(self.n_models, winners, losers, "strong") == 1

    def _centred(self, theta: Floats) -> Floats:
        strengths = np.r_[0.0, theta[: self.n_models - 1]]
        return np.r_[strengths - strengths.mean(), theta[self.n_models - 1 :]]

    def _from_first(self, full: Floats) -> Floats:
        return np.r_[full[1 : self.n_models] - full[0], full[self.n_models :]]


_NONE = np.zeros((0, 0))


def _no_order(problem: _Problem, votes: ModelVotes) -> str:
    if not len(votes):
        return NO_VOTES
    if votes.n_models < 2:
        return TOO_FEW_MODELS
    if _parts(votes.n_models, problem.first, problem.second, "weak") > 1:
        return NOT_CONNECTED
    return ""


def _two_way_covariance(
    problem: _Problem, estimate: Floats, prompts: Ints, people: Ints, replicates: int, seed: int
) -> tuple[Floats, ...] | None:
    """(by both ways, by prompts, by people); None where too many resamples have no order."""
    rng = np.random.default_rng(seed)
    found = []
    for cluster in (prompts, people, _both(prompts, people)):
        size = _count(cluster)
        fits = []
        for _ in range(replicates):
            times = np.bincount(rng.integers(0, size, size), minlength=size).astype(np.float64)
            fits.append(problem.fitted(times[cluster], estimate))
        defined = [fit for fit in fits if fit is not None]
        if len(defined) < 2 or len(fits) - len(defined) > MOST_UNDEFINED * len(fits):
            return None
        spread = np.cov(np.array(defined), rowvar=False).reshape(len(estimate), -1)
        found.append(spread * size / max(size - 1, 1))
    by_prompts, by_people, by_both = found
    return by_prompts + by_people - by_both, by_prompts, by_people


def _described(
    problem: _Problem, estimate: Floats, spread: tuple[Floats, ...] | None, df: int
) -> tuple[list[Strength], list[Control]]:
    size = problem.n_models

    def bounds(way: Floats) -> tuple[float | None, float | None]:
        if spread is None:
            return None, None
        half = float(stdtrit(df, 0.975)) * _deviation(spread, way)
        value = float(way @ estimate)
        return value - half, value + half

    ways = np.eye(len(estimate))
    above = _surely_above(estimate[:size], spread, df)
    strengths = [
        Strength(
            model,
            float(estimate[model]),
            *bounds(ways[model]),
            best=1 + int(above[:, model].sum()),
            worst=size - int(above[model].sum()),
        )
        for model in np.argsort(-estimate[:size], kind="stable").tolist()
    ]
    controls = [
        Control(name, float(estimate[size + k]), *bounds(ways[size + k]))
        for k, name in enumerate(problem.controls)
    ]
    return strengths, controls


def _deviation(spread: tuple[Floats, ...], way: Floats) -> float:
    """Standard error of a combination; the largest of the three variances, so never negative."""
    return math.sqrt(max(float(way @ of @ way) for of in spread))


def _surely_above(strengths: Floats, spread: tuple[Floats, ...] | None, df: int) -> Bools:
    """(M, M): whether the row's model is better than the column's, by Holm at 5 % over all pairs;
    without intervals, whether it stands above it."""
    size = len(strengths)
    gaps = strengths[:, None] - strengths[None, :]
    if spread is None:
        return gaps > 0
    tests = []
    for i in range(size):
        for j in range(i):
            way = np.zeros(len(spread[0]))
            way[i], way[j] = 1.0, -1.0
            error = max(_deviation(spread, way), 1e-12)
            tests.append((2 * float(stdtr(df, -abs(gaps[i, j]) / error)), i, j))
    above = np.zeros((size, size), dtype=bool)
    for k, (p, i, j) in enumerate(sorted(tests)):
        if p > 0.05 / (len(tests) - k):
            break
        above[(i, j) if gaps[i, j] > 0 else (j, i)] = True
    return above


def _places(labels: Ints) -> Ints:
    return np.unique(labels, return_inverse=True)[1].reshape(-1)


def _count(places: Ints) -> int:
    return int(places.max(initial=-1)) + 1


def _both(first: Ints, second: Ints) -> Ints:
    return _places(first * _count(second) + second)


def _parts(size: int, starts: Ints, ends: Ints, connection: str) -> int:
    graph = csr_matrix((np.ones(len(starts)), (starts, ends)), shape=(size, size))
    return int(connected_components(graph, directed=True, connection=connection)[0])

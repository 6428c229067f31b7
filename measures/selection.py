"""Would choosing which pairs people label next have saved votes? A replay on votes already cast.

Every seed holds out whole groups (prompts, debates) and labels the rest one vote at a time: a
random start, then batches chosen by a strategy; the label of a chosen pair is one of the votes that
it really got, drawn at random, and no pair is asked twice. After each batch a Bradley–Terry model
(`measures.textmodel.fit`) is fitted and tested on the held-out pairs.

Beside *random*, which draws a batch at random, stand the strategies of `measures.acquisition`, by
which pairs are really chosen: *uncertainty* for the whole batch, the others for half of it, the
other half being drawn at random, as in a selection of half of the pairs.

All strategies of a seed share the groups, the start and the votes drawn. The ridge is the one with
which *random* ends best; where that is an end of the grid, random may still be under-tuned, any
other strategy would look good beside it, and the replay refuses. Tuning on the pairs that are
tested favours random, so savings are rather too small.

Saving: 1 − t/t_random, t: votes until the mean curve over seeds reaches what random ends with;
curves are made monotone first (isotonic regression), a strategy that never arrives has t = all
votes. Intervals: 95 % percentile bootstrap over seeds. Seeds share one pool, so they say how sure
the saving is *on this pool*, not on the next project's.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.optimize import isotonic_regression
from scipy.sparse.linalg import svds
from scipy.special import expit, log_expit

from measures.acquisition import (
    D_OPTIMAL,
    DISAGREEMENT,
    ENTROPY,
    UNCERTAINTY,
    Pairs,
    choose,
)
from measures.bootstrap import REPLICATES, percentile_bounds
from measures.corpus import Corpus
from measures.estimate import Interval, reason
from measures.textmodel import fit, tfidf

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RANDOM = "random"
STRATEGIES = (RANDOM, UNCERTAINTY, D_OPTIMAL, ENTROPY, DISAGREEMENT)
RIDGES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
SEEDS = 20
START = BATCH = 50  # votes
MOST_VOTES = 1_000
HELD_OUT = 0.3  # of the pairs, at least; whole groups
LEAST_PAIRS, LEAST_GROUPS = 500, 5
COMPONENTS = 64
BINS = 10
LEAST_GAIN = 0.002  # nats below ln 2 that random must end with; less is no signal to select for


@dataclass(frozen=True, slots=True)
class Pool:
    """x: (n, features) first − second; first, votes: (n,) votes for the first answer, and for
    either; group: (n,) what is held out together; prompt: (n,) what `most_per_prompt` counts by;
    place: (n, m) where each pair lies among the questions, `x` where nothing is given."""

    x: Floats
    first: Ints
    votes: Ints
    group: Ints
    prompt: Ints
    place: Floats | None = None

    @property
    def pairs(self) -> Pairs:
        place = self.x if self.place is None else self.place
        return Pairs(self.x, place, self.prompt, self.first.astype(float), self.votes.astype(float))

    @property
    def share(self) -> Floats:
        return self.first / self.votes

    @property
    def n_groups(self) -> int:
        return len(np.unique(self.group))

    def only(self, rows: NDArray[np.bool_]) -> "Pool":
        place = None if self.place is None else self.place[rows]
        columns = (self.first, self.votes, self.group, self.prompt)
        first, votes, group, prompt = (column[rows] for column in columns)
        return Pool(self.x[rows], first, votes, group, prompt, place)


@dataclass(frozen=True, slots=True)
class Curve:
    """A strategy's means over seeds; losses in nats, others fractions.

    log_loss, accuracy, calibration_error: (points,) after `Replay.points` votes, on held-out pairs
    against their shares of votes; accuracy is agreement with a vote. saved, saved_accuracy: share
    of random's votes saved until its final log loss, accuracy; worse: log loss above random's,
    mean of the second half of the curve. None for random.
    """

    strategy: str
    log_loss: tuple[float, ...]
    accuracy: tuple[float, ...]
    calibration_error: tuple[float, ...]
    saved: Interval | None = None
    saved_accuracy: Interval | None = None
    worse: Interval | None = None

    @property
    def verdict(self) -> str:
        """saves | worse | no_evidence; "" for random. A saving must be clear of 0 in log loss and
        in accuracy."""
        if self.saved is None or self.saved_accuracy is None or self.worse is None:
            return ""
        if min(self.saved.low or 0.0, self.saved_accuracy.low or 0.0) > 0:
            return "saves"
        return "worse" if (self.worse.low or 0.0) > 0 else "no_evidence"


@dataclass(frozen=True, slots=True)
class Replay:
    """n pairs, n_votes on them; points: votes after which was tested; ridges: (ridge, random's
    final log loss). `refused` says why there are no curves, as `measures.estimate.reason` does."""

    n: int
    n_votes: int
    n_groups: int
    seeds: int
    points: tuple[int, ...] = ()
    ridge: float | None = None
    ridges: tuple[tuple[float, float], ...] = ()
    curves: tuple[Curve, ...] = ()
    refused: str = ""

    @property
    def best(self) -> Curve | None:
        """The strategy that saves most, of those that save."""
        saving = [one for one in self.curves if one.verdict == "saves"]
        return max(
            saving, key=lambda one: one.saved.value or 0.0 if one.saved else 0.0, default=None
        )

    @property
    def verdict(self) -> str:
        """refused | saves | worse (every strategy is) | no_evidence."""
        if self.refused:
            return "refused"
        if self.best:
            return "saves"
        told = {one.verdict for one in self.curves if one.verdict}
        return "worse" if told == {"worse"} else "no_evidence"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def pool_of(
    texts: Sequence[str],
    first: ArrayLike,
    second: ArrayLike,
    votes_first: ArrayLike,
    votes: ArrayLike,
    *,
    groups: Sequence[object],
    prompts: Sequence[object],
    prompt_texts: Sequence[str] | None = None,
) -> Pool:
    """texts: (m,); first, second: (n,) text numbers; votes_first of votes: (n,), 0 of 0 where
    nobody has voted (no replay takes those); prompt_texts: (n,), if they are known.

    Features: the leading singular vectors of TF-IDF (64, fewer for few texts), and log length. A
    pair's place: those of its prompt beside the mean of its answers', without length.
    """
    words, size = _features(texts)
    of_texts = np.hstack([words, size])
    one, other = np.asarray(first, dtype=np.int64), np.asarray(second, dtype=np.int64)
    place = (words[one] + words[other]) / 2
    if prompt_texts is not None:
        asked, of_pair = np.unique(np.asarray(prompt_texts, dtype=object), return_inverse=True)
        place = np.hstack([_features(asked.tolist())[0][of_pair], place])
    return Pool(
        x=of_texts[one] - of_texts[other],
        first=np.asarray(votes_first, dtype=np.int64),
        votes=np.asarray(votes, dtype=np.int64),
        group=_numbered(groups),
        prompt=_numbered(prompts),
        place=place,
    )


def _features(texts: Sequence[str]) -> tuple[Floats, Floats]:
    """((texts, k) singular vectors times values, (texts, 1) log length); k is 0 for one text."""
    corpus = Corpus(texts)
    table = tfidf(corpus.counts(least_texts=2), corpus.lengths)
    words, size = table[:, :-1], table[:, [-1]].toarray()
    rank = min(COMPONENTS, min(words.shape) - 1)
    if rank <= 0:
        return np.zeros((len(texts), 0)), size
    u, s, _ = svds(words, k=rank, rng=np.random.default_rng(0))
    return u * s, size


def _numbered(names: Sequence[object]) -> Ints:
    return np.unique(np.asarray(names, dtype=str), return_inverse=True)[1].astype(np.int64)


def replay(
    pool: Pool,
    *,
    ridges: Sequence[float] = RIDGES,
    seeds: int = SEEDS,
    most_votes: int = MOST_VOTES,
    most_per_prompt: int | None = None,
) -> Replay:
    """most_per_prompt: chosen pairs of one prompt in a batch (pairs drawn at random are not
    counted); None: any number. Refused with too few pairs or groups, without signal, and where
    random is under-tuned. ValueError: fewer than 3 ridges or 20 seeds."""
    if len(ridges) < 3 or seeds < SEEDS:
        raise ValueError(f"a replay needs at least 3 ridges and {SEEDS} seeds")
    found = Replay(len(pool.x), int(pool.votes.sum()), pool.n_groups, seeds)
    if why := too_little(pool):
        return replace(found, refused=why)
    plays = [_Play(pool, seed, most_per_prompt) for seed in range(seeds)]
    room = min(len(one.train) for one in plays) // 2
    budget = min(most_votes, room // BATCH * BATCH)
    if budget < START + 2 * BATCH:
        return replace(found, refused=reason("few_to_replay", n=room, least=START + 2 * BATCH))
    grid = sorted(ridges)
    ends = [float(np.mean([one.random_end(budget, ridge) for one in plays])) for ridge in grid]
    found = replace(found, ridges=tuple(zip(grid, ends, strict=True)))
    best = int(np.argmin(ends))
    if np.log(2) - ends[best] < LEAST_GAIN:
        return replace(found, refused=reason("no_signal_to_select"))
    if best in (0, len(grid) - 1):
        return replace(found, refused=reason("random_under_tuned", ridge=grid[best]))
    runs = {
        name: np.array([one.curve(name, budget, grid[best]) for one in plays])
        for name in STRATEGIES
    }
    return replace(
        found,
        ridge=grid[best],
        points=tuple(range(START, budget + 1, BATCH)),
        curves=tuple(_summary(name, runs[name], runs[RANDOM]) for name in STRATEGIES),
    )


class _Play:
    """One seed: held-out groups, the order of random pairs, and the vote that each pair gives."""

    def __init__(self, pool: Pool, seed: int, most_per_prompt: int | None) -> None:
        rng = np.random.default_rng(seed)
        held = np.isin(pool.group, held_out(pool, rng))
        self.test = np.flatnonzero(held)
        self.train = rng.permutation(np.flatnonzero(~held))
        won = rng.random(len(pool.x)) < pool.share
        self.sign = np.where(won, 1.0, -1.0)[self.train]
        self.pairs = pool.pairs.only(self.train)
        self.x = self.pairs.x
        self.test_x, self.test_share = pool.x[self.test], pool.share[self.test]
        self.most = most_per_prompt
        self.seed = seed

    def random_end(self, budget: int, ridge: float) -> float:
        return self._tested(np.arange(budget), ridge)[1][0]

    def curve(self, strategy: str, budget: int, ridge: float) -> list[tuple[float, float, float]]:
        """(points,) of log loss, accuracy and calibration error. Rows of `train` are in random
        order, so the first that are left are a random draw."""
        asked = np.arange(START)
        weights, told = self._tested(asked, ridge)
        curve = [told]
        while len(asked) < budget:
            left = np.setdiff1d(np.arange(len(self.x)), asked)
            asked = np.concatenate([asked, self._chosen(strategy, asked, left, weights, ridge)])
            weights, told = self._tested(asked, ridge)
            curve.append(told)
        return curve

    def _chosen(
        self, strategy: str, asked: Ints, left: Ints, weights: Floats, ridge: float
    ) -> Ints:
        if strategy == RANDOM:
            return left[:BATCH]
        at_random = 0 if strategy == UNCERTAINTY else BATCH // 2
        drawn, left = left[:at_random], left[at_random:]
        picked = choose(
            strategy,
            self._known(asked),
            asked=np.concatenate([asked, drawn]),
            left=left,
            n=BATCH - at_random,
            ridge=ridge,
            weights=weights,
            most_per_prompt=self.most,
            seed=self.seed,
        )
        chosen = np.concatenate([drawn, picked])
        # Where the limit leaves too few, the batch is filled up at random.
        return np.concatenate([chosen, np.setdiff1d(left, chosen)[: BATCH - len(chosen)]])

    def _known(self, asked: Ints) -> Pairs:
        """With the one vote of each pair that was asked, and no other."""
        votes = np.zeros(len(self.x))
        votes[asked] = 1.0
        return replace(self.pairs, first=votes * (self.sign > 0), votes=votes)

    def _tested(self, asked: Ints, ridge: float) -> tuple[Floats, tuple[float, float, float]]:
        rows = self.x[asked] * self.sign[asked][:, None]
        weights = fit(sparse.csr_matrix(rows), ridge=ridge)
        return weights, tested(self.test_x @ weights, self.test_share)


def too_little(pool: Pool) -> str:
    """Why a pool is not replayed at all; "" where it is."""
    if len(pool.x) < LEAST_PAIRS:
        return reason("few_voted_pairs", n=len(pool.x), least=LEAST_PAIRS)
    if pool.n_groups < LEAST_GROUPS:
        return reason("few_groups", n=pool.n_groups, least=LEAST_GROUPS)
    return ""


def held_out(
    pool: Pool, rng: np.random.Generator, *, share: float = HELD_OUT, least: int = 1
) -> Ints:
    """Groups drawn at random until they have this share of the pairs, `least` at least; one group
    is always left to learn from."""
    names, sizes = np.unique(pool.group, return_counts=True)
    order = rng.permutation(len(names))
    enough = int(np.searchsorted(np.cumsum(sizes[order]), share * len(pool.x))) + 1
    return names[order[: min(max(enough, least), len(order) - 1)]]


def tested(margin: Floats, share: Floats) -> tuple[float, float, float]:
    """Log loss, agreement with a vote and calibration error of predictions σ(margin), against the
    pairs' shares of votes: (n,) each."""
    loss = -(share * log_expit(margin) + (1 - share) * log_expit(-margin)).mean()
    right = np.where(margin > 0, share, np.where(margin < 0, 1 - share, 0.5)).mean()
    return float(loss), float(right), _calibration_error(expit(margin), share)


def _calibration_error(p: Floats, share: Floats) -> float:
    """Mean |predicted − observed| over bins of equal size. Which answer is first is arbitrary, so
    each pair enters with both orders."""
    both, seen = np.concatenate([p, 1 - p]), np.concatenate([share, 1 - share])
    bins = np.array_split(np.argsort(both, kind="stable"), BINS)
    return float(sum(abs((both[b] - seen[b]).sum()) for b in bins) / len(both))


def _summary(name: str, runs: Floats, random: Floats) -> Curve:
    """runs, random: (seeds, points, 3)."""
    loss, accuracy, error = (tuple(row.tolist()) for row in runs.mean(axis=0).T)
    made = Curve(name, loss, accuracy, error)
    if name == RANDOM:
        return made
    half = runs.shape[1] // 2
    later = (runs[:, half:, 0] - random[:, half:, 0]).mean(axis=1)
    return replace(
        made,
        saved=_saving(runs[:, :, 0], random[:, :, 0]),
        saved_accuracy=_saving(-runs[:, :, 1], -random[:, :, 1]),
        worse=mean_over_seeds(later),
    )


def _saving(runs: Floats, random: Floats) -> Interval:
    """Of a figure that falls as votes come in; (seeds, points) each."""
    drawn = _drawn(len(runs))
    values = np.array([_saved(runs[k].mean(axis=0), random[k].mean(axis=0)) for k in drawn])
    return _interval(_saved(runs.mean(axis=0), random.mean(axis=0)), values, len(runs))


def mean_over_seeds(values: Floats) -> Interval:
    """values: (seeds,)."""
    means = values[_drawn(len(values))].mean(axis=1)
    return _interval(float(values.mean()), means, len(values))


def _drawn(seeds: int) -> Ints:
    return np.random.default_rng(0).integers(0, seeds, size=(REPLICATES, seeds))


def _saved(curve: Floats, random: Floats) -> float:
    base = isotonic_regression(random, increasing=False).x
    other = isotonic_regression(curve, increasing=False).x
    return 1 - _votes_until(other, base[-1]) / _votes_until(base, base[-1])


def _votes_until(curve: Floats, target: float) -> float:
    """Votes at which a falling curve first reaches the target, between points by a straight line;
    all of them, if never."""
    reached = np.flatnonzero(curve <= target + 1e-12)
    last = START + BATCH * (len(curve) - 1)
    if not len(reached):
        return float(last)
    at = int(reached[0])
    if at == 0:
        return float(START)
    part = (curve[at - 1] - target) / (curve[at - 1] - curve[at])
    return START + BATCH * (at - 1 + float(part))


def _interval(value: float, values: Floats, seeds: int) -> Interval:
    bounds = percentile_bounds(values, unit="seeds")
    return Interval(
        value=value, low=bounds.low, high=bounds.high, n=seeds, no_interval=bounds.reason
    )

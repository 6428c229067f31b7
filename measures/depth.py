"""One vote each on more pairs, or several on fewer? A replay at equal numbers of votes.

Every seed holds out whole groups and labels the rest by each way, with the votes that the pairs
really got, in random order and none twice. A way with k votes a pair asks votes/k pairs; what it
then throws away (ties of a majority, pairs that are not unanimous) was paid for all the same.

single       one vote a pair.
soft_3       three votes, the label is their share.
majority_3   three votes, the label is their majority.
majority_4   four votes, likewise; two against two gives no label.
unanimous_4  four votes, of which only pairs with four alike are kept.

The model and the test are those of `measures.selection`. The ridge is tuned for every way and
number of votes: the held-out groups are halved, each half is tested with the ridge that is best on
the other, in the mean over seeds. A way whose best ridge is at an end of the grid may look worse
than it is and is not compared; where that is one vote each, the replay refuses.

All ways learn from and are tested on the same pairs: those with as many votes as the deepest way
takes. Where many pairs have fewer, those with more may be the ones on which the first votes
differed, which are harder, and the replay refuses (`deep_pairs_chosen`) or goes without that depth.

Intervals: 95 % percentile bootstrap over seeds of the difference to one vote each. Seeds share one
pool, so they say how sure the difference is *on this pool*. No correction for the number of ways.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from measures.estimate import Interval, reason
from measures.selection import (
    LEAST_GAIN,
    LEAST_PAIRS,
    RIDGES,
    SEEDS,
    Pool,
    held_out,
    mean_over_seeds,
    tested,
    too_little,
)
from measures.textmodel import fit

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SINGLE = "single"
SOFT, MAJORITY, UNANIMOUS = "soft", "majority", "unanimous"
POINTS = (250, 500, 1_000, 2_000, 4_000)  # votes
HELD_OUT = 0.25  # of the pairs, at least; whole groups, half of them to tune the other half
NOT_CHOSEN = 0.8  # of the pairs with two votes or more that must have as many as a way takes


@dataclass(frozen=True, slots=True)
class Way:
    """depth: votes a pair; label: what they become."""

    name: str
    depth: int
    label: str


WAYS = (
    Way(SINGLE, 1, SOFT),
    Way("soft_3", 3, SOFT),
    Way("majority_3", 3, MAJORITY),
    Way("majority_4", 4, MAJORITY),
    Way("unanimous_4", 4, UNANIMOUS),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """A way at a number of votes; means over seeds on held-out pairs, losses in nats.

    pairs: asked; labelled: the share of them that gets a label. above: the figure less that of one
    vote each, in the order log loss, accuracy, calibration error; empty for one vote each itself.
    ridges: of the two halves. under_tuned: the best ridge is at an end of the grid, so the way is
    not compared.
    """

    way: str
    votes: int
    pairs: int
    labelled: float
    log_loss: float
    accuracy: float
    calibration_error: float
    ridges: tuple[float, ...]
    under_tuned: bool = False
    log_loss_above: Interval | None = None
    accuracy_above: Interval | None = None
    calibration_error_above: Interval | None = None

    @property
    def verdict(self) -> str:
        """better | worse | no_evidence than one vote each, by log loss; "" if not compared."""
        above = self.log_loss_above
        if above is None or above.value is None:
            return ""
        if above.low is None or above.high is None:
            return "no_evidence"
        return "better" if above.high < 0 else "worse" if above.low > 0 else "no_evidence"


@dataclass(frozen=True, slots=True)
class Depth:
    """n pairs with n_votes votes; n_deep: those with `deepest` votes or more, which are replayed;
    room: votes that could be replayed; points: votes after which was tested. `refused` says why
    there are no cells, as `measures.estimate.reason` does."""

    n: int
    n_votes: int
    n_groups: int
    seeds: int
    deepest: int = 0
    n_deep: int = 0
    room: int = 0
    points: tuple[int, ...] = ()
    cells: tuple[Cell, ...] = ()
    refused: str = ""

    @property
    def verdict(self) -> str:
        """refused | depth (a deeper way is better at the most votes) | breadth (none is, and one is
        worse) | no_evidence."""
        if self.refused:
            return "refused"
        told = {one.verdict for one in self.cells if one.votes == self.points[-1]}
        return "depth" if "better" in told else "breadth" if "worse" in told else "no_evidence"

    def to_json(self) -> dict[str, Any]:
        """With the verdict of every cell."""
        data = asdict(self)
        for cell, row in zip(self.cells, data["cells"], strict=True):
            row["verdict"] = cell.verdict
        return data


def replay_depth(
    pool: Pool,
    *,
    ridges: Sequence[float] = RIDGES,
    seeds: int = SEEDS,
    points: Sequence[int] = POINTS,
) -> Depth:
    """Refused with too few pairs, groups or votes on them, without signal, and where one vote each
    is under-tuned. ValueError: fewer than 3 ridges or 20 seeds."""
    if len(ridges) < 3 or seeds < SEEDS:
        raise ValueError(f"a replay needs at least 3 ridges and {SEEDS} seeds")
    found = Depth(len(pool.x), int(pool.votes.sum()), pool.n_groups, seeds)
    if why := too_little(pool):
        return replace(found, refused=why)
    deepest, why = _deepest(pool)
    deep = pool.only(pool.votes >= max(deepest, 1))
    found = replace(found, deepest=deepest, n_deep=len(deep.x))
    if why := why or too_little(deep) or _too_alike(deep):
        return replace(found, refused=why)
    plays = [_Play(deep, seed, deepest) for seed in range(seeds)]
    room = min(len(one.x) for one in plays)
    reached = tuple(votes for votes in sorted(points) if votes <= room)
    found = replace(found, room=room)
    if not reached:
        return replace(found, refused=reason("few_to_replay", n=room, least=min(points)))
    grid, sizes = sorted(ridges), np.array([one.sizes for one in plays])
    ways = [way for way in WAYS if way.depth <= deepest]
    single = [_run(plays, ways[0], votes, grid, sizes) for votes in reached]
    if np.log(2) - single[-1].figures[:, 0].mean() < LEAST_GAIN:
        return replace(found, refused=reason("no_signal_to_compare"))
    if single[-1].under_tuned:
        at = next(one for one in single[-1].ridges if one in (grid[0], grid[-1]))
        return replace(found, refused=reason("single_under_tuned", ridge=at))
    cells = [
        _cell(one if way is ways[0] else _run(plays, way, one.votes, grid, sizes), way, one)
        for way, one in product(ways, single)
    ]
    return replace(found, points=reached, cells=tuple(cells))


def _deepest(pool: Pool) -> tuple[int, str]:
    """Votes a pair that can be replayed, and why none can."""
    twice = int((pool.votes >= 2).sum())
    depths = sorted({way.depth for way in WAYS} - {1}, reverse=True)
    for depth in depths:
        n = int((pool.votes >= depth).sum())
        if n >= LEAST_PAIRS and n >= NOT_CHOSEN * twice:
            return depth, ""
    n, depth = int((pool.votes >= depths[-1]).sum()), depths[-1]
    if n < LEAST_PAIRS:
        return 0, reason("few_deep_pairs", n=n, depth=depth, least=LEAST_PAIRS)
    return 0, reason("deep_pairs_chosen", n=n, depth=depth, twice=twice)


def _too_alike(pool: Pool) -> str:
    """Pairs with the same answers, in either order, are one pair however many votes they have."""
    n = len(np.unique(np.abs(pool.x).round(9), axis=0))
    return reason("few_distinct_pairs", n=n, least=LEAST_PAIRS) if n < LEAST_PAIRS else ""


class _Play:
    """One seed: two halves of held-out groups, the order of pairs, and each pair's votes in it."""

    def __init__(self, pool: Pool, seed: int, deepest: int) -> None:
        rng = np.random.default_rng(seed)
        groups = held_out(pool, rng, share=HELD_OUT, least=2)
        self.tests = [np.isin(pool.group, groups[half::2]) for half in (0, 1)]
        self.held = [(pool.x[rows], pool.share[rows]) for rows in self.tests]
        self.sizes = [int(rows.sum()) for rows in self.tests]
        self.train = rng.permutation(np.flatnonzero(~np.isin(pool.group, groups)))
        self.x = pool.x[self.train]
        self.cast = _dealt(pool.first[self.train], pool.votes[self.train], deepest, rng)

    def labelled(self, way: Way, votes: int) -> tuple[Floats, Floats]:
        """Rows that the way learns from, the answer that is preferred first, and their weights."""
        n = votes // way.depth
        x, share = self.x[:n], self.cast[:n, : way.depth].mean(axis=1)
        if way.label == MAJORITY:
            x, share = x[share != 0.5], (share[share != 0.5] > 0.5).astype(np.float64)
        if way.label == UNANIMOUS:
            alike = (share == 0) | (share == 1)
            x, share = x[alike], share[alike]
        rows, weights = np.concatenate([x, -x]), np.concatenate([share, 1 - share])
        return rows[weights > 0], weights[weights > 0]

    def tested(self, way: Way, votes: int, grid: Sequence[float]) -> tuple[Floats, float]:
        """(ridges, halves, 3) figures, and the share of the asked pairs that has a label."""
        rows, weights = self.labelled(way, votes)
        table = sparse.csr_matrix(rows)
        found = np.empty((len(grid), 2, 3))
        for k, ridge in enumerate(grid):
            model = fit(table, ridge=ridge, weights=weights)
            for half, (x, share) in enumerate(self.held):
                found[k, half] = tested(x @ model, share)
        return found, float(weights.sum()) / (votes // way.depth)


def _dealt(first: Ints, votes: Ints, depth: int, rng: np.random.Generator) -> Floats:
    """(n, depth): `depth` of each pair's votes in random order, 1 for its first answer."""
    left, left_first = votes.astype(np.float64), first.astype(np.float64)
    cast = np.empty((len(votes), depth))
    for place in range(depth):
        cast[:, place] = rng.random(len(votes)) * left < left_first
        left_first -= cast[:, place]
        left -= 1
    return cast


@dataclass(frozen=True, slots=True)
class _Run:
    """figures: (seeds, 3)."""

    votes: int
    figures: Floats
    labelled: float
    ridges: tuple[float, ...]
    under_tuned: bool


def _run(plays: Sequence[_Play], way: Way, votes: int, grid: Sequence[float], sizes: Ints) -> _Run:
    """sizes: (seeds, halves) pairs that are tested on."""
    told = [one.tested(way, votes, grid) for one in plays]
    figures = np.array([one for one, _ in told])  # seeds, ridges, halves, 3
    best = figures[:, :, ::-1, 0].mean(axis=0).argmin(axis=0)  # of each half, on the other
    chosen = np.stack([figures[:, best[half], half] for half in (0, 1)], axis=1)
    return _Run(
        votes=votes,
        figures=(chosen * sizes[:, :, None]).sum(axis=1) / sizes.sum(axis=1)[:, None],
        labelled=float(np.mean([share for _, share in told])),
        ridges=tuple(grid[k] for k in best),
        under_tuned=bool(np.isin(best, (0, len(grid) - 1)).any()),
    )


def _cell(run: _Run, way: Way, single: _Run) -> Cell:
    loss, accuracy, error = run.figures.mean(axis=0).tolist()
    made = Cell(
        way=way.name,
        votes=run.votes,
        pairs=run.votes // way.depth,
        labelled=run.labelled,
        log_loss=loss,
        accuracy=accuracy,
        calibration_error=error,
        ridges=run.ridges,
        under_tuned=run.under_tuned,
    )
    if run is single or run.under_tuned or single.under_tuned:
        return made
    above = [mean_over_seeds(column) for column in (run.figures - single.figures).T]
    return replace(
        made,
        log_loss_above=above[0],
        accuracy_above=above[1],
        calibration_error_above=above[2],
    )


def labelled_share(way: Way, agreement: float) -> float | None:
    """The share of asked pairs that gets a label, by how often two votes agree.

    A pair's share of people for an answer is taken from the even Beta(s, s) under which two voters
    agree with a = (s + 1) / (2s + 1), as in `measures.ceiling.decided_ceiling`; so the
    votes for one answer of k are beta-binomial. None at a ≤ ½, where no s fits. Votes for A or B
    only.
    """
    if way.label == SOFT or (way.depth % 2 and way.label == MAJORITY):
        return 1.0
    if not 0.5 < agreement <= 1:
        return None
    from scipy.stats import betabinom  # a quarter of what a process loads at its start

    spread = max((1 - agreement) / (2 * agreement - 1), 1e-6)
    if way.label == UNANIMOUS:
        return float(2 * betabinom.pmf(way.depth, way.depth, spread, spread))
    return float(1 - betabinom.pmf(way.depth // 2, way.depth, spread, spread))

"""Leave one vote out: does a model say how the next person will vote?

For every vote v of annotator j on item i the model predicts j's choice from the other votes on i.
Nothing of item i is in the annotators' matrices that are used (its share is taken out of the
expected counts), so an annotator with two votes is judged by one other, not by an echo of this one.
What stays are the priors and the crowd's shared habits, which one item hardly moves.

The rival is counting: (others on i who chose c + 1) / (others + K), majority with Laplace's rule.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from measures.consensus.em import Cells, Model, cells_of
from measures.consensus.fitting import MODELS, Fit
from measures.consensus.posterior import Floats, softmax
from measures.consensus.votes import Votes

_CHUNK = 200_000  # votes whose matrices are held at once
BINS = 15
LEAST_VOTES = 100
# A predicted share is off by more than this, or log-odds are stretched by more than this: not
# calibrated, once the interval is clear of it.
MOST_ECE = 0.02
SLOPES = (0.8, 1.25)


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of the reliability diagram: mean claim, observed share, number of claims."""

    predicted: float
    observed: float
    n: int


@dataclass(frozen=True, slots=True)
class Check:
    """How a model's held-out predictions did.

    n_votes: votes on items with at least one other vote; the others cannot be predicted and are
    left out. log_loss (nats per vote), brier (Σ_c (p_c − y_c)², 0 to 2): of the model;
    counted_log_loss, counted_brier: of majority with Laplace's rule on the same votes. gain: mean
    of counted − model log loss with its 95 % interval over items. slope b: the votes are most
    likely under p^b; 1 is calibrated, below 1 over-confident. ece: mean |claim − share| over 15
    equal-mass bins of all n·K claims, less what noise alone would give. calibrated: the check
    passes; sentence: why or why not. Fields are None where there is nothing to judge by.
    """

    method: str
    n_votes: int
    n_items: int
    log_loss: float | None
    brier: float | None
    counted_log_loss: float | None
    counted_brier: float | None
    gain: tuple[float, float, float] | None
    slope: tuple[float, float, float] | None
    ece: float | None
    bars: tuple[Bar, ...]
    calibrated: bool
    sentence: str


def leave_one_vote_out(fit: Fit, votes: Votes) -> Check:
    """The check of this fit on the votes it was made from (see the module)."""
    cells = cells_of(votes)
    judged = np.bincount(votes.items, minlength=votes.n_items)[votes.items] > 1
    n = int(judged.sum())
    n_items = len(np.unique(votes.items[judged]))
    if n < LEAST_VOTES or cells.n_classes < 2:
        return Check(
            fit.method, n, n_items, None, None, None, None, None, None, None, (), False,
            f"too few to say: {n} votes stand beside another vote on the same item "
            f"(at least {LEAST_VOTES} are needed)",
        )  # fmt: skip
    number = np.cumsum(votes.offered) - 1
    truth = number[votes.choices[judged]]
    item = votes.items[judged]
    claims = predictions(fit, votes)[judged][:, cells.classes]
    counted = counted_predictions(votes)[judged][:, cells.classes]
    row = np.arange(n)
    loss = -np.log(np.maximum(claims[row, truth], 1e-12))
    rival = -np.log(counted[row, truth])
    gain = _item_interval(rival - loss, item)
    slope = _slope(claims, truth, item)
    bars, ece = _reliability(claims, truth)
    calibrated, sentence = _judged(gain, slope, ece, n)
    return Check(
        method=fit.method,
        n_votes=n,
        n_items=n_items,
        log_loss=float(loss.mean()),
        brier=_brier(claims, truth),
        counted_log_loss=float(rival.mean()),
        counted_brier=_brier(counted, truth),
        gain=gain,
        slope=slope,
        ece=ece,
        bars=bars,
        calibrated=calibrated,
        sentence=sentence,
    )


def predictions(fit: Fit, votes: Votes) -> Floats:
    """(n, 4) P(choice of vote v | the other votes on its item), its item left out of the matrices.

    A vote alone on its item is predicted from the priors.
    """
    cells = cells_of(votes)
    k = cells.n_classes
    posteriors = fit.posteriors[:, cells.classes]
    counts = cells.expected_counts(posteriors)
    model = MODELS[fit.method]()
    for _ in range(5):
        model.learn(counts)
    log_cast, chances = _without_item(model, votes, cells, counts, posteriors)
    sums = np.stack(
        [
            np.bincount(votes.items, weights=log_cast[:, c], minlength=votes.n_items)
            for c in range(k)
        ],
        axis=1,
    )
    with np.errstate(divide="ignore"):
        prior = np.log(fit.priors[cells.classes])
    others = softmax(prior + sums[votes.items] - log_cast)
    found = np.zeros((len(votes), 4))
    found[:, cells.classes] = np.einsum("vk,vkc->vc", others, chances)
    return found


def counted_predictions(votes: Votes) -> Floats:
    """(n, 4) the same by counting the other votes on the item, one imagined vote per choice."""
    others = votes.counts()[votes.items].astype(np.float64)
    others[np.arange(len(votes)), votes.choices] -= 1
    smoothed = (others + 1) * votes.offered
    return smoothed / smoothed.sum(axis=1, keepdims=True)


def _without_item(
    model: Model, votes: Votes, cells: Cells, counts: Floats, posteriors: Floats
) -> tuple[Floats, Floats]:
    """log P(cast vote | truth) (n, K) and matrices (n, K, K), each without the vote's item."""
    k = cells.n_classes
    number = np.cumsum(votes.offered) - 1
    log_cast = np.empty((len(votes), k))
    chances = np.empty((len(votes), k, k))
    for begin in range(0, len(votes), _CHUNK):
        part = slice(begin, begin + _CHUNK)
        annotator, choice = votes.annotators[part], number[votes.choices[part]]
        row = np.arange(len(annotator))
        left = counts[annotator]
        left[row, :, choice] -= posteriors[votes.items[part]]
        np.maximum(left, 0.0, out=left)
        chances[part] = model.matrices(left, annotator)
        log_cast[part] = np.log(np.maximum(chances[part][row, :, choice], 1e-300))
    return log_cast, chances


def _brier(claims: Floats, truth: NDArray[np.int64]) -> float:
    row = np.arange(len(truth))
    return float(((claims**2).sum(axis=1) - 2 * claims[row, truth] + 1).mean())


def _item_interval(values: Floats, item: NDArray[np.int64]) -> tuple[float, float, float]:
    """Mean with a normal 95 % interval, items as independent units."""
    mean = float(values.mean())
    sums = np.bincount(item, weights=values - mean)
    half = 1.96 * float(np.sqrt((sums**2).sum())) / len(values)
    return mean, mean - half, mean + half


def _slope(
    claims: Floats, truth: NDArray[np.int64], item: NDArray[np.int64]
) -> tuple[float, float, float] | None:
    """b that makes the votes most likely under p^b / Σ p^b, by Newton; interval over items."""
    logs = np.log(np.maximum(claims, 1e-12))
    seen = logs[np.arange(len(truth)), truth]
    b = 1.0
    for _ in range(25):
        weights = softmax(b * logs)
        mean = (weights * logs).sum(axis=1)
        curvature = float(((weights * logs**2).sum(axis=1) - mean**2).sum())
        if curvature <= 1e-9 * len(truth):
            return None
        step = float((seen - mean).sum()) / curvature
        b = min(max(b + step, b / 3, 0.01), b * 3, 20.0)
        if abs(step) < 1e-6:
            break
    scores = np.bincount(item, weights=seen - mean)
    half = 1.96 * float(np.sqrt((scores**2).sum())) / curvature
    return b, b - half, b + half


def _reliability(claims: Floats, truth: NDArray[np.int64]) -> tuple[tuple[Bar, ...], float]:
    happened = np.zeros(claims.shape, dtype=bool)
    happened[np.arange(len(truth)), truth] = True
    p, y = claims.ravel(), happened.ravel()
    order = np.argsort(p, kind="stable")
    p, y = p[order], y[order]
    edges = np.linspace(0, len(p), BINS + 1).astype(int)
    bars, off, noise = [], 0.0, 0.0
    for low, high in pairwise(edges):
        if high > low:
            bar = Bar(float(p[low:high].mean()), float(y[low:high].mean()), int(high - low))
            bars.append(bar)
            off += bar.n / len(p) * abs(bar.predicted - bar.observed)
            spread = bar.predicted * (1 - bar.predicted) / bar.n
            noise += bar.n / len(p) * float(np.sqrt(2 / np.pi * spread))
    return tuple(bars), max(0.0, off - noise)


def _judged(
    gain: tuple[float, float, float],
    slope: tuple[float, float, float] | None,
    ece: float,
    n: int,
) -> tuple[bool, str]:
    if gain[2] < 0:
        return False, (
            f"not calibrated: counting the other votes predicts a vote better "
            f"(by {-gain[0]:.3f} nats, n = {n:,})"
        )
    if slope is not None and (slope[1] > SLOPES[1] or slope[2] < SLOPES[0]):
        how = "over-confident" if slope[0] < 1 else "too timid"
        return False, (
            f"not calibrated: its predictions are {how} "
            f"(slope {slope[0]:.2f}, {slope[1]:.2f} to {slope[2]:.2f}, n = {n:,})"
        )
    if ece > MOST_ECE:
        return False, (
            f"not calibrated: predicted shares are off by {100 * ece:.1f} points "
            f"on average (n = {n:,})"
        )
    return True, (
        f"calibrated: predicted shares of votes hold within {100 * ece:.1f} points, and a vote is "
        f"predicted better than by counting, by {gain[0]:.3f} nats (n = {n:,})"
    )

"""How well a consensus predicts votes it has not seen: held-out votes, reliability, dispersion."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from measures.consensus.fitting import (
    MODELS,
    Fit,
    Predictions,
    by_item_mean,
    counted,
    judged_votes,
    predicted,
)
from measures.consensus.models import Cells, cells_of, without_echo
from measures.consensus.votes import N_CHOICES, Floats, Ints, Votes, softmax

# Do predicted shares of votes hold: reliability diagram, calibration error, slope.

BINS = 15
_DRAWS = 1_000


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of the reliability diagram: mean claim, observed share, number of claims."""

    predicted: float
    observed: float
    n: int


@dataclass(frozen=True, slots=True)
class Ranged:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


def reliability(found: Predictions) -> tuple[tuple[Bar, ...], Ranged]:
    """Bars, and the calibration error over all n·K claims "the vote is c, with chance p".

    Claims are sorted into 15 bins of equal numbers; a bin's gap g is its mean claim less the
    observed share, with the standard error s, items as independent units. The error is
    √max(0, Σ w (g² − s²)), w the bin's share of the claims: the root mean square gap without what
    noise alone adds, which the usual Σ w |g| keeps and which makes it positive for a perfect model.
    Interval: the same with gaps redrawn from N(g, s). Source: Kumar, Liang & Ma, NeurIPS 2019;
    Bröcker, Climate Dynamics 39 (2012).
    """
    n, k = found.claims.shape
    happened = np.zeros((n, k))
    happened[np.arange(n), found.cast] = 1
    p, y = found.claims.ravel(), happened.ravel()
    order = np.argsort(p, kind="stable")
    item = np.repeat(found.items, k)[order]
    p, y = p[order], y[order]
    bars, errors = [], []
    for low, high in pairwise(np.linspace(0, n * k, BINS + 1).astype(int)):
        if high > low:
            claim, share = float(p[low:high].mean()), float(y[low:high].mean())
            sums = np.bincount(item[low:high], weights=p[low:high] - y[low:high] - (claim - share))
            bars.append(Bar(claim, share, int(high - low)))
            errors.append(float(np.sqrt((sums**2).sum())) / (high - low))
    weight = np.array([bar.n for bar in bars]) / (n * k)
    gap, error = np.array([bar.predicted - bar.observed for bar in bars]), np.array(errors)
    drawn = gap + error * np.random.default_rng(0).standard_normal((_DRAWS, len(gap)))
    value = float(_root((gap**2 - error**2) @ weight))
    # A redrawn gap holds the noise twice: in g and in the draw.
    low, high = _root(np.percentile((drawn**2 - 2 * error**2) @ weight, [2.5, 97.5]))
    return tuple(bars), Ranged(value, min(value, float(low)), max(value, float(high)))


def _root(square: ArrayLike) -> Floats:
    return np.sqrt(np.maximum(0.0, np.asarray(square)))


def slope(found: Predictions) -> Ranged | None:
    """The power b under which the votes are most likely: p^b / Σ p^b.

    1: as confident as it should be; below 1 over-confident, above 1 too timid. One over the
    temperature of Guo et al. (ICML 2017), by Newton's method; interval from the scores summed over
    items (sandwich). None where all claims are even, so that any b fits.
    """
    logs = np.log(np.maximum(found.claims, 1e-12))
    seen = logs[np.arange(len(logs)), found.cast]
    b, curvature = 1.0, 0.0
    mean: Floats = seen
    for _ in range(25):
        weights = softmax(b * logs)
        mean = (weights * logs).sum(axis=1)
        curvature = float(((weights * logs**2).sum(axis=1) - mean**2).sum())
        if curvature <= 1e-9 * len(logs):
            return None
        step = float((seen - mean).sum()) / curvature
        b = min(max(b + step, b / 3, 0.01), b * 3, 20.0)
        if abs(step) < 1e-6:
            break
    scores = np.bincount(found.items, weights=seen - mean)
    half = 1.96 * float(np.sqrt((scores**2).sum())) / curvature
    return Ranged(b, b - half, b + half)


# Do votes agree from item to item as unevenly as the model says?
#
# A model of the voters holds that, given the truth, annotators err each for themselves. Where
# comparisons differ in difficulty, or people err together (a copied answer, a clique, an attractive
# wrong answer that only experts see through), some items are more unanimous and others more split
# than that allows, while the votes on average may still be predicted well. So crowds are drawn from
# the fit, with the same people on the same items, and the spread of agreement is compared.

DRAWS = 10


def dispersion(fit: Fit, items: Ints, annotators: Ints, choices: Ints) -> Ranged | None:
    """Variance over items of the share of agreeing pairs, observed over expected under the fit.

    items, annotators, choices: (m,) votes, all of an item's or none, each item with at least two.
    1 is as the model says; above 1, annotators do not err independently. A posterior predictive
    check (Gelman, Meng & Stern, Statistica Sinica 6, 1996) at the fitted parameters: ten crowds are
    drawn, truths from the priors and votes from the matrices. Interval: normal, from the fourth
    moment over items and the scatter of the draws. None where all items agree alike.
    """
    _, item = np.unique(items, return_inverse=True)
    n_items = int(item.max()) + 1
    observed = _agreement(item, choices, n_items)
    rng = np.random.default_rng(0)
    truth_steps = np.cumsum(fit.priors)[:-1]
    vote_steps = np.cumsum(fit.confusion, axis=2)[:, :, :-1]
    drawn = np.empty(DRAWS)
    for i in range(DRAWS):
        truth = (rng.random(n_items)[:, None] > truth_steps).sum(axis=1)
        steps = vote_steps[annotators, truth[item]]
        votes = (rng.random(len(item))[:, None] > steps).sum(axis=1)
        drawn[i] = _agreement(item, votes, n_items).var()
    expected = float(drawn.mean())
    if expected < 1e-12 or n_items < 2:
        return None
    squares = (observed - observed.mean()) ** 2
    ratio = float(squares.mean()) / expected
    half = 1.96 * float(np.hypot(squares.std() / np.sqrt(n_items), drawn.std(ddof=1))) / expected
    return Ranged(ratio, ratio - half, ratio + half)


def _agreement(item: Ints, choices: Ints, n_items: int) -> Floats:
    """(n_items,) share of an item's pairs of votes that agree."""
    cells = np.bincount(item * N_CHOICES + choices, minlength=n_items * N_CHOICES)
    counts = cells.reshape(n_items, N_CHOICES).astype(np.float64)
    total = counts @ np.ones(N_CHOICES)
    return ((counts * (counts - 1)) @ np.ones(N_CHOICES)) / (total * (total - 1))


# The check of a model on votes it did not see: leave one vote out.

LEAST_VOTES = 100
MOST_JUDGED = 250_000
# Not calibrated once an interval lies wholly beyond: predicted shares off by more than this …
MOST_ERROR = 0.03
# … or log-odds stretched by more than this; over-confidence matters more than caution, because it
# accepts what should be asked again …
LEAST_SLOPE, MOST_SLOPE = 0.95, 1.25
# … or agreement spread more unevenly over the items than this many times what the model says.
MOST_SPREAD = 1.1


@dataclass(frozen=True, slots=True)
class Check:
    """How a model predicts each vote from the others (see `measures.consensus.fitting`).

    n_votes, n_items: votes judged, those on items with another vote, and their items (above
    `MOST_JUDGED` votes every m-th item). log_loss: nats per vote; brier: mean of Σ_c (p_c − y_c)²,
    0 to 2; counted_log_loss, counted_brier: those of counting, (others for c + 1) / (others + K).
    gain: counted_log_loss − log_loss. slope, calibration_error, bars: see
    `measures.consensus.held_out`; spread: see `measures.consensus.held_out`.
    fault: what was found against it, one of `FAULTS`; "" where the check passes. losses, items:
    (n_votes,) the log loss and the item of each, for comparing models on the same votes. Where
    there is too little to judge by, the figures are None.
    """

    method: str
    n_votes: int
    n_items: int
    fault: str
    log_loss: float | None = None
    brier: float | None = None
    counted_log_loss: float | None = None
    counted_brier: float | None = None
    gain: Ranged | None = None
    slope: Ranged | None = None
    calibration_error: Ranged | None = None
    spread: Ranged | None = None
    bars: tuple[Bar, ...] = ()
    losses: Floats | None = None
    items: Ints | None = None

    @property
    def calibrated(self) -> bool:
        return not self.fault


# In the order in which they are looked for. counting: the other votes, counted, predict better;
# uneven: agreement differs more between items than the model says.
FAULTS = ("too_few", "counting", "over_confident", "too_timid", "off", "uneven")


def leave_one_vote_out(fit: Fit, votes: Votes) -> Check:
    """The check of this fit on the votes it was made from.

    Every vote is predicted from the other votes on its item, with the item's share taken out of
    the annotators' matrices. That shows whether posteriors mean what they say about the votes; it
    cannot show whether the crowd is right. Errors that many people share (an attractive wrong
    answer, a clique that agrees) make votes more predictable, not less: only gold shows those.
    """
    cells = cells_of(votes)
    judged = judged_votes(votes, MOST_JUDGED)
    n, n_items = len(judged), len(np.unique(votes.items[judged]))
    if n < LEAST_VOTES:
        return Check(fit.method, n, n_items, "too_few")
    found = _predicted_by(fit, cells, judged)
    rival = counted(votes, cells.classes, judged)
    losses, rival_losses = found.log_losses(), rival.log_losses()
    gain = paired(rival_losses, losses, found.items)
    stretch = slope(found)
    bars, off = reliability(found)
    spread = dispersion(fit, found.items, votes.annotators[judged], votes.choices[judged])
    return Check(
        fit.method,
        n,
        n_items,
        _fault(gain, stretch, off, spread),
        log_loss=float(losses.mean()),
        brier=_brier(found),
        counted_log_loss=float(rival_losses.mean()),
        counted_brier=_brier(rival),
        gain=gain,
        slope=stretch,
        calibration_error=off,
        spread=spread,
        bars=bars,
        losses=losses,
        items=found.items,
    )


def paired(first: Floats, second: Floats, items: Ints) -> Ranged:
    """Mean of first − second over the same votes, with an interval over items."""
    mean, error = by_item_mean(first - second, items)
    return Ranged(mean, mean - 1.96 * error, mean + 1.96 * error)


def _predicted_by(fit: Fit, cells: Cells, judged: Ints) -> Predictions:
    """The fit's predictions, from posteriors without an echo.

    The fit's own posteriors hold one (they are a Bayes step by the final matrices), so two steps
    without it come first.
    """
    priors = fit.priors[cells.classes]
    posteriors = fit.posteriors[:, cells.classes]
    model = MODELS[fit.method]()
    for _ in range(2):
        counts = cells.expected_counts(posteriors)
        for _ in range(8):
            model.learn(counts)
        posteriors = without_echo(model, cells, counts, posteriors, priors)
    counts = cells.expected_counts(posteriors)
    model.learn(counts)
    return predicted(model, cells, counts, priors, posteriors, judged)


def _brier(found: Predictions) -> float:
    cast = found.claims[np.arange(len(found.cast)), found.cast]
    return float(((found.claims**2).sum(axis=1) - 2 * cast + 1).mean())


def _fault(gain: Ranged, stretch: Ranged | None, off: Ranged, spread: Ranged | None) -> str:
    if gain.high < 0:
        return "counting"
    if stretch is not None and stretch.high < LEAST_SLOPE:
        return "over_confident"
    if stretch is not None and stretch.low > MOST_SLOPE:
        return "too_timid"
    if off.low > MOST_ERROR:
        return "off"
    return "uneven" if spread is not None and spread.low > MOST_SPREAD else ""

"""The check of a model on votes it did not see: leave one vote out."""

from dataclasses import dataclass

import numpy as np

from measures.consensus.dispersion import dispersion
from measures.consensus.em import Cells, cells_of, without_echo
from measures.consensus.fitting import MODELS, Fit
from measures.consensus.posterior import Floats
from measures.consensus.predicting import (
    Predictions,
    by_item_mean,
    counted,
    judged_votes,
    predicted,
)
from measures.consensus.reliability import Bar, Ranged, reliability, slope
from measures.consensus.votes import Ints, Votes

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
    """How a model predicts each vote from the others (see `measures.consensus.predicting`).

    n_votes, n_items: votes judged, those on items with another vote, and their items (above
    `MOST_JUDGED` votes every m-th item). log_loss: nats per vote; brier: mean of Σ_c (p_c − y_c)²,
    0 to 2; counted_log_loss, counted_brier: those of counting, (others for c + 1) / (others + K).
    gain: counted_log_loss − log_loss. slope, calibration_error, bars: see
    `measures.consensus.reliability`; spread: see `measures.consensus.dispersion`.
    calibrated: the check passes; sentence: why, or why not. losses, items: (n_votes,) the log loss
    and the item of each, for comparing models on the same votes. Where there is too little to judge
    by, the figures are None.
    """

    method: str
    n_votes: int
    n_items: int
    calibrated: bool
    sentence: str
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
        return Check(
            fit.method,
            n,
            n_items,
            False,
            f"too few to say: {n} votes stand beside another vote on the same comparison, "
            f"{LEAST_VOTES} are needed",
        )
    found = _predicted_by(fit, cells, judged)
    rival = counted(votes, cells.classes, judged)
    losses, rival_losses = found.log_losses(), rival.log_losses()
    gain = paired(rival_losses, losses, found.items)
    stretch = slope(found)
    bars, off = reliability(found)
    spread = dispersion(fit, found.items, votes.annotators[judged], votes.choices[judged])
    calibrated, sentence = _judged(gain, stretch, off, spread, n)
    return Check(
        fit.method,
        n,
        n_items,
        calibrated,
        sentence,
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


def _judged(
    gain: Ranged, stretch: Ranged | None, off: Ranged, spread: Ranged | None, n: int
) -> tuple[bool, str]:
    votes = f"n = {n:,} votes"
    if gain.high < 0:
        return False, (
            "not calibrated: counting the other votes predicts a vote better, "
            f"by {-gain.value:.3f} nats ({votes})"
        )
    if stretch is not None and stretch.high < LEAST_SLOPE:
        return False, (
            f"not calibrated: it is over-confident, slope {_span(stretch)} where 1 is right "
            f"({votes})"
        )
    if stretch is not None and stretch.low > MOST_SLOPE:
        return False, (
            f"not calibrated: it is too timid, slope {_span(stretch)} where 1 is right ({votes}). "
            "Annotators differ more than it takes them to"
        )
    if off.low > MOST_ERROR:
        return False, (
            f"not calibrated: predicted shares of votes are off by {100 * off.value:.1f} points "
            f"on average ({votes})"
        )
    if spread is not None and spread.low > MOST_SPREAD:
        return False, (
            f"not calibrated: agreement differs {spread.value:.2f} times as much between "
            f"comparisons as the model says ({spread.low:.2f} to {spread.high:.2f}, {votes}). "
            "Comparisons differ in difficulty, or annotators err together"
        )
    return True, (
        f"calibrated: predicted shares of votes hold within {100 * off.value:.1f} points on "
        f"average, slope {_span(stretch)} ({votes})"
    )


def _span(stretch: Ranged | None) -> str:
    if stretch is None:
        return "undefined, since all predictions are even"
    return f"{stretch.value:.2f}, {stretch.low:.2f} to {stretch.high:.2f}"

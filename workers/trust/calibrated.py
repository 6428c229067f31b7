"""Is it as sure as it should be? What its margins claim against how often people agree."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from measures.blocks import Curve, Series, Table
from measures.calibration import Calibration, calibration, fit_temperature
from measures.estimate import Interval, Quantity
from measures.trust.findings import Finding, Verdict, unmeasured
from measures.trust.significance import LEAST_PAIRS, Pairs, difference_of, half_width, undecided
from workers.contract.reasons import reason_words
from workers.trust.wording import against, some, too_thin, undecided_words

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_ERROR = 0.05  # SPEC D4: alarm when the lower bound of the ECE exceeds it
BINS = 15
_FOLDED = float(np.sqrt(2 / np.pi))  # mean of |z|, z standard normal
_Z = 1.959964


def calibration_line(
    pairs: Pairs, temperature_pairs: Pairs | None = None, *, seed: int = 0
) -> Finding:
    """Red: the lower bound of the calibration error of p = σ(Δ) is over 5 points.

    Each pair is turned by a coin, so that "chosen first" gives nothing away; confidences are soft
    labels (four of five votes are 0.8), ties of soft labels included. Bins, Brier score, log loss
    and temperature are those of `measures.calibration`; T is fitted on `temperature_pairs` alone,
    and what is judged are the scores as they are, T = 1: a policy is trained on those.

    Interval. With g_b = mean(y − p) of bin b the ECE is Σ w_b |g_b| = mean of s_b (y − p), s_b the
    sign of g_b: a mean over rows, whose interval `Pairs.interval` gives over what rows share. It is
    biased upwards, because |g_b| is not 0 even where p is right. Its bias is taken off: with σ_b
    the standard error of g_b and τ² = Σ w_b (g_b² − σ_b²), or 0 where negative, the spread of true
    gaps, chance adds √(2/π) Σ w_b (√(τ² + σ_b²) − τ). For a model with no sign of error (τ = 0)
    that is what a perfectly calibrated model with the same p would show; where errors are large
    chance adds nearly nothing to them. Source: Bröcker, Climate Dynamics 39 (2012) for the bias;
    the normal approximation and τ are ours.
    """
    line = "calibration"
    n = len(pairs)
    if n < 2 * BINS:
        return unmeasured(line, f"{some(n)}: too few for {BINS} bins. Hold out more.")
    if not pairs.margins.any():
        return unmeasured(line, "It gives both answers of every pair the same score: no claim.")
    margins, labels = turned_by_coin(pairs, seed=seed)
    raw = calibration(margins, labels, bins=BINS)
    temperature = _temperature(temperature_pairs, seed=seed + 1)
    scaled = (
        None
        if temperature.value is None
        else calibration(margins, labels, temperature=temperature.value, bins=BINS)
    )
    found, half, bias, bars = corrected_error(pairs, margins, labels)
    if raw.ece is None or found.value is None or found.low is None:
        return too_thin(line, found, LEAST_PAIRS)
    evidence = (
        _diagram(bars, scaled, temperature),
        _figures(raw, scaled, found, temperature, n),
    )
    facts = {
        "ece": found.value,
        "ece_low": found.low,
        "ece_high": found.high,
        "ece_with_chance": raw.ece,
        "chance": bias,
        "ece_scaled": None if scaled is None else scaled.ece,
        "brier": raw.brier,
        "log_loss": raw.log_loss,
        "temperature": temperature.value,
        "n": n,
    }
    low, high = 100 * found.low, 100 * (found.high or 0.0)
    said = (
        f"What it claims and how often people agree are {100 * found.value:.1f} points apart "
        f"({low:.1f} to {high:.1f}) on {n:,} pairs"
    )
    fits = _fits(temperature)
    if found.low > MOST_ERROR:
        verdict, says = Verdict.RED, f"{said}: over 5 points. {fits}"
    elif half > MOST_ERROR or n < LEAST_PAIRS:
        needed = max(LEAST_PAIRS, math.ceil(n * (half / MOST_ERROR) ** 2 / 10) * 10)
        wanted = f" About {needed:,} would be needed."
        return unmeasured(
            line, f"{said}: too few to tell 5 points from none.{wanted}", evidence=evidence
        )
    elif undecided(found, MOST_ERROR):
        return unmeasured(line, f"{said}: {undecided_words(MOST_ERROR)}. {fits}", evidence=evidence)
    else:
        verdict, says = Verdict.GREEN, f"{said}: {against(found, MOST_ERROR)}. {fits}"
    return Finding(
        line=line, verdict=verdict, says=says, figure=found, evidence=evidence, facts=facts
    )


def turned_by_coin(pairs: Pairs, *, seed: int) -> tuple[Floats, Floats]:
    """(n,) margins and labels, a coin deciding whether the chosen answer is the first."""
    heads = np.random.default_rng(seed).random(len(pairs)) < 0.5
    confidence = np.asarray(pairs.confidence, dtype=float)
    return np.where(heads, pairs.margins, -pairs.margins), np.where(
        heads, confidence, 1 - confidence
    )


def corrected_error(
    pairs: Pairs, margins: Floats, labels: Floats
) -> tuple[Interval, float, float, Sequence[tuple[float, Interval]]]:
    """ECE less what chance adds; half its interval, before bounds; what chance adds; and (mean
    claim, observed) of each bin."""
    p = 1 / (1 + np.exp(-np.clip(margins, -500, 500)))
    which = _bins(p)
    gap = labels - p
    count = np.bincount(which)
    mean_gap = np.bincount(which, weights=gap) / count
    weight = count / len(p)
    plain_error = difference_of(pairs, np.sign(mean_gap)[which] * gap)
    bars, error = [], np.zeros(len(count))
    for k in range(len(count)):
        of = pairs.interval(gap, where=which == k)
        alone = float(np.std(gap[which == k])) / np.sqrt(count[k])
        error[k] = max(half_width(of) / _Z, alone) if of.low is not None else alone
        claim = float(p[which == k].mean())
        bars.append((claim, _moved(of, claim, 0.0, 1.0)))
    spread = float(np.sqrt(max(0.0, float(weight @ (mean_gap**2 - error**2)))))
    bias = _FOLDED * float(weight @ (np.sqrt(spread**2 + error**2) - spread))
    return _moved(plain_error, -bias, 0.0, 1.0), half_width(plain_error), bias, bars


def _bins(p: Floats) -> Ints:
    """(n,) bin of each row: nearly equal numbers, equal p never in two bins."""
    order = np.argsort(p, kind="stable")
    cuts = np.arange(1, BINS) * len(p) // BINS
    ends = np.unique(np.append(np.searchsorted(p[order], p[order][cuts - 1], side="right"), len(p)))
    place = np.empty(len(p), dtype=np.int64)
    place[order] = np.arange(len(p))
    return np.searchsorted(ends, place, side="right")


def _moved(found: Interval, by: float, least: float, most: float) -> Interval:
    if found.value is None:
        return found

    def kept(value: float | None) -> float | None:
        return None if value is None else float(np.clip(value + by, least, most))

    return Interval(
        value=kept(found.value),
        low=kept(found.low),
        high=kept(found.high),
        n=found.n,
        n_clusters=found.n_clusters,
        no_interval=found.no_interval,
    )


def _temperature(pairs: Pairs | None, *, seed: int) -> Quantity:
    if pairs is None or not len(pairs):
        return Quantity(None, "there is no second split to fit a temperature on")
    return fit_temperature(*turned_by_coin(pairs, seed=seed))


def _fits(temperature: Quantity) -> str:
    if temperature.value is None:
        return f"No temperature was found: {reason_words(temperature.undefined)}."
    said = f"The temperature that fits is {temperature.value:.3g}"
    if temperature.value > 1.25:
        return f"{said}: it claims too much."
    if temperature.value < 0.8:
        return f"{said}: it claims too little."
    return f"{said}."


def _diagram(
    bars: Sequence[tuple[float, Interval]], scaled: Calibration | None, temperature: Quantity
) -> Curve:
    series = [
        Series(
            label="As scored",
            x=tuple(claim for claim, _ in bars),
            y=tuple(of.value for _, of in bars),
            low=tuple(of.low for _, of in bars),
            high=tuple(of.high for _, of in bars),
            points=True,
        )
    ]
    if scaled is not None and temperature.value is not None:
        series.append(
            Series(
                label=f"Divided by {temperature.value:.3g}",
                x=tuple(bar.predicted for bar in scaled.bins),
                y=tuple(bar.observed for bar in scaled.bins),
                points=True,
            )
        )
    return Curve(
        title="How often people agree with what it claims",
        series=tuple(series),
        x_label="P(first is better), claimed by the margin",
        y_label="Share that preferred the first",
        diagonal=True,
    )


def _figures(
    raw: Calibration,
    scaled: Calibration | None,
    found: Interval,
    temperature: Quantity,
    n: int,
) -> Table:
    rows: list[tuple[object, ...]] = [
        ("As scored", 1.0, raw.ece, raw.brier, raw.log_loss, n),
    ]
    if scaled is not None:
        rows.append(
            ("With T", temperature.value, scaled.ece, scaled.brier, scaled.log_loss, scaled.n)
        )
    return Table(
        title="Calibration figures",
        columns=("", "T", "Error in bins", "Brier score", "Log loss", "Pairs"),
        formats=("text", "number", "share", "number", "number", "count"),
        rows=tuple(rows),
        note=f"{BINS} bins of equal size. The error in bins holds what chance adds; the verdict's "
        f"{100 * (found.value or 0.0):.1f} points do not.",
    )

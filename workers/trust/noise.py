"""Do labels contradict the model where it is sure?"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit

from measures.blocks import Curve, Example, Series, Texts
from measures.estimate import Interval
from measures.intervals import mean_interval
from measures.trust.findings import Finding, Verdict, unmeasured
from measures.trust.significance import Pairs, half_width, share_of
from workers.contract.numbers import share
from workers.trust.wording import apart_too_few, some

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

MOST_SWAPPED = 0.05
CLEAR = 0.75  # share of votes from which people are sure, too
SURE = 0.95  # of the fitted curve, from which the model is
LEAST_SURE = 50  # rows on which it must be, to say anything
SHOWN = 5
_CHI2 = 3.841459  # 95 % point of χ² with one degree of freedom
_GRID = np.concatenate([np.arange(0, 0.1, 0.0025), np.arange(0.1, 0.5, 0.01)])
_STEEPEST = np.log(50.0)  # of 1/T in standard deviations of the margin


@dataclass(frozen=True, slots=True)
class Swapped:
    """share: of labels that say the opposite; temperature: of the curve; sure: rows with
    σ(|Δ|/T) ≥ SURE."""

    share: Interval
    temperature: float
    sure: int


def label_noise(pairs: Pairs) -> Finding:
    """Red: an estimated share of over 5 % of clear labels is swapped, and more than none by more
    than chance; or the labels as a whole point the other way.

    Rows count on which at least three quarters of the votes agree. Assumes that the model knows:
    where it is surely wrong, its error is counted as the labels'. A model that was trained on
    labels all of which are swapped agrees with them, so no label can show that.
    """
    line = "label_noise"
    clear = np.asarray(pairs.confidence, dtype=float) >= CLEAR
    if not clear.any():
        return unmeasured(
            line, "On no pair do three quarters of the votes agree, so no label is clear."
        )
    if few := apart_too_few(pairs, clear):
        return unmeasured(line, f"{few}. Hold out pairs of more prompts.")
    right = share_of(pairs, pairs.credit(), where=clear)
    contradictions = _contradictions(pairs, clear)
    if right.high is not None and right.high < 0.5:
        return Finding(
            line=line,
            verdict=Verdict.RED,
            says=f"The labels point the other way: only {share(right)} of {right.n:,} clear labels "
            "agree with the model, fewer than with a coin.",
            figure=Interval(
                value=1 - (right.value or 0.0),
                low=1 - right.high,
                high=1 - (right.low or 0.0),
                n=right.n,
                n_clusters=right.n_clusters,
            ),
            evidence=(contradictions,),
            facts={"agreement": right.value},
        )
    found = swapped_share(pairs, clear)
    if found is None or found.sure < LEAST_SURE or found.share.low is None:
        sure = 0 if found is None else found.sure
        return unmeasured(
            line,
            f"It is sure on {sure:,} of {some(int(clear.sum()))} with clear labels; {LEAST_SURE} "
            "are needed to see labels contradict it. Hold out more, or train a better model first.",
        )
    of = found.share
    evidence = (_curve(pairs, clear, found), contradictions)
    said = f"An estimated {share(of)} of {of.n:,} clear labels say the opposite of what they should"
    facts = {"swapped": of.value, "temperature": found.temperature, "sure": found.sure}
    if (of.low or 0.0) > 0 and (of.value or 0.0) > MOST_SWAPPED:
        verdict, says = Verdict.RED, f"{said}: over 5 %. Read the surest contradictions below."
    elif half_width(of) > MOST_SWAPPED or (of.value or 0.0) > MOST_SWAPPED:
        return unmeasured(
            line,
            f"{said}: too wide to tell 5 % from none. It is sure on {found.sure:,} pairs; more "
            "would tell.",
            evidence=evidence,
        )
    else:
        verdict, says = Verdict.GREEN, f"{said}: {_standing(of)}."
    return Finding(line=line, verdict=verdict, says=says, figure=of, evidence=evidence, facts=facts)


def _standing(of: Interval) -> str:
    return "under 5 %" if (of.high or 0.0) <= MOST_SWAPPED else "not shown to be over 5 %"


def swapped_share(pairs: Pairs, where: Bools) -> Swapped | None:
    """ε of P(label | Δ) = (1 − 2ε) σ(Δ/T) + ε, by maximum likelihood with T free; None where the
    margins do not vary.

    However large the margin, a share ε of labels says the opposite: that flattens the curve at its
    ends, where T alone would steepen it. The interval is that of the profile likelihood, with its
    threshold 3.84 multiplied by how much more the score of ε varies over what rows share than over
    single rows (Rotnitzky & Jewell, Biometrika 77, 1990). Source of the curve: label noise at
    random, Natarajan et al., NeurIPS 2013; the "lapse rate" of psychometric functions, Wichmann &
    Hill, Perception & Psychophysics 63 (2001). Assumes that labels are swapped whatever the text.
    """
    delta = pairs.margins[where]
    scale = float(np.sqrt(np.mean(delta**2))) if len(delta) else 0.0
    if not scale or not np.isfinite(scale):
        return None
    x = delta / scale

    def best(share: float) -> tuple[float, float]:
        """(log likelihood, log steepness) at the best T for this share."""

        def loss(steepness: float) -> float:
            return -float(np.log(_chance(x, share, steepness)).sum())

        found = minimize_scalar(loss, bounds=(-5.0, _STEEPEST), method="bounded")
        return -float(found.fun), float(found.x)

    profile = [best(float(share)) for share in _GRID]
    likelihood = np.array([value for value, _ in profile])
    top = int(likelihood.argmax())
    share_now, steepness = float(_GRID[top]), profile[top][1]
    effect = _design_effect(pairs, where, x, share_now, steepness)
    inside = _GRID[2 * (likelihood[top] - likelihood) <= _CHI2 * effect]
    temperature = scale / float(np.exp(steepness))
    sure = int((np.abs(delta) / temperature >= logit(SURE)).sum())
    n = len(delta)
    return Swapped(
        Interval(value=share_now, low=float(inside.min()), high=float(inside.max()), n=n),
        temperature,
        sure,
    )


def _chance(x: Floats, share: float, steepness: float) -> Floats:
    return np.clip((1 - 2 * share) * expit(np.exp(steepness) * x) + share, 1e-12, 1.0)


def _design_effect(pairs: Pairs, where: Bools, x: Floats, share: float, steepness: float) -> float:
    """How many times the variance of ε's score over what rows share is that over single rows."""
    step = 1e-4
    lower = max(0.0, share - step)
    of_share = (
        np.log(_chance(x, share + step, steepness)) - np.log(_chance(x, lower, steepness))
    ) / (share + step - lower)
    of_steepness = (
        np.log(_chance(x, share, steepness + step)) - np.log(_chance(x, share, steepness - step))
    ) / (2 * step)
    curve = float(of_steepness @ of_steepness)
    if curve > 0:  # the part of ε's score that a change of T would not explain
        of_share = of_share - of_steepness * float(of_share @ of_steepness) / curve
    values = np.zeros(len(pairs))
    values[where] = of_share
    together, alone = pairs.interval(values, where=where), mean_interval(of_share)
    if together.low is None or alone.low is None or not half_width(alone):
        return 1.0
    return max(1.0, (half_width(together) / half_width(alone)) ** 2)


def _curve(pairs: Pairs, clear: Bools, found: Swapped) -> Curve:
    """Agreement by how sure the model is, ten bins of equal size, and the fitted curve."""
    delta = np.abs(pairs.margins)
    edges = np.unique(np.quantile(delta[clear], np.linspace(0, 1, 11)))
    which = np.clip(np.searchsorted(edges, delta, side="right") - 1, 0, max(0, len(edges) - 2))
    rows = [(which == k) & clear for k in range(max(1, len(edges) - 1))]
    bins = [
        (float(delta[of].mean()), share_of(pairs, pairs.credit(), where=of))
        for of in rows
        if of.any()
    ]
    grid = np.linspace(0, float(delta[clear].max()), 50)
    eps = found.share.value or 0.0
    fitted = (1 - 2 * eps) * expit(grid / found.temperature) + eps
    return Curve(
        title="Labels that agree with it, by how sure it is",
        series=(
            Series(
                label="Labels",
                x=tuple(at for at, _ in bins),
                y=tuple(of.value for _, of in bins),
                low=tuple(of.low for _, of in bins),
                high=tuple(of.high for _, of in bins),
                points=True,
            ),
            Series(label="Fitted", x=tuple(grid.tolist()), y=tuple(fitted.tolist())),
        ),
        x_label="Difference between the two scores",
        y_label="Share of labels that agree",
        note=f"Where labels can be believed the curve goes to 100 %; it ends at "
        f"{100 * (1 - eps):.1f} %.",
    )


def _contradictions(pairs: Pairs, clear: Bools) -> Texts:
    margins = np.where(clear, pairs.margins, np.inf)
    surest = [k for k in np.argsort(margins, kind="stable")[:SHOWN] if margins[k] < 0]
    return Texts(
        title="Where it contradicts the label most surely",
        examples=tuple(
            Example(
                prompt=pairs.prompts[k],
                answer=pairs.chosen_texts[k],
                score=float(pairs.chosen_scores[k]),
                label=f"People chose this ({100 * float(pairs.confidence[k]):.0f} % of the votes)",
                other=pairs.rejected_texts[k],
                other_score=float(pairs.rejected_scores[k]),
            )
            for k in surest
        ),
        note="Either the label is wrong or the model is.",
    )

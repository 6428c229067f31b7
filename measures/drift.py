"""Has a model in service changed since its baseline? Its answers to fixed prompts say so.

A probe asks the same prompts with the same seed every time. Where nothing has changed, every figure
is exactly what it was; where something has, the question is whether it is more than noise, and
enough to matter. Two bars answer it:

- `SURE`: beyond it a single probe is enough.
- `LIKELY`: beyond it two probes in a row are needed, since every probe is compared with the same
  baseline: an unlucky baseline makes all of them look shifted a little, and an hourly probe looks
  two hundred times in eight days.

Both are divided by the number of figures that are looked at (Bonferroni), and both ask for a least
effect, in deviations between prompts at the baseline.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, stdtr, stdtrit

from measures.estimate import reason

SURE = 1e-6
LIKELY = 0.0027  # |z| > 3, both sides
LEAST_EFFECT = 0.2  # deviations; "small" in Cohen, Statistical Power Analysis (1988)
LEAST_N = 8
SAME = 1e-9  # of the larger value: what adding floats in another order leaves
_Z95 = 1.959963984540054


class Level(StrEnum):
    """How strongly a difference speaks."""

    NONE = "none"
    LIKELY = "likely"
    SURE = "sure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """Now less baseline, in the figure's own unit, with a 95 % interval.

    effect: the shift in deviations between prompts at the baseline; statistic: t (paired) or z;
    p: two-sided. `undefined` says why there is no value, `no_interval` why it has no bounds.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    effect: float | None = None
    statistic: float | None = None
    p: float | None = None
    n: int = 0
    paired: bool = False
    level: Level = Level.NONE
    undefined: str | None = None
    no_interval: str | None = None


def paired_shift(
    now: ArrayLike, baseline: ArrayLike, *, deviation: float | None = None, figures: int = 1
) -> Shift:
    """Mean of now − baseline over the same prompts, tested by Student's t on the differences.

    now, baseline: (n,) one number per prompt, in the same order; deviation: between prompts at the
    baseline, for the effect (by default that of `baseline`); figures: how many are looked at.

    Source: Student, Biometrika 6 (1908). Assumes independent prompts, and differences whose mean
    is roughly normal, which heavy tails at small n break; the least effect stands against what that
    makes of a tiny change. Differences that are all 0 are no change, exactly; differences that are
    all alike and not 0 show no noise, so the shift stands without interval and p is 0. Undefined
    for fewer than LEAST_N prompts.
    """
    first, second = np.asarray(now, dtype=float), np.asarray(baseline, dtype=float)
    if first.shape != second.shape or first.ndim != 1:
        raise ValueError(f"one number per prompt on both sides: {first.shape} and {second.shape}")
    n = len(first)
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        return Shift(n=n, paired=True, undefined=reason("scores_not_finite"))
    if n < LEAST_N:
        return Shift(n=n, paired=True, undefined=_few(n))
    differences = first - second
    size = float(max(np.abs(first).max(), np.abs(second).max()))
    differences = np.where(np.abs(differences) <= SAME * size, 0.0, differences)
    value = float(differences.mean())
    spread = float(second.std(ddof=1)) if deviation is None else deviation
    error = float(differences.std(ddof=1)) / math.sqrt(n)
    if error <= SAME * abs(value):
        return _without_noise(value, spread, n=n, paired=True, figures=figures)
    half = float(stdtrit(n - 1, 0.975)) * error
    t = value / error
    return _judged(
        value, half, spread, t, 2 * float(stdtr(n - 1, -abs(t))), n=n, paired=True, figures=figures
    )


def unpaired_shift(
    *,
    mean: float,
    deviation: float,
    n: int,
    baseline_mean: float,
    baseline_deviation: float,
    baseline_n: int,
    figures: int = 1,
) -> Shift:
    """z = (m − μ₀) / (s₀ √(1/n + 1/n₀)): two means of different prompts, or of unknown ones.

    Dividing by the deviation of single answers instead would never alarm. s₀ is the baseline's; a
    baseline without spread (no refusal in forty answers) borrows that of now. Source: the z test of
    two samples with the spread of the reference. Assumes independent answers; n counts them.
    Undefined below LEAST_N on either side, or where a number is not finite.
    """
    known = (mean, deviation, baseline_mean, baseline_deviation)
    least = min(n, baseline_n)
    if not all(math.isfinite(x) for x in known):
        return Shift(n=n, undefined=reason("means_not_finite"))
    if least < LEAST_N:
        return Shift(n=n, undefined=_few(least))
    value = mean - baseline_mean
    if abs(value) <= SAME * max(abs(mean), abs(baseline_mean)):
        value = 0.0
    spread = baseline_deviation or deviation
    if spread <= 0:
        return _without_noise(value, spread, n=n, paired=False, figures=figures)
    z = value / (spread * math.sqrt(1 / n + 1 / baseline_n))
    half = _Z95 * math.sqrt(deviation**2 / n + baseline_deviation**2 / baseline_n)
    return _judged(
        value, half, spread, z, 2 * float(ndtr(-abs(z))), n=n, paired=False, figures=figures
    )


def speaks(shift: Shift, before: Shift | None) -> bool:
    """Whether this is a finding: sure by itself, or likely twice in a row and the same way."""
    if shift.level == Level.SURE:
        return True
    if shift.level != Level.LIKELY or before is None or before.level == Level.NONE:
        return False
    return (shift.value or 0) * (before.value or 0) > 0


def _few(n: int) -> str:
    return reason("few_prompts", n=n, least=LEAST_N)


def _without_noise(value: float, spread: float, *, n: int, paired: bool, figures: int) -> Shift:
    """Every prompt moved alike, or not at all."""
    if value == 0:
        return Shift(
            value=0.0, low=0.0, high=0.0, effect=0.0, statistic=0.0, p=1.0, n=n, paired=paired
        )
    effect = value / spread if spread > 0 else math.copysign(math.inf, value)
    return Shift(
        value=value,
        effect=effect,
        p=0.0,
        n=n,
        paired=paired,
        level=_level(0.0, effect, figures),
        no_interval=reason("prompts_moved_alike"),
    )


def _judged(
    value: float,
    half: float,
    spread: float,
    statistic: float,
    p: float,
    *,
    n: int,
    paired: bool,
    figures: int,
) -> Shift:
    effect = value / spread if spread > 0 else math.copysign(math.inf, value)
    return Shift(
        value=value,
        low=value - half,
        high=value + half,
        effect=effect,
        statistic=statistic,
        p=p,
        n=n,
        paired=paired,
        level=_level(p, effect, figures),
    )


def _level(p: float, effect: float, figures: int) -> Level:
    if abs(effect) < LEAST_EFFECT:
        return Level.NONE
    if p < SURE / max(1, figures):
        return Level.SURE
    return Level.LIKELY if p < LIKELY / max(1, figures) else Level.NONE

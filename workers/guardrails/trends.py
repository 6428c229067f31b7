"""Small statistics of a run's own past, in plain Python so that a resumed run repeats them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

EVALUATIONS = 3  # in a row, averaged
LEAST_EVALUATIONS = 5  # before noise can be told from a fall


def quantile(values: Sequence[float], q: float) -> float:
    """The `q` quantile, 0–1, linear between order statistics; `values` not empty."""
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def off_trend(points: Sequence[Sequence[float]], x: float, y: float) -> tuple[float, float]:
    """(z, expected): how far `y` at `x` lies from the line through `points` [(x, y)].

    z is the residual over the standard error of a prediction, s·√(1 + 1/n + (x − x̄)²/Sxx), s from
    the residuals with n − 2 degrees of freedom. Assumes equal, independent noise about a course
    that is straight over the window. A window without any noise gives z = 0 on the line and
    infinity off it, returned as a very large number.
    """
    n = len(points)
    mean_x = math.fsum(p[0] for p in points) / n
    mean_y = math.fsum(p[1] for p in points) / n
    sxx = math.fsum((p[0] - mean_x) ** 2 for p in points)
    slope = math.fsum((p[0] - mean_x) * (p[1] - mean_y) for p in points) / sxx
    expected = mean_y + slope * (x - mean_x)
    squares = math.fsum((p[1] - mean_y - slope * (p[0] - mean_x)) ** 2 for p in points)
    error = math.sqrt(squares / (n - 2) * (1 + 1 / n + (x - mean_x) ** 2 / sxx))
    if error < 1e-12:
        return (0.0 if abs(y - expected) < 1e-9 else math.copysign(1e9, y - expected)), expected
    return (y - expected) / error, expected


@dataclass(frozen=True, slots=True)
class GainLost:
    """Means of three evaluations in a row; `share` of what was gained since the first is lost."""

    share: float
    best: float
    now: float
    noise: float  # standard error of `best` − `now`
    beyond_noise: bool
    optimised_at_best: float
    optimised_now: float
    optimised_rises: bool  # by more than two standard errors since the held-out best


def gain_lost(
    held_out: Sequence[float], optimised: Sequence[float], *, errors: float
) -> GainLost | None:
    """How much of its gain a held-out score has lost; None with too few evaluations.

    A fall counts from `errors` standard errors of the difference of two means of three: the best
    of many looks lucky, so two would stop every long plateau. Without a gain the fall itself is
    what is compared: its share is 1.
    """
    n = len(held_out)
    if n < LEAST_EVALUATIONS:
        return None
    means = [math.fsum(held_out[i - 2 : i + 1]) / EVALUATIONS for i in range(2, n)]
    best = max(range(len(means)), key=means.__getitem__)
    noise, optimised_noise = _noise(held_out), _noise(optimised)
    lost = means[best] - means[-1]
    gain = means[best] - held_out[0]
    share = 0.0 if lost <= 0 else min(1.0, lost / gain) if gain > 0 else 1.0
    at_best = math.fsum(optimised[best : best + EVALUATIONS]) / EVALUATIONS
    now = math.fsum(optimised[-EVALUATIONS:]) / EVALUATIONS
    return GainLost(
        share=share,
        best=means[best],
        now=means[-1],
        noise=noise,
        beyond_noise=lost > errors * noise,
        optimised_at_best=at_best,
        optimised_now=now,
        optimised_rises=now - at_best > 2 * optimised_noise,
    )


def _noise(values: Sequence[float]) -> float:
    """Standard error of the difference of two means of three evaluations.

    The deviation σ of one comes from second differences, whose variance is 6σ² about any straight
    course; with few of them it is widened, as they tell σ badly.
    """
    bends = [a - 2 * b + c for a, b, c in zip(values, values[1:], values[2:], strict=False)]
    sigma = math.sqrt(math.fsum(b * b for b in bends) / len(bends) / 6) * (1 + 1.5 / len(bends))
    return sigma * math.sqrt(2 / EVALUATIONS)

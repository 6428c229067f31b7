"""How a figure meets a threshold: one function per test of the rule table.

Each takes the rule, its memory (a JSON object that rides in checkpoints) and a look's metrics, and
answers a `Reading`, or None while there is too little to judge. Metrics are finite here; what is
NaN or infinite never gets this far, nor into a memory.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workers.contract.guards import GuardRule

# Small statistics of a run's own past, in plain Python so that a resumed run repeats them.

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
    of many checks lucky, so two would stop every long plateau. Without a gain the fall itself is
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


ANSWERS_WINDOW = 1000  # pooled at most
ANSWERS_LEAST = 100  # before which nothing is judged
JUMP_WINDOW, JUMP_LEAST = 50, 20
BREAK_WINDOW, BREAK_LEAST = 30, 20
FLAT_LOOKS = 20
MARGIN = 0.2  # a rule clears a fifth of the threshold inside it

Memory = dict[str, Any]
MetricValues = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Reading:
    """`value` against `limit`, both in the rule's unit."""

    value: float
    limit: float
    crossed: bool
    clear: bool  # well inside: what lets an alert end
    evidence: dict[str, float] = field(default_factory=dict)


def read(
    rule: GuardRule, memory: Memory, metrics: MetricValues, *, per_check: int
) -> Reading | None:
    """One check of a rule; `per_check` is the number of answers behind its metrics."""
    if any(name not in metrics for name in (rule.metric, *rule.beside)):
        return None
    memory["looks"] = memory.get("looks", 0) + 1
    reading = _TESTS[rule.test](rule, memory, metrics, per_check)
    return None if memory["looks"] <= rule.grace else reading


def _judge(rule: GuardRule, value: float, limit: float, **evidence: float) -> Reading:
    above = rule.bound == "above"
    margin = MARGIN * abs(limit)
    crossed = value > limit if above else value < limit
    clear = not crossed and (value <= limit - margin if above else value >= limit + margin)
    return Reading(value, limit, crossed, clear, evidence)


def _level(rule: GuardRule, memory: Memory, metrics: MetricValues, _: int) -> Reading:
    return _judge(rule, metrics[rule.metric], rule.threshold)


def _scaled(rule: GuardRule, memory: Memory, metrics: MetricValues, _: int) -> Reading:
    size = max(1.0, abs(metrics[rule.beside[0]]))
    return _judge(rule, metrics[rule.metric] / size, rule.threshold)


def _first(rule: GuardRule, memory: Memory, metrics: MetricValues, _: int) -> Reading | None:
    value = metrics[rule.metric]
    first = memory.setdefault("first", value)
    if first <= 0:
        return None
    return _judge(rule, value / first, rule.threshold, now=value, first=first)


def _floor(rule: GuardRule, memory: Memory, metrics: MetricValues, _: int) -> Reading:
    """A run that begins under the floor is held to its share alone."""
    value = metrics[rule.metric]
    first = memory.setdefault("first", value)
    limit = max(rule.threshold if first > rule.threshold else 0.0, rule.share * first)
    return _judge(rule, value, limit, first=first)


def _window(
    rule: GuardRule, memory: Memory, metrics: MetricValues, per_check: int
) -> Reading | None:
    if memory["looks"] <= rule.grace:
        return None  # what is not judged must not linger in the mean
    means = _remember(memory, "means", metrics[rule.metric], ANSWERS_WINDOW // per_check)
    if len(means) * per_check < ANSWERS_LEAST:
        return None
    return _judge(rule, _mean(means), rule.threshold, checks=float(len(means)))


def _spread(
    rule: GuardRule, memory: Memory, metrics: MetricValues, per_check: int
) -> Reading | None:
    """Pooled deviation of equally large batches: √(mean of variances + variance of means)."""
    checks = ANSWERS_WINDOW // per_check
    stds = _remember(memory, "stds", metrics[rule.metric], checks)
    means = _remember(memory, "means", metrics[rule.beside[0]], checks)
    raw, first_raw = metrics.get("objective/scores_std"), None
    if raw is not None:
        # The first checks set what the raw spread is; a share of it must be lost as well.
        begun = memory.setdefault("raw_first", [])
        if len(begun) * per_check < ANSWERS_LEAST:
            begun.append(raw)
        first_raw = _mean(begun)
        raw = _mean(_remember(memory, "raw", raw, checks))
    if len(stds) * per_check < ANSWERS_LEAST:
        return None
    centre = _mean(means)
    variance = _mean([s * s for s in stds]) + _mean([(m - centre) ** 2 for m in means])
    reading = _judge(rule, math.sqrt(variance), rule.threshold)
    if raw is None or first_raw is None:
        return reading
    lost = raw < rule.share * first_raw
    evidence = {"raw deviation": raw, "first raw deviation": first_raw}
    return Reading(
        reading.value,
        reading.limit,
        reading.crossed and lost,
        reading.clear or not lost,
        evidence,
    )


def _jump(rule: GuardRule, memory: Memory, metrics: MetricValues, _: int) -> Reading | None:
    value = metrics[rule.metric]
    before = list(memory.get("window", []))
    _remember(memory, "window", value, JUMP_WINDOW)
    usual = quantile(before, 0.95) if len(before) >= JUMP_LEAST else 0.0
    if usual <= 0:
        return None
    reading = _judge(rule, value / usual, rule.threshold, now=value, usual=usual)
    if value <= rule.least:
        return Reading(reading.value, reading.limit, False, True, reading.evidence)
    return reading


def _break(rule: GuardRule, memory: Memory, metrics: MetricValues, _: int) -> Reading | None:
    """Values off the trend do not bend it, until they alarm: then the trend begins again."""
    value, checks = metrics[rule.metric], memory["looks"]
    window: list[list[float]] = memory.setdefault("trend", [])
    reading = None
    if len(window) >= BREAK_LEAST:
        z, expected = off_trend(window, float(checks), value)
        reading = _judge(rule, abs(z), rule.threshold, now=value, expected=expected, z=z)
        if abs(value - expected) < rule.least:
            reading = Reading(reading.value, reading.limit, False, True, reading.evidence)
    if reading is None or not reading.crossed:
        window.append([float(checks), value])
        del window[:-BREAK_WINDOW]
    return reading


def _rise(rule: GuardRule, memory: Memory, metrics: MetricValues, _: int) -> Reading | None:
    value = metrics[rule.metric]
    first = memory.setdefault("first", value)
    lowest = memory["lowest"] = min(memory.get("lowest", value), value)
    base = max(lowest, rule.share * first)
    if base <= 0:
        return None
    reading = _judge(rule, value / base, rule.threshold, now=value, lowest=lowest, first=first)
    if value - base < rule.least:
        return Reading(reading.value, reading.limit, False, True, reading.evidence)
    return reading


def _fall(rule: GuardRule, memory: Memory, metrics: MetricValues, _: int) -> Reading | None:
    held_out = memory.setdefault("held_out", [])
    optimised = memory.setdefault("optimised", [])
    held_out.append(metrics[rule.metric])
    optimised.append(metrics[rule.beside[0]])
    found = gain_lost(held_out, optimised, errors=rule.least)
    if found is None:
        return None
    evidence = {
        "best": found.best,
        "now": found.now,
        "noise": found.noise,
        "reward at best": found.optimised_at_best,
        "reward now": found.optimised_now,
    }
    reading = _judge(rule, found.share, rule.threshold, **evidence)
    crossed = reading.crossed and found.beyond_noise and found.optimised_rises
    return Reading(reading.value, reading.limit, crossed, not crossed, evidence)


def _flat(rule: GuardRule, memory: Memory, metrics: MetricValues, _: int) -> Reading | None:
    value, variety = metrics[rule.metric], metrics[rule.beside[0]]
    first = memory.setdefault("first_looks", [])
    if len(first) < FLAT_LOOKS:
        first.append(value)
    recent = _remember(memory, "recent", value, FLAT_LOOKS)
    first_variety = memory.setdefault("first_variety", variety)
    gained = _mean(recent) - _mean(first)
    reading = _judge(rule, gained, rule.threshold, entropy=variety, first_entropy=first_variety)
    varied = variety >= rule.share * first_variety
    return Reading(
        gained, reading.limit, reading.crossed and varied, reading.clear, reading.evidence
    )


def _uniform(
    rule: GuardRule, memory: Memory, metrics: MetricValues, per_check: int
) -> Reading | None:
    reading = _first(rule, memory, metrics, per_check)
    if reading is None:
        return None
    reward = metrics[rule.beside[0]]
    high = reward > rule.least
    evidence = reading.evidence | {"calibrated reward": reward}
    return Reading(reading.value, reading.limit, reading.crossed and high, reading.clear, evidence)


_TESTS: dict[str, Callable[[GuardRule, Memory, MetricValues, int], Reading | None]] = {
    "level": _level,
    "scaled": _scaled,
    "first": _first,
    "floor": _floor,
    "window": _window,
    "spread": _spread,
    "jump": _jump,
    "break": _break,
    "rise": _rise,
    "fall": _fall,
    "flat": _flat,
    "uniform": _uniform,
}


def _remember(memory: Memory, name: str, value: float, length: int) -> list[float]:
    kept: list[float] = memory.setdefault(name, [])
    kept.append(value)
    del kept[: -max(1, length)]
    return kept


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)

"""How metrics meet a rule: one function per test.

Each takes the rule, its memory (a JSON object that rides in checkpoints, so that resumed runs
continue exactly), the metrics of a check and what else is known of it, and answers a `Reading`, or
None while there is too little to judge. Metrics are finite here; NaN and infinity never get this
far, nor into a memory. What a rule gives a test beside its limit stands in `rule.given`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from workers.rules.diagnosis import WIDTH, Baseline
from workers.rules.rule import MARGIN, Reading, Rule, against, exact, number

ANSWERS_WINDOW = 1000  # pooled at most
ANSWERS_LEAST = 100  # before which nothing is judged
JUMP_WINDOW, JUMP_LEAST = 50, 20
BREAK_WINDOW, BREAK_LEAST = 30, 20
FLAT_CHECKS = 20
GAP_WINDOW = 20
LEAST_KNOWN = 200  # pairs whose better answer is known: a standard error of 0.035 at most
OTHER_INPUTS = "those runs had other inputs of the same sizes, so limits are {:g} times as wide"

Memory = dict[str, Any]
MetricValues = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Check:
    """What is known of a check beside its metrics. `number` counts a rule's checks from 1,
    `per_check` is the number of answers behind the metrics."""

    step: int
    number: int
    per_check: int
    baseline: Baseline | None


Test = Callable[[Rule, Memory, MetricValues, Check], Reading | None]


# --- one metric against its limit ---


def level(rule: Rule, memory: Memory, metrics: MetricValues, check: Check) -> Reading:
    return against(rule, metrics[rule.metric])


def scaled(rule: Rule, memory: Memory, metrics: MetricValues, check: Check) -> Reading | None:
    """The first metric over the size of the second, which counts as `least` at least."""
    size = max(rule.given.get("least", 0.0), abs(metrics[rule.metrics[1]]))
    return against(rule, metrics[rule.metric] / size) if size > 0 else None


def beyond_noise(rule: Rule, memory: Memory, metrics: MetricValues, check: Check) -> Reading:
    """The first metric, which the second gives in standard errors: `errors` of them at least."""
    errors = metrics[rule.metrics[1]]
    reading = against(rule, metrics[rule.metric], standard_errors=errors)
    return _matters(reading, errors >= rule.given["errors"])


def first(rule: Rule, memory: Memory, metrics: MetricValues, check: Check) -> Reading | None:
    value = metrics[rule.metric]
    begun = memory.setdefault("first", value)
    return against(rule, value / begun, now=value, first=begun) if begun > 0 else None


def fallen(rule: Rule, memory: Memory, metrics: MetricValues, check: Check) -> Reading | None:
    """How far under the first value it lies; with `relative` in shares of that one's size."""
    value = metrics[rule.metric]
    begun = memory.setdefault("first", value)
    size = abs(begun) if rule.given.get("relative") else 1.0
    return against(rule, (begun - value) / size, now=value, first=begun) if size > 0 else None


def risen(rule: Rule, memory: Memory, metrics: MetricValues, check: Check) -> Reading:
    """How far over the first value it lies."""
    value = metrics[rule.metric]
    begun = memory.setdefault("first", value)
    return against(rule, value - begun, now=value, first=begun)


def apart(rule: Rule, memory: Memory, metrics: MetricValues, check: Check) -> Reading:
    """The first metric less the second."""
    one, other = metrics[rule.metric], metrics[rule.metrics[1]]
    return against(rule, one - other, now=one, beside=other)


def departs(rule: Rule, memory: Memory, metrics: MetricValues, check: Check) -> Reading:
    """How far it lies from what it must be, `exactly`."""
    value = metrics[rule.metric]
    return replace(
        against(rule, abs(value - rule.given["exactly"]), now=value),
        expected=f"exactly {rule.given['exactly']:g}",
    )


def unimitated(rule: Rule, memory: Memory, metrics: MetricValues, check: Check) -> Reading:
    """A ratio outside of 1/limit … limit, while the second metric, a loss, is under `share` of its
    first value."""
    ratio, loss = metrics[rule.metric], metrics[rule.metrics[1]]
    begun = memory.setdefault("first", loss)
    far = max(ratio, 1 / ratio) if ratio > 0 else math.inf
    reading = against(rule, min(far, 1e6), ratio=ratio, loss=loss, first_loss=begun)
    return _matters(reading, loss <= rule.given["share"] * begun)


def floor(rule: Rule, memory: Memory, metrics: MetricValues, check: Check) -> Reading:
    """Against the limit or `share` of the first value, whichever is higher. A run that begins under
    the limit is held to its share alone."""
    begun = memory.setdefault("first", metrics[rule.metric])
    limit = max(rule.limit if begun > rule.limit else 0.0, rule.given["share"] * begun)
    return against(rule, metrics[rule.metric], limit, first=begun)


def together(rule: Rule, memory: Memory, metrics: MetricValues, check: Check) -> Reading:
    """Every metric over its own limit in `limits`."""
    pairs = [
        (name, metrics[name], top)
        for name, top in zip(rule.metrics, rule.given["limits"], strict=True)
    ]
    words = " and ".join(f"{name} at most {top:g}" for name, _, top in pairs)
    return exact(pairs[0][1], words, all(value > top for _, value, top in pairs))


def changed(rule: Rule, memory: Memory, metrics: MetricValues, check: Check) -> Reading:
    """Any departure from the first value. Exact."""
    value = metrics[rule.metric]
    begun = memory.setdefault("first", value)
    off = value != begun
    return exact(value, f"{begun:.9g}, as at first", off, start_step=check.step if off else None)


def at_start(rule: Rule, memory: Memory, metrics: MetricValues, check: Check) -> Reading | None:
    """The first check alone; resumed runs have had theirs, and a record that begins later, such as
    one of every tenth step, has no start to judge."""
    if memory.setdefault("judged", False) or check.step > 1:
        return None
    memory["judged"] = True
    return against(rule, metrics[rule.metric])


def never_moves(rule: Rule, memory: Memory, metrics: MetricValues, check: Check) -> Reading | None:
    """The first metric is still 0 although the second says that the weights have moved."""
    memory["moved"] = memory.get("moved", 0) + (
        metrics[rule.metrics[1]] > rule.given.get("moved_over", 0.0)
    )
    if memory["moved"] <= rule.given["after"]:
        return None
    value = abs(metrics[rule.metric])
    return exact(value, "over 0 once the weights have moved", value < rule.limit, start_step=1)


# --- over the last checks, or the last answers ---


def median_of(rule: Rule, memory: Memory, metrics: MetricValues, check: Check) -> Reading | None:
    """The median of the last `window` checks, once there are `need`: one check of a small batch
    says little, and a median does not hear a single outlier. It began with the first of them that
    was itself beyond the limit. With `unless_rising`, a metric whose newer half lies that much over
    its older half is left alone."""
    window = rule.given["window"]
    kept = _remember(memory, "kept", [check.step, metrics[rule.metric]], window)
    if len(kept) < rule.given.get("need", window):
        return None
    reading = against(rule, median(one for _, one in kept))
    half = len(kept) // 2
    older, newer = (median(one for _, one in part) for part in (kept[:half], kept[half:]))
    if newer - older > rule.given.get("unless_rising", math.inf):
        reading = replace(reading, crossed=False, clear=False)  # on its way, and not there yet
    if not reading.crossed:
        memory.pop("since", None)
        return reading
    begun = next(at for at, one in kept if against(rule, one).crossed)
    return replace(reading, start_step=memory.setdefault("since", begun))


def median_of_first(
    rule: Rule, memory: Memory, metrics: MetricValues, check: Check
) -> Reading | None:
    """The median of the last `window` checks over the very first value."""
    value = metrics[rule.metric]
    begun = memory.setdefault("first", value)
    kept = _remember(memory, "kept", value, rule.given["window"])
    if len(kept) < rule.given["window"] or begun <= 0:
        return None
    return against(rule, median(kept) / begun, now=value, first=begun)


def chance(rule: Rule, memory: Memory, metrics: MetricValues, check: Check) -> Reading | None:
    """The median of the last `window` checks of the accuracy on held-out pairs. With at least
    `LEAST_KNOWN` known pairs it is the mean of both, while a policy has `moved` and not `strayed`
    from its reference (nats per token); without them the limit is `alone`, while the accuracy on
    its own pairs, the second metric, is over `own_over`."""
    window, held_out = rule.given["window"], metrics[rule.metric]
    if metrics.get("eval/canary_pairs", 0.0) >= LEAST_KNOWN:
        known = metrics["eval/canary_accuracy"]
        moved, strayed = rule.given.get("moved", -math.inf), rule.given.get("strayed", math.inf)
        if not moved < metrics.get("eval/log_ratio_size", 0.0) <= strayed:
            return None
        both = _remember(memory, "both", (held_out + known) / 2, window)
        if len(both) < window:
            return None
        return against(rule, median(both), held_out_pairs=held_out, known_pairs=known)
    alone = _remember(memory, "held_out", held_out, window)
    own = _remember(memory, "own", metrics[rule.metrics[1]], window)
    if len(alone) < window:
        return None
    reading = against(rule, median(alone), rule.given["alone"], accuracy_on_its_own=median(own))
    return _matters(reading, median(own) > rule.given["own_over"])


def burst(rule: Rule, memory: Memory, metrics: MetricValues, check: Check) -> Reading | None:
    """How often in the last `window` checks the metric was over `times` their median: a heavy tail
    makes single batches many times wilder than the batches around them."""
    kept = _remember(memory, "kept", [check.step, metrics[rule.metric]], rule.given["window"])
    if len(kept) < rule.given.get("need", 4):
        return None
    limit = rule.given["times"] * median(one for _, one in kept)
    wild = [at for at, one in kept if one > limit]
    calm = next((at for at, one in kept if one <= limit), check.step)
    if not wild or wild[-1] < calm:  # wild and then calm for good: a metric that fell
        wild = []
    reading = against(rule, float(len(wild)))
    return replace(reading, start_step=wild[0]) if reading.crossed else reading


def pooled(rule: Rule, memory: Memory, metrics: MetricValues, check: Check) -> Reading | None:
    """The last `window` checks of a metric that is a standard normal deviate when all is well,
    pooled: |Σz|/√n, from the second check on. Several checks that are each a little off are one
    that is far off."""
    kept = _remember(memory, "kept", [check.step, metrics[rule.metric]], rule.given["window"])
    if len(kept) < 2:
        return None
    total = abs(math.fsum(z for _, z in kept)) / math.sqrt(len(kept))
    return replace(against(rule, total), start_step=kept[0][0])


def window(rule: Rule, memory: Memory, metrics: MetricValues, check: Check) -> Reading | None:
    """The mean over the last 1,000 answers."""
    if check.number <= rule.grace:
        return None  # what is not judged must not linger in the mean
    means = _remember(memory, "means", metrics[rule.metric], ANSWERS_WINDOW // check.per_check)
    if len(means) * check.per_check < ANSWERS_LEAST:
        return None
    return against(rule, _mean(means), checks=float(len(means)))


def spread(rule: Rule, memory: Memory, metrics: MetricValues, check: Check) -> Reading | None:
    """The pooled deviation of equally large batches, √(mean of variances + variance of means), over
    the last 1,000 answers; where raw scores are known, their deviation must be under `share` of its
    first value as well."""
    checks, per_check = ANSWERS_WINDOW // check.per_check, check.per_check
    stds = _remember(memory, "stds", metrics[rule.metric], checks)
    means = _remember(memory, "means", metrics[rule.metrics[1]], checks)
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
    deviation = math.sqrt(_mean([s * s for s in stds]) + _mean([(m - centre) ** 2 for m in means]))
    if raw is None or first_raw is None:
        return against(rule, deviation)
    reading = against(rule, deviation, raw_deviation=raw, first_raw_deviation=first_raw)
    lost = raw < rule.given["share"] * first_raw
    return replace(reading, crossed=reading.crossed and lost, clear=reading.clear or not lost)


def jump(rule: Rule, memory: Memory, metrics: MetricValues, check: Check) -> Reading | None:
    """The metric over the 95 % quantile of its last checks; at most `effect` is no jump."""
    value = metrics[rule.metric]
    before = list(memory.get("window", []))
    _remember(memory, "window", value, JUMP_WINDOW)
    usual = quantile(before, 0.95) if len(before) >= JUMP_LEAST else 0.0
    if usual <= 0:
        return None
    return _matters(
        against(rule, value / usual, now=value, usual=usual), value > rule.given["effect"]
    )


# --- against the run's own course ---


def break_(rule: Rule, memory: Memory, metrics: MetricValues, check: Check) -> Reading | None:
    """How many standard errors the metric lies off its trend, by `effect` at least. Values off the
    trend do not bend it, until they alarm: then the trend begins again."""
    value = metrics[rule.metric]
    trend: list[list[float]] = memory.setdefault("trend", [])
    reading = None
    if len(trend) >= BREAK_LEAST:
        z, expected = off_trend(trend, float(check.number), value)
        reading = against(rule, abs(z), now=value, expected=expected, z=z)
        reading = _matters(reading, abs(value - expected) >= rule.given["effect"])
    if reading is None or not reading.crossed:
        trend.append([float(check.number), value])
        del trend[:-BREAK_WINDOW]
    return reading


def rise(rule: Rule, memory: Memory, metrics: MetricValues, check: Check) -> Reading | None:
    """The metric over its lowest, or over `share` of its first value; by `effect` at least."""
    value = metrics[rule.metric]
    begun = memory.setdefault("first", value)
    lowest = memory["lowest"] = min(memory.get("lowest", value), value)
    base = max(lowest, rule.given.get("share", 0.0) * begun)
    if base <= 0:
        return None
    reading = against(rule, value / base, now=value, lowest=lowest, first=begun)
    return _matters(reading, value - base >= rule.given["effect"])


def fall(rule: Rule, memory: Memory, metrics: MetricValues, check: Check) -> Reading | None:
    """The share of a held-out score's gain that is lost, by `errors` standard errors and by
    `effect` at least, while the optimised score rises."""
    held_out, optimised = memory.setdefault("held_out", []), memory.setdefault("optimised", [])
    held_out.append(metrics[rule.metric])
    optimised.append(metrics[rule.metrics[1]])
    found = gain_lost(held_out, optimised, errors=rule.given["errors"])
    if found is None:
        return None
    reading = against(
        rule,
        found.share,
        best=found.best,
        now=found.now,
        noise=found.noise,
        reward_at_best=found.optimised_at_best,
        reward_now=found.optimised_now,
    )
    matters = found.best - found.now >= rule.given.get("effect", 0.0)
    crossed = reading.crossed and found.beyond_noise and found.optimised_rises and matters
    return replace(reading, crossed=crossed, clear=not crossed)


def flat(rule: Rule, memory: Memory, metrics: MetricValues, check: Check) -> Reading:
    """The gain since the first checks, while variety is `share` of its first value or more."""
    value, variety = metrics[rule.metric], metrics[rule.metrics[1]]
    begun = memory.setdefault("first_checks", [])
    if len(begun) < FLAT_CHECKS:
        begun.append(value)
    recent = _remember(memory, "last_checks", value, FLAT_CHECKS)
    first_variety = memory.setdefault("first_variety", variety)
    gained = _mean(recent) - _mean(begun)
    reading = against(rule, gained, entropy=variety, first_entropy=first_variety)
    varied = variety >= rule.given["share"] * first_variety
    return replace(reading, crossed=reading.crossed and varied)


def alone(rule: Rule, memory: Memory, metrics: MetricValues, check: Check) -> Reading | None:
    """What the first metric gained while the second, a success, gained less than `success`: means
    of the last `window` checks less those of the first ones. The gain is in deviations of the first
    checks' third metric where there is one, or with `relative` in shares of the first mean, which
    counts as `least` at least. A success that is over `enough` has nothing left to gain."""
    window, third = rule.given["window"], rule.metrics[2:]
    begun = memory.setdefault("first_checks", [])
    row = [metrics[name] for name in rule.metrics]
    if len(begun) < window:
        begun.append(row)
        return None
    recent = _remember(memory, "last_checks", row, window)
    if len(recent) < window:
        return None
    first, last = (list(map(_mean, zip(*rows, strict=True))) for rows in (begun, recent))
    size = first[2] if third else max(rule.given.get("least", 0.0), first[0])
    size = size if third or rule.given.get("relative") else 1.0
    if size <= 0:
        return None
    reading = against(
        rule, (last[0] - first[0]) / size, now=last[0], first=first[0], success=last[1]
    )
    flat_success = last[1] - first[1] < rule.given["success"]
    return _matters(reading, flat_success and last[1] < rule.given.get("enough", 0.9))


def uniform(rule: Rule, memory: Memory, metrics: MetricValues, check: Check) -> Reading | None:
    """Variety over its first value, while the reward is over `reward_over`."""
    reading, reward = first(rule, memory, metrics, check), metrics[rule.metrics[1]]
    if reading is None:
        return None
    return replace(
        reading,
        crossed=reading.crossed and reward > rule.given["reward_over"],
        detail=f"{reading.detail}, calibrated reward {number(reward)}",
    )


def gap(rule: Rule, memory: Memory, metrics: MetricValues, check: Check) -> Reading | None:
    """The first metric less the second, against its own past: the median of what it was and the
    median deviation from it. Both move when the model learns; their difference does not."""
    value = metrics[rule.metric] - metrics[rule.metrics[1]]
    past = memory.setdefault("past", [])
    if len(past) < rule.given.get("need", 3):
        past.append(value)
        return None
    centre = median(past)
    deviation = max(
        1.4826 * median(abs(one - centre) for one in past),
        rule.given["effect"] * abs(metrics.get(rule.given["scale"], 1.0)),
    )
    z = (value - centre) / deviation if deviation > 0 else 0.0
    off = abs(z) > rule.given["z"]
    if not off:
        past.append(value)
        del past[:-GAP_WINDOW]
    return exact(value, f"{centre:.3g} ± {deviation:.2g}, as before", off)


# --- against what is known from elsewhere ---


def canaries(rule: Rule, memory: Memory, metrics: MetricValues, check: Check) -> Reading:
    """Accuracy on pairs whose better answer is known, pooled over nothing: every evaluation asks
    the same pairs. Their number gives the standard error √(¼/n) of a blind reward.

    `reads`: swapped (wrong on known pairs, right on those it learned from), inverted (wrong on
    both, or on the known ones where there are no others), blind (not above chance).
    """
    known = metrics[rule.metric]
    own = metrics.get(rule.given.get("own", "eval/reward_data_accuracy"))
    error = 0.5 / math.sqrt(max(1.0, metrics.get("eval/canary_pairs", 64.0)))
    wrong = known < 0.5 - 2 * error
    off = {
        "swapped": wrong and own is not None and own > 0.5 + error,
        "inverted": wrong and (own is None or own <= 0.5 + error),
        "blind": not wrong and known < 0.5 + rule.given.get("errors", 0.0) * error,
    }[rule.given["reads"]]
    detail = "" if own is None else f"{own:.0%} on the pairs it learned from"
    return exact(known, f"over {0.5 + 2 * error:.2f}", off, start_step=0, detail=detail)


def unusual(rule: Rule, memory: Memory, metrics: MetricValues, check: Check) -> Reading | None:
    """Against healthy runs at the same step: z of the mean of the last checks past `z` on the
    rule's side (on either where it has none), and an effect of at least `effect` (of the metric),
    or `times` the usual mean. None without a baseline."""
    usual = check.baseline.at(rule.metric, check.step) if check.baseline else None
    kept = _remember(memory, "kept", metrics[rule.metric], WIDTH)
    if usual is None or len(kept) < rule.given.get("need", 3):
        return None
    value, wider = _mean(kept), usual.wider
    difference, z = value - usual.mean, usual.z(value)
    far = abs(difference) >= wider * rule.given["effect"]
    if "times" in rule.given:
        far = far and _times(value, usual.mean) >= wider * rule.given["times"]
    on_side = {"above": difference > 0, "below": difference < 0}.get(rule.bound, True)
    return Reading(
        value=value,
        limit=math.nan,
        crossed=far and abs(z) > wider * rule.given["z"] and on_side,
        clear=abs(z) < (1 - MARGIN) * wider * rule.given["z"],
        expected=f"{usual.mean:.3g} ± {usual.deviation:.2g} in {usual.runs} healthy runs at this "
        "step",
        detail=f"z = {z:+.1f}" + (f"; {OTHER_INPUTS.format(wider)}" if wider > 1 else ""),
    )


def _times(value: float, usual: float) -> float:
    """How many times as large the greater of the two is; infinite where they differ in sign."""
    small, large = sorted((abs(value), abs(usual)))
    return large / small if small > 0 and value * usual > 0 else math.inf


# `finite` and `diagnosed` are the engine's own: they read no single metric.
TESTS: dict[str, Test] = {
    "level": level,
    "beyond_noise": beyond_noise,
    "scaled": scaled,
    "first": first,
    "fallen": fallen,
    "risen": risen,
    "apart": apart,
    "departs": departs,
    "unimitated": unimitated,
    "floor": floor,
    "together": together,
    "changed": changed,
    "at_start": at_start,
    "never_moves": never_moves,
    "median": median_of,
    "median_of_first": median_of_first,
    "chance": chance,
    "burst": burst,
    "pooled": pooled,
    "window": window,
    "spread": spread,
    "jump": jump,
    "break": break_,
    "rise": rise,
    "fall": fall,
    "flat": flat,
    "alone": alone,
    "uniform": uniform,
    "gap": gap,
    "canaries": canaries,
    "unusual": unusual,
}


def _matters(reading: Reading, matters: bool) -> Reading:
    """An effect that is too small to count is no alarm, whatever the test says."""
    return reading if matters else replace(reading, crossed=False, clear=True)


def _remember(memory: Memory, name: str, value: Any, length: int) -> list[Any]:
    kept: list[Any] = memory.setdefault(name, [])
    kept.append(value)
    del kept[: -max(1, length)]
    return kept


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


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

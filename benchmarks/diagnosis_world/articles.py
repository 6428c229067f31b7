"""The thresholds of the two articles behind the product, as they are printed there.

Raw rewards; windows, where the text has any, of 500 answers, judged from 100 on. `link` is where a
reader of the article would look: it names symptoms, not links, so this is our reading.
"""

import math
from collections.abc import Iterator

from benchmarks.diagnosis_world.judging import Said
from benchmarks.diagnosis_world.records import Record

WINDOW, LEAST = 500, 100  # answers
MEAN, HIGH, HIGH_SHARE, SPREAD = 0.8, 0.9, 0.2, 0.1
SHIFT, DROP = 3.0, 2.0  # deviations of the baseline: of the window's mean; of a single batch
KL, CLIP, ENTROPY = 10.0, 0.4, 0.1


def articles(record: Record) -> Said:
    """Everything printed, read literally. The share of rewards over 0.9 is of the calibrated score
    and cannot be read from the curves: it is the one that is left out."""
    spoken = sorted(_alarms(record))
    if not spoken:
        return Said()
    links = tuple(dict.fromkeys(link for _, link, _ in spoken))
    return Said(spoken[0][0], links, tuple(dict.fromkeys(rule for *_, rule in spoken)))


def _alarms(record: Record) -> Iterator[tuple[int, str, str]]:
    """(step, link, rule), the first of each."""
    told: set[str] = set()
    for step, link, rule in _crossed(record):
        if rule not in told:
            told.add(rule)
            yield step, link, rule


def _crossed(record: Record) -> Iterator[tuple[int, str, str]]:
    per_step = int(record.config["batch_size"])
    means, spreads = _curve(record, "objective/scores"), _curve(record, "objective/scores_std")
    kl, entropy = _curve(record, "objective/kl"), _curve(record, "objective/entropy_per_token")
    clip = _curve(record, "policy/clipfrac_avg")
    start = min(means, default=0)
    for step in sorted(means):
        window = range(max(start, step - WINDOW // per_step + 1), step + 1)
        enough = len(window) * per_step >= LEAST
        seen = [means[s] for s in window if s in means]
        mean = sum(seen) / len(seen)
        inner = sum(spreads.get(s, 0.0) ** 2 for s in window) / len(window)
        spread = math.sqrt(inner + sum((m - mean) ** 2 for m in seen) / len(seen))
        base, scale = means[start], spreads.get(start, 0.0) + 1e-8
        if enough and mean > MEAN:
            yield step, "reward", "mean reward over 0.8"
        if enough and spread < SPREAD:
            yield step, "reward", "deviation under 0.1"
        if enough and abs(mean - base) / scale > SHIFT:
            yield step, "reward", "shift over 3 deviations"
        if step > start and abs(means[step] - base) / scale > DROP:
            yield step, "reward", "a batch over 2 deviations off"
        if enough and _mean(kl, window) > KL:
            yield step, "policy", "KL over 10"
        if clip.get(step, 0.0) > CLIP:
            yield step, "policy", "clip fraction over 0.4"
        if enough and _mean(entropy, window) < ENTROPY:
            yield step, "exploration", "entropy under 0.1"


def _curve(record: Record, name: str) -> dict[int, float]:
    return {
        step: value
        for step, value in record.curves.get(name, [])
        if isinstance(value, int | float) and math.isfinite(value)
    }


def _mean(curve: dict[int, float], window: range) -> float:
    seen = [curve[step] for step in window if step in curve]
    return sum(seen) / len(seen) if seen else math.nan

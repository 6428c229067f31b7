"""The figures of an evaluation: paired scores, right answers, pass@k, the spread of repeats."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from scipy.special import expit

from measures.accuracy import pair_credit
from measures.estimate import Interval
from measures.intervals import mean_interval, paired_difference
from measures.repeats import (
    inside_repeat_spread,
    least_difference,
    pass_at_k,
    repeat_spread,
)
from workers.config.inference import EvaluateSettings
from workers.contract.reasons import in_words
from workers.data.snapshot import Prompt
from workers.rewards.rules import phrase_pattern, plain, same_text
from workers.rewards.source import RewardSource
from workers.rollouts.drawing import Answer

# Where a repeat spread is measured: (part of the report, figure) -> the systems it is about.
HEADLINES = ("policy", "sft", "difference", "win_rate")
SOURCES = ("reward", "judge", "factuality")
_EVEN = {"win_rate": 0.5}  # what a figure is of two equal systems; 0 of a difference
PASS_AT = (1, 2, 5, 10, 20, 50, 100)


def clusters_of(rows: Sequence[Prompt]) -> list[str]:
    """What the rows of one resample share: the group of the prompt, else the prompt."""
    return [row.group or row.messages[-1]["content"] for row in rows]


def _options(rows: Sequence[Prompt], settings: EvaluateSettings, seed: int) -> dict[str, Any]:
    return {
        "clusters": clusters_of(rows),
        "replicates": settings.bootstrap_replicates,
        "seed": seed,
    }


def compared(
    policy: Sequence[float],
    sft: Sequence[float],
    rows: Sequence[Prompt],
    settings: EvaluateSettings,
    seed: int,
) -> dict[str, Any]:
    """Mean scores, their paired difference, the policy's win rate (ties ½), and the share of people
    who would prefer its answer if they chose as Bradley–Terry has it of these scores: σ of the
    difference, near ½ where the answers are nearly as good as each other."""
    options = _options(rows, settings, seed)
    ahead = np.subtract(policy, sft)
    results: dict[str, Interval] = {
        "policy": mean_interval(policy, **options),
        "sft": mean_interval(sft, **options),
        "difference": paired_difference(policy, sft, **options),
        "win_rate": mean_interval(pair_credit(ahead), **options),
        "people_win_rate": mean_interval(expit(ahead), **options),
    }
    return {name: in_words(asdict(interval)) for name, interval in results.items()}


def right(given: str, known: str, how: str) -> bool:
    """Whether an answer is the known one, by `how` of the setting `factuality`."""
    if how == "exact":
        return given == known
    if how == "contains":
        return phrase_pattern(known).search(plain(given)) is not None
    return same_text(given, known)


def _rightly(
    answers: Sequence[Answer], rows: Sequence[Prompt], known: Sequence[int], how: str
) -> list[float]:
    return [float(right(answers[i].text, rows[i].answer, how)) for i in known]


def factuality(
    rows: Sequence[Prompt],
    policy: Sequence[Answer],
    sft: Sequence[Answer],
    judged: tuple[RewardSource, Sequence[float]] | None,
    settings: EvaluateSettings,
    seed: int,
) -> dict[str, Any]:
    """On prompts whose right answer is known: the share of right answers of both models and their
    paired difference. judged: the judge and its scores of the policy's answers; then also the share
    of these that it scores at least as high as the right one, ties ½. Empty where no answer is
    known, or none is asked for."""
    known = [i for i, row in enumerate(rows) if row.answer]
    if settings.factuality == "off" or not known:
        return {}
    asked = [rows[i] for i in known]
    options = _options(asked, settings, seed)
    after, before = (_rightly(one, rows, known, settings.factuality) for one in (policy, sft))
    found = {
        "policy": mean_interval(after, **options),
        "sft": mean_interval(before, **options),
        "difference": paired_difference(after, before, **options),
    }
    if judged is not None:
        judge, scores = judged
        references = judge.score([row.messages for row in asked], [row.answer for row in asked])
        ahead = np.subtract([scores[i] for i in known], references.values)
        found["judge_against_right"] = mean_interval(pair_credit(ahead), **options)
    return {name: in_words(asdict(interval)) for name, interval in found.items()}


def pass_at(
    rows: Sequence[Prompt],
    policy: Sequence[Answer],
    sft: Sequence[Answer],
    settings: EvaluateSettings,
    seed: int,
) -> dict[str, Any]:
    """On prompts with a known answer, drawn several times: the mean over prompts of the chance that
    one of k answers is right (`measures.repeats.pass_at_k`), for k of `PASS_AT` up to `draws` and
    for `draws`; names end in `_at_k`. Empty with one draw, where it is the share of right answers.

    rows: each prompt `draws` times running, as the recipe asks them.
    """
    draws = settings.draws
    known = [i for i, row in enumerate(rows) if row.answer]
    if draws < 2 or settings.factuality == "off" or not known:
        return {}
    asked = [rows[i] for i in known[::draws]]
    options = _options(asked, settings, seed)
    counts = [
        np.reshape(_rightly(one, rows, known, settings.factuality), (-1, draws)).sum(axis=1)
        for one in (policy, sft)
    ]
    found: dict[str, Interval] = {}
    for k in sorted({*(k for k in PASS_AT if k <= draws), draws}):
        after, before = ([pass_at_k(draws, int(c), k) for c in one] for one in counts)
        found[f"policy_at_{k}"] = mean_interval(after, **options)
        found[f"sft_at_{k}"] = mean_interval(before, **options)
        found[f"difference_at_{k}"] = paired_difference(after, before, **options)
    return {name: in_words(asdict(interval)) for name, interval in found.items()}


def repeat_report(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What repeats of the unchanged systems tell of the first one's figures.

    reports: one per repeat, each with some of `SOURCES` as `compared` and `factuality` give them.
    {count, figures: {"reward.win_rate": {values, sigma, least_difference, inside}}}; `inside` says
    of a difference and of a win rate that it lies inside the repeat spread, so that the two systems
    are not claimed to differ. Of a difference of two systems σ is √((σ_policy² + σ_sft²) / 2), of
    one answer of a system. With one report only {count}: nothing is known of its spread.
    """
    told: dict[str, Any] = {"count": len(reports), "figures": {}}
    if len(reports) < 2:
        return told
    for source in SOURCES:
        series = {
            name: [report[source][name]["value"] for report in reports]
            for name in HEADLINES
            if all(_measured(report, source, name) for report in reports)
        }
        for name, values in series.items():
            told["figures"][f"{source}.{name}"] = _spread(name, values, series)
    return told


def _measured(report: Mapping[str, Any], source: str, name: str) -> bool:
    return report.get(source, {}).get(name, {}).get("value") is not None


def _spread(
    name: str, values: Sequence[float], series: Mapping[str, Sequence[float]]
) -> dict[str, Any]:
    sigma = repeat_spread(values)
    if name == "difference" and {"policy", "sft"} <= series.keys():
        each = [repeat_spread(series[role]) or 0.0 for role in ("policy", "sft")]
        sigma = float(np.sqrt(np.mean(np.square(each))))
    assert sigma is not None  # noqa: S101 — there are two values at least
    told = {"values": list(values), "sigma": sigma, "least_difference": least_difference(sigma)}
    if name in ("difference", "win_rate"):
        told["inside"] = inside_repeat_spread(values[0] - _EVEN.get(name, 0.0), sigma)
    return told

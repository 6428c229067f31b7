"""A probe beside its watch's baseline: what has changed, and which of it somebody must hear of."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from apps.monitoring.models import Watch
from apps.monitoring.probe_words import is_share, label_of
from apps.monitoring.selectors.probes import REWARD, shift_of
from apps.monitoring.services.baselines import Brought
from apps.training.models import Run
from measures.drift import Shift, paired_shift, speaks, unpaired_shift
from workers.contract.events import Fault

WEIGHTS, SHIFTED, PROMPTS, FAILED = "probe_weights", "probe_shift", "probe_prompts", "probe_failed"
MOST_CHANGES = 20
STRONG = 0.5  # deviations; "medium" in Cohen (1988): from here on it is critical
_FAULT_LINKS = {Fault.DATA: "data", Fault.MACHINE: "resources", Fault.GUARD: "numerics"}
_FEWEST_KEPT = 0.5  # of the baseline's prompts


@dataclass(frozen=True, slots=True)
class Judged:
    """As a ProbeResult keeps it."""

    figures: dict[str, Any]
    findings: list[dict[str, Any]]
    details: dict[str, Any]


def judge_first(found: Brought) -> Judged:
    """What becomes the baseline has nothing to be compared with."""
    return Judged(dict(found.figures), [], {"weights": dict(found.weights)})


def judge(
    watch: Watch, found: Brought, before: Mapping[str, Any] | None, baseline: Mapping[str, Any]
) -> Judged:
    """`before`: the figures of the probe before this one, if it had the same baseline."""
    known = {name: now for name, now in found.figures.items() if name in baseline["figures"]}
    figures: dict[str, Any] = {}
    findings = _weight_findings(watch, found, baseline) + _prompt_findings(found, baseline)
    for name, now in found.figures.items():
        then = baseline["figures"].get(name)
        if then is None:
            figures[name] = dict(now)
            continue
        shift = _shift(now, then, _pairs(name, found, baseline), figures=len(known))
        earlier = _earlier(before, name)
        figures[name] = now | {"baseline": then["mean"], "shift": _plain(shift)}
        if speaks(shift, earlier):
            findings.append(_shift_finding(watch, name, now, then, shift))
    details = {
        "weights": dict(found.weights),
        "paired": len(set(found.rows) & set(baseline["rows"])),
        "changes": _changes(found, baseline),
    }
    return Judged(figures, findings, details)


def judge_failure(run: Run, problem: str = "") -> Judged:
    """A probe that could not ask, or brought nothing back."""
    words = problem or run.failure_message or "It says nothing of why."
    finding = {
        "rule": FAILED,
        "link": _FAULT_LINKS.get(run.fault, "data"),
        "severity": "critical",
        "title": "The model cannot be asked",
        "message": f"{words} ({run.failure_kind})" if run.failure_kind else words,
    }
    return Judged({}, [finding], {})


def judge_refusal(message: str) -> Judged:
    """A probe that could not even be launched."""
    finding = {
        "rule": FAILED,
        "link": "data",
        "severity": "critical",
        "title": "The model cannot be asked",
        "message": message,
    }
    return Judged({}, [finding], {})


def _earlier(before: Mapping[str, Any] | None, name: str) -> Shift | None:
    return shift_of((before or {}).get(name))


def _pairs(name: str, found: Brought, baseline: Mapping[str, Any]) -> list[tuple[float, float]]:
    """(now, then) of every prompt of which the figure is known both times."""
    pairs = []
    for key, row in found.rows.items():
        then = baseline["rows"].get(key)
        if then is not None and name in row["values"] and name in then["values"]:
            pairs.append((row["values"][name], then["values"][name]))
    return pairs


def _shift(
    now: Mapping[str, float],
    then: Mapping[str, float],
    pairs: list[tuple[float, float]],
    *,
    figures: int,
) -> Shift:
    """Prompt by prompt where enough are known both times, else by the means."""
    if pairs:
        paired = paired_shift(
            [pair[0] for pair in pairs],
            [pair[1] for pair in pairs],
            deviation=then["deviation"] or None,
            figures=figures,
        )
        if paired.undefined is None:
            return paired
    return unpaired_shift(
        mean=now["mean"],
        deviation=now["deviation"],
        n=int(now["n"]),
        baseline_mean=then["mean"],
        baseline_deviation=then["deviation"],
        baseline_n=int(then["n"]),
        figures=figures,
    )


def _plain(shift: Shift) -> dict[str, Any]:
    """JSON has no word for infinity, which is how far a figure without spread has moved."""
    kept = {
        key: math.copysign(1e9, value) if isinstance(value, float) and math.isinf(value) else value
        for key, value in asdict(shift).items()
    }
    return kept | {"level": str(shift.level)}


def _weight_findings(
    watch: Watch, found: Brought, baseline: Mapping[str, Any]
) -> list[dict[str, Any]]:
    findings = []
    for role, now in found.weights.items():
        then = baseline["weights"].get(role)
        if then is None or then == now:
            continue
        what = "the reward model's" if role == "reward" else "the model's"
        link = "reward" if role == "reward" or watch.kind == Watch.Kind.REWARD else "policy"
        findings.append(
            {
                "rule": WEIGHTS,
                "link": link,
                "severity": "critical",
                "title": "Another model answers than at the baseline",
                "message": f"The hash of {what} weights is {now[:12]}; at the baseline it was "
                f"{then[:12]}. If that was meant, set the baseline anew; if not, somebody or "
                "something has replaced the model.",
            }
        )
    return findings


def _prompt_findings(found: Brought, baseline: Mapping[str, Any]) -> list[dict[str, Any]]:
    known = set(baseline["rows"])
    kept = known & set(found.rows)
    if not known or len(kept) >= _FEWEST_KEPT * len(known):
        return []
    return [
        {
            "rule": PROMPTS,
            "link": "evaluation",
            "severity": "critical",
            "title": "The probe asked other prompts than at the baseline",
            "message": f"Of the baseline's {len(known):,} prompts {len(kept):,} were asked. The "
            "figures are not comparable: look at the dataset and the tokenizer.",
        }
    ]


def _shift_finding(
    watch: Watch, name: str, now: Mapping[str, float], then: Mapping[str, float], shift: Shift
) -> dict[str, Any]:
    effect = shift.effect or 0.0
    size = f"{abs(effect):.2g} deviations" if abs(effect) < 1000 else "where nothing ever varied"
    test = (
        f", {'t' if shift.paired else 'z'} = {_signed(shift.statistic)}" if shift.statistic else ""
    )
    pairs = "prompts in pairs" if shift.paired else "answers"
    label, share = label_of(name), is_share(name)
    moved = _signed(100 * (shift.value or 0)) + " points" if share else _signed(shift.value)
    return {
        "rule": SHIFTED,
        "link": "reward" if watch.kind == Watch.Kind.REWARD else "policy",
        "severity": "critical" if abs(effect) >= STRONG else "warning",
        "figure": name,
        "value": now["mean"],
        "title": f"{label} has moved from its baseline",
        "message": f"{label} was {_plainly(then['mean'], share)} at the baseline and is "
        f"{_plainly(now['mean'], share)} now: {moved} ({size}{test}, {shift.n:,} {pairs}).",
    }


def _changes(found: Brought, baseline: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The prompts whose score moved most, or whose answer is another one; largest first."""
    changed = []
    for key, row in found.rows.items():
        then = baseline["rows"].get(key)
        if then is None:
            continue
        score, before = row["values"].get(REWARD), then["values"].get(REWARD)
        difference = score - before if score is not None and before is not None else None
        if difference or row["answer"] != then["answer"]:
            changed.append(
                {
                    "id": key,
                    "prompt": row["prompt"],
                    "answer": row["answer"],
                    "before": then["answer"],
                    "score": score,
                    "score_before": before,
                    "difference": difference,
                }
            )
    changed.sort(key=lambda one: -abs(one["difference"] or 0.0))
    return changed[:MOST_CHANGES]


def _plainly(value: float, share: bool) -> str:
    text = f"{100 * value:.1f} %" if share else f"{value:.4g}"
    return text.replace("-", "−")


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.3g}".replace("-", "−")

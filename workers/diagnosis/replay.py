"""The diagnosis afterwards: over a stored run, or one trained elsewhere."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from workers.contract.events import Evidence
from workers.rules.choices import BY_NAME, diagnosing_rules, names_of, title_of
from workers.rules.diagnosis import Baseline, Finding, Verdict, verdict
from workers.rules.engine import Engine
from workers.rules.rule import CONTRACT

Series = Mapping[str, Sequence[tuple[int, Any]]]
_WORDS = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found, what it means, and what could not be looked at for want of metrics."""

    findings: tuple[Finding, ...]
    verdict: Verdict | None
    judged: tuple[str, ...]
    unjudged: tuple[tuple[str, tuple[str, ...]], ...]


def diagnose(
    series: Series,
    *,
    kind: str,
    config: Mapping[str, Any] | None = None,
    evidence: Sequence[Evidence] = (),
    failure: tuple[int, str, str] | None = None,
    baseline: Baseline | None = None,
    most_checks: int | None = None,
) -> Diagnosis:
    """Judge curves {metric: [(step, value)]}, by the rules that diagnose, as they were judged live.

    `evidence` is what the run itself said, `failure` (step, kind, message) how it ended. Undefined
    values are None, broken ones the words nan, inf, -inf. Of a run with more than `most_checks`
    steps only every so many are looked at, and those of evaluations: what the run said while it
    lived, at every step, is in `evidence`. Curves that were thinned each for itself no longer share
    their steps; hand over whole ones.
    """
    engine = Engine(kind, config, baseline=baseline, is_live=False)
    for step, metrics in _spread(_by_step(series), most_checks):
        engine.check(step, metrics)
    if failure is not None:
        engine.ended(*failure)
    findings = [replace(one, cleared_step=engine.cleared(one.rule)) for one in engine.findings]
    known = {name for one in findings for name in names_of(one.rule)}
    findings += [one for one in map(_heard, evidence) if one and one.rule not in known]
    findings.sort(key=lambda one: (one.start_step, one.depth, one.step))
    rules = diagnosing_rules(kind, config)
    judged = sorted({name for one in rules if engine.checks(one.name) for name in one.metrics})
    unjudged = tuple(
        (one.title, tuple(name for name in one.metrics if name not in series))
        for one in rules
        if not engine.checks(one.name)
    )
    stages = {*engine.judged_stages, *(one.stage for one in findings)}
    return Diagnosis(
        tuple(findings), verdict(findings, judged=sorted(stages)), tuple(judged), unjudged
    )


def findings_said(evidence: Sequence[Evidence]) -> list[Finding]:
    """Evidence events as findings, without what only informs."""
    return [one for one in map(_heard, evidence) if one is not None]


def _heard(event: Evidence) -> Finding | None:
    """What the run said of itself; a rule that only informs names no cause."""
    rule = BY_NAME.get(event.rule)
    if rule is not None and rule.severity == "info":
        return None
    is_symptom = rule is not None and not rule.diagnoses and event.evidence_class != CONTRACT
    return Finding(
        stage=event.link,
        rule=event.rule,
        evidence_class=event.evidence_class,
        step=event.step,
        start_step=event.step if event.onset is None else event.onset,
        title=title_of(event.rule),
        value=event.value,
        expected=event.expected,
        unit=event.unit,
        detail=event.detail,
        samples=tuple(event.samples),
        experiment=event.experiment,
        symptom=is_symptom,
    )


def _spread(
    checks: list[tuple[int, dict[str, float | None]]], most: int | None
) -> list[tuple[int, dict[str, float | None]]]:
    if most is None or len(checks) <= most:
        return checks
    stride = -(-len(checks) // most)
    return [
        check
        for i, check in enumerate(checks)
        if i % stride == 0 or any(name.startswith("eval/") for name in check[1])
    ]


def _by_step(series: Series) -> list[tuple[int, dict[str, float | None]]]:
    steps: dict[int, dict[str, float | None]] = {}
    for name, points in series.items():
        for step, value in points:
            steps.setdefault(step, {})[name] = _WORDS[value] if isinstance(value, str) else value
    return sorted(steps.items())

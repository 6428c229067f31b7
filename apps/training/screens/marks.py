"""What is drawn on the chart of a metric besides its curve: limits in force, alerts, findings."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.urls import reverse
from django.utils.http import urlencode

from apps.common.templatetags.frame import figure
from apps.training.display import speakable
from apps.training.guidance import rules_in_force
from apps.training.headline import kind_of, metric_names
from apps.training.models import Alert, Run
from apps.training.selectors.evidence import Found
from workers.contract.guards import GuardRule
from workers.diagnosis.detectors import DETECTORS

# Tests whose threshold is in the unit of the metric itself, so that it can be drawn as a line.
DRAWABLE = frozenset({"level", "window", "spread"})
_DETECTORS = {one.rule: one for one in DETECTORS}


def limits_of(run: Run) -> list[dict[str, Any]]:
    """The absolute thresholds in force, before any alert: {metric, value, bound, title, stops}."""
    return [
        {
            "metric": rule.metric,
            "value": rule.threshold,
            "bound": rule.bound,
            "title": rule.title,
            "stops": rule.action == "stop",
        }
        for rule in rules_in_force(run)
        if rule.test in DRAWABLE and rule.action != "off"
    ]


def marks_of(
    run: Run, alerts: Iterable[Alert], found: Iterable[Found], known: Sequence[str]
) -> list[dict[str, Any]]:
    """Where alerts and findings stand: {metric, step, onset, severity, text, threshold, links}.

    `known` are the names of the run's metrics. A finding that raised an alert is one mark with it.
    What no metric can be named for stands on the chart of the kind's headline.
    """
    rules = {rule.name: rule for rule in rules_in_force(run)}
    headline = next((name for name in metric_names(kind_of(run)) if name in known), None)
    findings = {(one.rule, one.step): one for one in found}
    marks = []
    for alert in alerts:
        one = findings.pop((alert.rule, alert.step), None)
        metric = _metric(alert.rule, rules, known)
        links = [["Alert", f"{page_of(run)}?tab=alerts#alert-{alert.pk}"]]
        marks.append(
            {
                "metric": metric or headline,
                "step": alert.step,
                "onset": one.onset if one is not None else alert.step,
                "severity": alert.severity,
                "rule": alert.rule,
                "text": alert.message,
                "threshold": _threshold(alert, metric, rules),
                "links": [*links, ["Samples at this step", samples_near(run, alert.step)]],
            }
        )
    for one in findings.values():
        marks.append(
            {
                "metric": _metric(one.rule, rules, known) or headline,
                "step": one.step,
                "onset": one.onset,
                "severity": "warning",
                "rule": one.rule,
                "text": _said(one, rules),
                "threshold": None,
                "links": [["Samples at this step", samples_near(run, one.step)]],
            }
        )
    return sorted(marks, key=lambda mark: mark["step"])


def marked(marks: Iterable[Mapping[str, Any]]) -> set[str]:
    """The metrics on whose charts something stands that a person should see."""
    return {mark["metric"] for mark in marks if mark["metric"] and mark["severity"] != "info"}


def page_of(run: Run) -> str:
    return reverse("training:run", args=[run.project.slug, run.pk])


def samples_near(run: Run, step: int) -> str:
    """The samples of the last step up to `step` that kept some."""
    return f"{page_of(run)}?{urlencode({'tab': 'samples', 'until': step})}"


def _metric(rule: str, rules: Mapping[str, GuardRule], known: Sequence[str]) -> str | None:
    """The metric that a rule reads: a guardrail's own, a detector's first; for other rules the part
    of the name before a colon, where that is a metric."""
    if rule in rules:
        return rules[rule].metric
    if rule in _DETECTORS:
        return _DETECTORS[rule].metrics[0]
    name = rule.partition(":")[0]
    return name if name in known or "/" in name else None


def _threshold(alert: Alert, metric: str | None, rules: Mapping[str, GuardRule]) -> Any:
    """The alert's threshold, where it is in the unit of the metric on whose chart it stands."""
    rule = rules.get(alert.rule)
    if metric is None or (alert.rule in _DETECTORS and rule is None):
        return None
    if rule is not None and rule.test not in DRAWABLE:
        return None
    return speakable(alert.threshold)


def _said(one: Found, rules: Mapping[str, GuardRule]) -> str:
    known = rules.get(one.rule) or _DETECTORS.get(one.rule)
    title = known.title if known else one.rule.replace("_", " ").capitalize()
    value = f": {figure(one.value)} {one.unit}".rstrip() if one.value is not None else ""
    expected = f", expected {one.expected}" if one.expected else ""
    detail = f". {one.detail}" if one.detail else ""
    return f"{title}{value}{expected}{detail}"

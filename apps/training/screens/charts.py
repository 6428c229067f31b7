"""The charts tab of a run: what is asked for, by whom it is drawn, and the same in figures."""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from django.http import QueryDict
from django.urls import NoReverseMatch, reverse
from django.utils.http import urlencode

from apps.common import playbook
from apps.common.numbers import figure
from apps.common.registry import playbook_url
from apps.training.display import metric_summary, speakable
from apps.training.guidance import rules_in_force
from apps.training.models import Alert, Run
from apps.training.screens import histograms as spread
from apps.training.screens.panels import ENOUGH, PANELS, References, references, source
from apps.training.selectors.metrics import Spread, histogram_names, histograms, metric_series
from apps.training.selectors.results import DetectorFinding
from workers.contract.events import is_by_time
from workers.contract.metrics import headline_names, metric_or_own
from workers.rules.choices import BY_NAME, title_of
from workers.rules.rule import Rule

TABLE_POINTS = 200  # thinned curves keep their first, last, least and greatest value


def charts_context(run: Run, asked: QueryDict) -> dict[str, Any]:
    found = references(
        run,
        asked.getlist("with"),
        shape=asked.get("as", "lines"),
        with_seeds=asked.get("seeds") == "1",
    )
    behind = (
        []
        if found.as_band
        else [source(one, role="reference", colour=n) for n, one in enumerate(found.chosen, 2)]
    )
    series = metric_series(run=run, max_points=TABLE_POINTS)
    return {
        "metrics": [
            metric_summary(name, points)
            | {"title": metric_or_own(name).title, "unit": metric_or_own(name).unit}
            for name, points in series.items()
            if not is_by_time(name)
        ],
        "has_machine": any(map(is_by_time, series)),
        "panels": PANELS,
        "sources": [source(run, role="self", colour=1), *behind],
        "references": found,
        "legend": behind,
        "band_url": _band_url(run, found) if found.as_band else "",
        "band_words": _band_words(found),
        "spreads": _spreads(run, asked),
        "pointed_at": step if (step := asked.get("step", "")).isdecimal() else "",
        "kept": [
            (n, v) for n in asked if not n.startswith(("from-", "to-")) for v in asked.getlist(n)
        ],
    }


# What a curve can be drawn over besides its steps, and the metric that says where each step lay.
AXES = {"time": "machine/step", "epochs": "epoch", "tokens": "num_tokens"}


def axes_of(known: Collection[str]) -> dict[str, str]:
    """Those of `AXES` that the run has measured."""
    return {axis: name for axis, name in AXES.items() if name in known}


def _band_url(run: Run, found: References) -> str:
    query = [("with", one.pk) for one in found.chosen]
    query += [("seeds", "1")] if found.with_seeds else []
    return f"{reverse('training:run_band', args=[run.project.slug, run.pk])}?{urlencode(query)}"


def _band_words(found: References) -> str:
    """What the band is of: "least to greatest of 4 runs"."""
    n = len({one.pk for one in found.chosen} | {o.pk for o in found.seeds if found.with_seeds})
    bounds = "10–90 %" if n >= 10 else "least to greatest"
    return f"{bounds} of {n} other {'seeds' if found.with_seeds and not found.chosen else 'runs'}"


def _spreads(run: Run, asked: QueryDict) -> list[dict[str, Any]]:
    shown = []
    for name in histogram_names(run):
        spreads = histograms(run, name)
        metric = spread.read_as(name, run.trained_kind)
        drawn = spread.strip(name, spreads, metric=metric)
        if drawn is not None:
            first = _at(spreads, asked.get(f"from-{name}"), spreads[0])
            second = _at(spreads, asked.get(f"to-{name}"), spreads[-1])
            shown.append({"strip": drawn, "pair": spread.pair(metric, first, second)})
    return shown


def _at(spreads: list[Spread], asked: str | None, default: Spread) -> Spread:
    return next((one for one in spreads if str(one.step) == asked), default)


# Where other runs lay: a band by step over runs that are taken as healthy.

MOST_STRETCHES = 300
QUANTILE_RUNS = 10  # from here on the band leaves out the outermost tenth on either side
TAIL = 0.1


def bands_of(runs: Sequence[Mapping[str, Sequence[tuple[int, Any]]]]) -> dict[str, dict[str, Any]]:
    """{metric: {steps, low, high, n}} from each run's curves.

    The steps are cut into at most MOST_STRETCHES stretches; in each a run counts with its mean, so
    runs that measured at other steps can be compared. A stretch in which fewer than ENOUGH runs
    measured has no bounds (None). The bounds are the least and the greatest run; of ten runs and
    more, the 10 % and 90 % quantiles. It describes these runs: it is no interval for a mean.
    """
    names = {name for run in runs for name in run}
    found = {name: _band([run[name] for run in runs if name in run]) for name in sorted(names)}
    return {name: band for name, band in found.items() if band is not None}


def _band(curves: Sequence[Sequence[tuple[int, Any]]]) -> dict[str, Any] | None:
    numbers = [[(s, float(v)) for s, v in curve if _is_number(v)] for curve in curves]
    numbers = [curve for curve in numbers if curve]
    steps = sorted({step for curve in numbers for step, _ in curve})
    if len(numbers) < ENOUGH or not steps:
        return None
    stride = -(-len(steps) // MOST_STRETCHES)
    starts = steps[::stride]
    at: list[list[float]] = [[] for _ in starts]
    for curve in numbers:
        own: dict[int, list[float]] = {}
        for step, value in curve:
            own.setdefault(bisect_right(starts, step) - 1, []).append(value)
        for place, values in own.items():
            at[place].append(float(np.mean(values)))
    bounds = [_bounds(values) for values in at]
    if all(low is None for low, _ in bounds):
        return None
    return {
        "steps": starts,
        "low": [low for low, _ in bounds],
        "high": [high for _, high in bounds],
        "n": len(numbers),
    }


def _bounds(values: Sequence[float]) -> tuple[float | None, float | None]:
    if len(values) < ENOUGH:
        return None, None
    if len(values) < QUANTILE_RUNS:
        return min(values), max(values)
    low, high = np.quantile(values, [TAIL, 1 - TAIL])
    return float(low), float(high)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and np.isfinite(value)


# What is drawn on the chart of a metric besides its curve: active limits, alerts, findings.

# Tests whose threshold is in the unit of the metric itself, so that it can be drawn as a line.
DRAWABLE = frozenset({"level", "window", "spread", "median"})


def limits_of(run: Run) -> list[dict[str, Any]]:
    """The absolute active thresholds, before any alert: {metric, value, bound, title, stops}."""
    return [
        {
            "metric": rule.metric,
            "value": rule.limit,
            "bound": rule.bound,
            "title": rule.title,
            "stops": rule.action == "stop",
        }
        for rule in rules_in_force(run)
        if rule.test in DRAWABLE and rule.action != "off"
    ]


def annotations_of(
    run: Run, alerts: Iterable[Alert], found: Iterable[DetectorFinding], known: Sequence[str]
) -> list[dict[str, Any]]:
    """Where alerts and findings stand: {metric, step, onset, severity, text, threshold, links}.

    `known` are the names of the run's metrics. A finding that raised an alert is one mark with it.
    What no metric can be named for stands on the chart of the kind's headline.
    """
    rules = _rules(run)
    headline = next((name for name in headline_names(run.trained_kind) if name in known), None)
    findings = {(one.rule, one.step): one for one in found}
    annotations = []
    for alert in alerts:
        one = findings.pop((alert.rule, alert.step), None)
        metric = _metric(alert.rule, rules, known)
        links = [["Alert", f"{page_of(run)}?tab=alerts#alert-{alert.pk}"]]
        annotations.append(
            {
                "metric": metric or headline,
                "step": alert.step,
                "onset": one.start_step if one is not None else alert.step,
                "severity": alert.severity,
                "rule": alert.rule,
                "text": alert.message,
                "threshold": _threshold(alert, metric, rules),
                "links": [*links, ["Samples at this step", samples_near(run, alert.step)]],
            }
        )
    for one in findings.values():
        annotations.append(
            {
                "metric": _metric(one.rule, rules, known) or headline,
                "step": one.step,
                "onset": one.start_step,
                "severity": "warning",
                "rule": one.rule,
                "text": _said(one),
                "threshold": None,
                "links": [["Samples at this step", samples_near(run, one.step)]],
            }
        )
    return sorted(annotations, key=lambda annotation: annotation["step"])


def annotated_metrics(annotations: Iterable[Mapping[str, Any]]) -> set[str]:
    """The metrics on whose charts something stands that a person should see."""
    return {
        annotation["metric"]
        for annotation in annotations
        if annotation["metric"] and annotation["severity"] != "info"
    }


def page_of(run: Run) -> str:
    return reverse("training:run", args=[run.project.slug, run.pk])


def samples_near(run: Run, step: int) -> str:
    """The samples of the last step up to `step` that kept some."""
    return f"{page_of(run)}?{urlencode({'tab': 'samples', 'until': step})}"


def _rules(run: Run) -> dict[str, Rule]:
    """By every name they have had; guardrails as they were set in the run."""
    own = {name: rule for rule in rules_in_force(run) for name in rule.names}
    return {**BY_NAME, **own}


def _metric(rule: str, rules: Mapping[str, Rule], known: Sequence[str]) -> str | None:
    """The metric that a rule reads first; for other rules the part of the name before a colon,
    where that is a metric."""
    if rule in rules:
        return rules[rule].metric
    name = rule.partition(":")[0]
    return name if name in known or "/" in name else None


def _threshold(alert: Alert, metric: str | None, rules: Mapping[str, Rule]) -> Any:
    """The alert's threshold, where it is in the unit of the metric on whose chart it stands."""
    rule = rules.get(alert.rule)
    if metric is None or (rule is not None and not (rule.actions and rule.test in DRAWABLE)):
        return None
    return speakable(alert.threshold)


def _said(one: DetectorFinding) -> str:
    value = f": {figure(one.value)} {one.unit}".rstrip() if one.value is not None else ""
    expected = f", expected {one.expected}" if one.expected else ""
    detail = f". {one.detail}" if one.detail else ""
    return f"{title_of(one.rule)}{value}{expected}{detail}"


# The alerts tab: what fired, what to do about it, and where it is dealt with.


@dataclass(frozen=True, slots=True)
class AlertRow:
    """`title` and `advice` are empty for a rule that this version does not know."""

    alert: Alert
    tone: str
    title: str
    advice: str
    playbook: str
    incident: str
    samples: str


def alert_rows(run: Run, alerts: Sequence[Alert]) -> list[AlertRow]:
    incidents = _incidents(run, alerts)
    rows = []
    for alert in alerts:
        known = BY_NAME.get(alert.rule)
        rows.append(
            AlertRow(
                alert=alert,
                tone={"critical": "bad", "warning": "warn"}.get(alert.severity, ""),
                title=known.title if known is not None else "",
                advice=playbook.advice(alert.rule),
                playbook=playbook_url(run.project.slug, alert.rule),
                incident=incidents.get(alert.pk, ""),
                samples=samples_near(run, alert.step),
            )
        )
    return rows


def _incidents(run: Run, alerts: Sequence[Alert]) -> dict[int, str]:
    """{alert: the page of its incident}. An app after this one keeps incidents; where it is not
    there, there are none."""
    if not alerts or not hasattr(Alert, "entry"):
        return {}
    rows = Alert.objects.filter(run=run, entry__isnull=False).values_list(
        "pk", "entry__incident_id"
    )
    try:
        return {
            pk: reverse("monitoring:incident", args=[run.project.slug, incident])
            for pk, incident in rows
        }
    except NoReverseMatch:
        return {}

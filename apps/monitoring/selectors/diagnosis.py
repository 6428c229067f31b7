"""What broke first in a run, over its stored curves and what it said itself. A function of the
record: nothing of it is stored, only kept for a while so that a page which polls costs little.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from hashlib import sha256
from math import inf
from time import thread_time, time
from typing import Any

import numpy as np
from django.core.cache import cache

from apps.training.metric_blocks import Column, Point
from apps.training.models import Run, RunEvent
from apps.training.selectors import attempt_ends, metric_columns, pages
from apps.training.selectors.reference import baseline_of
from workers.config import recipe_config
from workers.contract.events import Evidence, is_by_time
from workers.diagnosis.replay import diagnose
from workers.rules.choices import diagnosing_rules, needed_metrics
from workers.rules.diagnosis import (
    WIDTH,
    Baseline,
    Finding,
    Verdict,
    baseline_from_json,
    finding_from_json,
    verdict,
)
from workers.rules.rule import STAGES
from workers.rules.table import RULES

MOST_STEPS = 2000
KEPT_S = 24 * 3600
LIVE_S, PATIENCE = 10, 20  # a live run is judged again after so long, or so many times its cost
TRAINED = frozenset({"sft", "reward", "process_reward", "dpo", "kto", "ppo", "grpo"})
# What was worked out by other rules, or kept in another form, is not shown.
_FORM = 5
_VERSION = sha256(f"{_FORM}{RULES}".encode()).hexdigest()[:12]
_FIELDS = {field.name for field in fields(Evidence)}
_INFORM = {rule.name for rule in RULES if rule.severity == "info"}


@dataclass(frozen=True, slots=True)
class Unjudged:
    """A rule that had nothing to judge; `missing` are the metrics the run does not have,
    empty where it has them but too few of them."""

    title: str
    stage: str
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """`kind` is what was trained, `judged` the metrics that were looked at, `steps` how many steps
    have figures, of which `looks` were looked at; `cost_s` what that took of a processor. Limits
    against other runs are `wider` times as wide where those had other inputs."""

    kind: str
    findings: tuple[Finding, ...]
    judged: tuple[str, ...]
    unjudged: tuple[Unjudged, ...]
    steps: int
    analysed_steps: int
    first_step: int | None
    last_step: int | None
    compared_with: int
    at: float
    cost_s: float
    wider: float = 1.0

    @property
    def verdict(self) -> Verdict | None:
        return verdict(self.findings, judged=self.judged_stages)

    @property
    def judged_stages(self) -> list[str]:
        blind = {one.title for one in self.unjudged}
        stages = {one.stage for one in diagnosing_rules(self.kind) if one.title not in blind}
        stages |= {one.stage for one in self.findings}
        return [stage for stage in STAGES if stage in stages]


def trained_kind(run: Run) -> str:
    """What was trained: of an imported run what its importer said; empty where nothing was."""
    kind = run.config.get("trained_as", "") if run.kind == Run.Kind.IMPORTED else run.kind
    return kind if kind in TRAINED else ""


def run_diagnosis(run: Run) -> Diagnosed:
    """Of a run that trained something (`trained_kind`). A live run that grows by the second is
    judged again only every so often, the less often the more it costs."""
    newest = f"{run.state}.{pages.newest_event(run)}"
    key = _key(run)
    kept = cache.get(key)
    if isinstance(kept, dict) and (kept.get("newest") == newest or _is_fresh(run, kept)):
        return _restored(kept)
    found = _diagnosed(run)
    cache.set(key, _stored(found, newest), KEPT_S)
    return found


def findings_waiting(run: Run) -> int:
    """How many problems the diagnosis knows of, without computing it: for a badge that is drawn
    with every page."""
    kept = cache.get(_key(run))
    if isinstance(kept, dict):
        return len(kept.get("findings", ()))
    rules = RunEvent.objects.filter(run=run, type="Evidence").values_list("body__rule", flat=True)
    return len(set(rules) - _INFORM)


def evidence_said(run: Run) -> list[Evidence]:
    """What the run has said of itself, in order; without what a resumed attempt undid."""
    ends = attempt_ends(run)
    rows = RunEvent.objects.filter(run=run, type="Evidence").order_by("attempt", "seq")
    said = [
        (attempt, Evidence(**{name: value for name, value in body.items() if name in _FIELDS}))
        for attempt, body in rows.values_list("attempt", "body")
    ]
    return [one for attempt, one in said if one.step <= ends.get(attempt, inf)]


def _diagnosed(run: Run) -> Diagnosed:
    begun, kind = thread_time(), trained_kind(run)
    baseline = _baseline(run)
    columns = {name: one for name, one in metric_columns(run=run).items() if not is_by_time(name)}
    series = analysed_series(columns, kind)
    steps = _union(_distinct_steps(columns).values())
    failed = (run.step, run.failure_kind, run.failure_message) if run.failure_kind else None
    found = diagnose(
        series,
        kind=kind,
        config=recipe_config(kind, run.config),
        evidence=evidence_said(run),
        failure=failed,
        baseline=baseline,
    )
    by_title = {one.title: one.stage for one in diagnosing_rules(kind)}
    return Diagnosed(
        kind=kind,
        findings=found.findings,
        judged=found.judged,
        unjudged=tuple(Unjudged(t, by_title.get(t, ""), tuple(m)) for t, m in found.unjudged),
        steps=len(steps),
        analysed_steps=len({step for points in series.values() for step, _ in points}),
        first_step=int(steps[0]) if len(steps) else None,
        last_step=int(steps[-1]) if len(steps) else None,
        compared_with=_compared_with(baseline),
        at=time(),
        cost_s=thread_time() - begun,
        wider=baseline.wider if baseline is not None else 1.0,
    )


def analysed_series(columns: Mapping[str, Column], kind: str) -> dict[str, list[Point]]:
    """The curves that a diagnosis of `kind` reads, thinned to about `MOST_STEPS` steps that they
    have in common: rules compare metrics of one step, so each curve may not be thinned for
    itself. Short curves (evaluations) keep every step, and so does a number that is none, in
    whichever curve it stands."""
    needed = set(needed_metrics(kind))
    distinct = _distinct_steps(columns)
    long = [steps for steps in distinct.values() if len(steps) > MOST_STEPS]
    short = [steps for steps in distinct.values() if len(steps) <= MOST_STEPS]
    kept = _union(short)
    if len(kept) > 2 * MOST_STEPS:
        kept = kept[:: -(-len(kept) // MOST_STEPS)]
    every = _union(long)
    kept = np.union1d(kept, every[:: -(-len(every) // MOST_STEPS)]) if len(every) else kept
    masks = {key: np.isin(steps, kept) for key, steps in distinct.items()}
    series = {}
    for name, one in columns.items():
        broken = ~np.isfinite(one.values)
        if one.undefined is not None:
            broken &= ~one.undefined
        chosen = broken if name not in needed else broken | masks[one.steps.tobytes()]
        if chosen.any():
            series[name] = one.kept(chosen).points()
    return series


def _distinct_steps(columns: Mapping[str, Column]) -> dict[bytes, np.ndarray]:
    """Most metrics of a run are measured at the same steps: what is to be known of steps is worked
    out once for all of them."""
    return {one.steps.tobytes(): one.steps for one in columns.values()}


def _union(steps: Collection[np.ndarray]) -> np.ndarray:
    """All of them, ascending, each once."""
    return np.unique(np.concatenate(list(steps))) if steps else np.zeros(0, dtype=np.int64)


def _baseline(run: Run) -> Baseline | None:
    """The healthy runs that the run took along, so that its record is judged as it was live; else
    those that there are now."""
    spec = run.attempts.order_by("-number").values_list("spec", flat=True).first() or {}
    taken = spec.get("baseline")
    return baseline_from_json(taken) if taken else baseline_of(run)


def _compared_with(baseline: Baseline | None) -> int:
    """How many healthy runs stand behind the comparison; 0 where they are too few for any."""
    if baseline is None:
        return 0
    usual = [
        found
        for name, buckets in baseline.means.items()
        for bucket in buckets
        if (found := baseline.at(name, bucket * WIDTH)) is not None
    ]
    return max((one.runs for one in usual), default=0)


# --- kept for a while ---


def _key(run: Run) -> str:
    return f"diagnosis:{_VERSION}:{run.pk}"


def _is_fresh(run: Run, kept: Mapping[str, Any]) -> bool:
    """A live run may be behind by a moment; one that has ended may not."""
    age = time() - kept.get("at", 0.0)
    return run.is_live and age < max(LIVE_S, PATIENCE * kept.get("cost_s", 0.0))


def _stored(found: Diagnosed, newest: str) -> dict[str, Any]:
    plain = {f.name: getattr(found, f.name) for f in fields(Diagnosed)}
    return plain | {
        "newest": newest,
        "findings": [one.to_json() for one in found.findings],
        "unjudged": [(one.title, one.stage, one.missing) for one in found.unjudged],
    }


def _restored(kept: Mapping[str, Any]) -> Diagnosed:
    plain = {name: value for name, value in kept.items() if name != "newest"}
    return Diagnosed(
        **plain
        | {
            "findings": tuple(finding_from_json(one) for one in kept["findings"]),
            "unjudged": tuple(
                Unjudged(t, stage, tuple(gone)) for t, stage, gone in kept["unjudged"]
            ),
            "judged": tuple(kept["judged"]),
        }
    )

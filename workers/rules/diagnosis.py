"""What broke first: the earliest start, and of several at once the outermost stage.

A problem further out explains those behind it: labels teach the reward model, which teaches the
policy, and so on inwards. So the finding that began first is the cause, what began later is listed
under it, and where two began together as far as can be told, the outer one goes first and the
other is an alternative that the next experiment must rule out. A symptom, which is what a guardrail
crossed that does not diagnose, is the cause only where nothing else names one.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from workers.contract.events import Evidence
from workers.rules.rule import CONTRACT, STAGES


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A problem that was found at `step` and that began at `start_step`.

    A contract is exact and never wrong by chance; a probe is a statistic on fixed prompts; a trend
    is the run's own course against its past. `value` and `expected` are in `unit`. The start may
    lie up to `slack` steps later than it says. `suspects` are stages further out that would show in
    the same way; `experiment` tells them apart. A `symptom` is what a guardrail crossed: it says
    that something is wrong, and not what. Since `cleared_step` the metric has lain well inside its
    limit again.
    """

    stage: str
    rule: str
    evidence_class: str
    step: int
    start_step: int
    title: str
    value: float | None = None
    expected: str = ""
    unit: str = ""
    detail: str = ""
    slack: int = 0
    symptom: bool = False
    samples: tuple[str, ...] = ()
    suspects: tuple[str, ...] = ()
    experiment: str = ""
    cleared_step: int | None = None

    @property
    def depth(self) -> int:
        """0 is the outermost stage."""
        return STAGES.index(self.stage)

    def to_event(self) -> Evidence:
        return Evidence(
            link=self.stage,
            rule=self.rule,
            evidence_class=self.evidence_class,
            step=self.step,
            value=self.value,
            expected=self.expected,
            unit=self.unit,
            detail=self.detail,
            onset=self.start_step,
            samples=list(self.samples),
            experiment=self.experiment,
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def finding_from_json(data: Mapping[str, Any]) -> Finding:
    return Finding(
        **{
            **data,
            "samples": tuple(data.get("samples", ())),
            "suspects": tuple(data.get("suspects", ())),
        }
    )


OK, FIRST, CONSEQUENCE, UNKNOWN = "ok", "first", "consequence", "unknown"


@dataclass(frozen=True, slots=True)
class StageState:
    """One stage of the chain: ok, first, consequence, or unknown where nothing was judged."""

    stage: str
    state: str
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """`alternatives` began together with `first`, as far as their start_steps can be told."""

    first: Finding
    alternatives: tuple[Finding, ...] = ()
    consequences: tuple[Finding, ...] = ()
    chain: tuple[StageState, ...] = field(default=())

    @property
    def stages(self) -> list[str]:
        """The stages that may have broken first, the likeliest first."""
        return list(dict.fromkeys([self.first.stage, *(one.stage for one in self.alternatives)]))


def verdict(findings: Sequence[Finding], *, judged: Sequence[str] = STAGES) -> Verdict | None:
    """None when nothing was found. `judged` are the stages that any rule could judge."""
    if not findings:
        return None
    causes = [one for one in findings if not one.symptom] or list(findings)
    together = _began_first(causes)
    # A contract never fires by chance: of those that began together it is the better witness of
    # its stage, and nothing statistical is put before it.
    certain = [one for one in together if one.evidence_class == CONTRACT]
    first = min(certain or together, key=_order)
    others = [one for one in together if one is not first]
    others += [one for one in findings if one.symptom and one.start_step < first.start_step]
    alternatives = _one_per_link([one for one in others if one.stage != first.stage])
    later = sorted(
        (one for one in findings if one is not first and one not in alternatives), key=_when
    )
    return Verdict(
        first, tuple(alternatives), tuple(later), _chain(first, findings, frozenset(judged))
    )


def _began_first(findings: Sequence[Finding]) -> list[Finding]:
    """Those that may have begun before all others."""
    latest = min(one.start_step + one.slack for one in findings)
    return [one for one in findings if one.start_step <= latest]


def _order(finding: Finding) -> tuple[int, int, int]:
    return finding.depth, finding.start_step, finding.step


def _when(finding: Finding) -> tuple[int, int, int]:
    return finding.start_step, finding.depth, finding.step


def _one_per_link(findings: Sequence[Finding]) -> list[Finding]:
    found: dict[str, Finding] = {}
    for one in sorted(findings, key=_order):
        found.setdefault(one.stage, one)
    return list(found.values())


def _chain(
    first: Finding, findings: Sequence[Finding], judged: frozenset[str]
) -> tuple[StageState, ...]:
    states = []
    for stage in STAGES:
        own = tuple(sorted((one for one in findings if one.stage == stage), key=_when))
        if stage == first.stage:
            states.append(StageState(stage, FIRST, own))
        elif own:
            states.append(StageState(stage, CONSEQUENCE, own))
        else:
            states.append(StageState(stage, OK if stage in judged else UNKNOWN))
    return tuple(states)


# Contracts that end a run: by the stable code of its failure, which stage they stand for.

# failure kind -> (stage, title, what must hold, experiment)
CONTRACTS: dict[str, tuple[str, str, str, str]] = {
    "contract_mask": (
        "policy",
        "The loss covers tokens that are no answer",
        "as many tokens under the mask as the answer has",
        "minimal",
    ),
    "contract_score_position": (
        "policy",
        "The score does not lie on the answer's last token",
        "the score on the last real token, nothing elsewhere",
        "minimal",
    ),
    "contract_done": (
        "policy",
        "An answer does not end its episode",
        "no value beyond the last token",
        "minimal",
    ),
    "contract_kl_at_start": (
        "policy",
        "The reference is not the model the policy began as",
        "no divergence before the first update",
        "kl_reference",
    ),
    "contract_reference_aliased": (
        "policy",
        "The reference is the policy itself",
        "two models with memory of their own",
        "kl_reference",
    ),
    "contract_reference_trains": (
        "policy",
        "The reference is being trained",
        "a frozen reference",
        "kl_reference",
    ),
    "contract_reference_changed": (
        "policy",
        "The reference's weights have changed",
        "the hash it was loaded with",
        "kl_reference",
    ),
    "contract_first_ratio": (
        "freshness",
        "The answers were drawn by another policy than the one that learns",
        "a ratio of 1 before the first step of an update",
        "sampler",
    ),
    "contract_stale_rollout": (
        "freshness",
        "The answers are of an older policy",
        "the present policy's answers",
        "sampler",
    ),
    "contract_sampler": (
        "freshness",
        "Answers come from another distribution than the one that learns",
        "surprise equal to entropy within four standard errors",
        "sampler",
    ),
    "non_finite": (
        "numerics",
        "NaN or infinity",
        "finite losses, gradients and rewards",
        "minimal",
    ),
}


def finding_of_failure(step: int, kind: str, message: str) -> Finding | None:
    """The finding behind a failed run; None for a failure that says nothing about the loop.

    A run that a guardrail stopped has said why before, by its evidence.
    """
    known = CONTRACTS.get(kind)
    if known is None:
        return None
    stage, title, expected, experiment = known
    return Finding(
        stage=stage,
        rule=kind,
        evidence_class=CONTRACT,
        step=step,
        start_step=step,
        title=title,
        expected=expected,
        detail=message,
        experiment=experiment,
    )


# What healthy runs looked like at the same step. Learning itself moves every metric, so a run is
# compared with others at its own age, and the run is the unit: two checks of one run are not two
# witnesses, however many checks there are.

WIDTH = 5  # steps that are averaged before they are compared
LEAST_RUNS = 4
LEAST_CHECKS = 200  # of one metric over all runs, before anything is concluded from them

Series = Mapping[str, Sequence[tuple[int, Any]]]


@dataclass(frozen=True, slots=True)
class Usual:
    """Mean over runs of a metric's average around a step, and its deviation between runs. Limits
    are to be `wider` times as wide, where those runs had other inputs."""

    mean: float
    deviation: float
    runs: int
    wider: float = 1.0

    def z(self, value: float, least: float = 0.0) -> float:
        """How far out a further run lies, as a standard normal deviate: t of the prediction error
        s√(1 + 1/R) with R − 1 degrees of freedom, so that few runs say little. `least` is the
        smallest deviation that is believed.

        The deviate is Wallace's approximation (1959), within 0.03 for 3 degrees or more."""
        spread = max(self.deviation, least) * math.sqrt(1 + 1 / self.runs)
        gap = value - self.mean
        if spread <= 0:
            return math.copysign(math.inf, gap) if gap else 0.0
        df, t = self.runs - 1, gap / spread
        size = (8 * df + 1) / (8 * df + 3) * math.sqrt(df * math.log1p(t * t / df))
        return math.copysign(size, t)


@dataclass(frozen=True)
class Baseline:
    """Means per run in buckets of `WIDTH` steps: {metric: {bucket: [mean of each run]}}. `wider`
    than 1 where those runs had other inputs of the same sizes."""

    means: Mapping[str, Mapping[int, Sequence[float]]] = field(default_factory=dict)
    checks: Mapping[str, int] = field(default_factory=dict)
    wider: float = 1.0

    @classmethod
    def of(cls, runs: Iterable[Series], *, wider: float = 1.0) -> "Baseline":
        means: dict[str, dict[int, list[float]]] = {}
        checks: dict[str, int] = {}
        for series in runs:
            for name, points in series.items():
                buckets: dict[int, list[float]] = {}
                for step, value in points:
                    if _is_number(value):
                        buckets.setdefault(step // WIDTH, []).append(float(value))
                        checks[name] = checks.get(name, 0) + 1
                for bucket, values in buckets.items():
                    mean = math.fsum(values) / len(values)
                    means.setdefault(name, {}).setdefault(bucket, []).append(mean)
        return cls(means, checks, wider)

    def at(self, metric: str, step: int) -> Usual | None:
        """None where too few healthy runs came this far, or said too little."""
        values = self.means.get(metric, {}).get(step // WIDTH, ())
        if len(values) < LEAST_RUNS or self.checks.get(metric, 0) < LEAST_CHECKS:
            return None
        mean = math.fsum(values) / len(values)
        variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
        return Usual(mean, math.sqrt(variance), len(values), self.wider)

    def to_json(self) -> dict[str, Any]:
        return {
            "wider": self.wider,
            "looks": dict(self.checks),
            "means": {
                name: {str(bucket): list(values) for bucket, values in buckets.items()}
                for name, buckets in self.means.items()
            },
        }


def baseline_from_json(data: Mapping[str, Any]) -> Baseline:
    return Baseline(
        {
            name: {int(bucket): list(values) for bucket, values in buckets.items()}
            for name, buckets in data.get("means", {}).items()
        },
        dict(data.get("looks", {})),
        float(data.get("wider", 1.0)),
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)

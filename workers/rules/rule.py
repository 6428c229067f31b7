"""What a rule is: metrics, a test of them, how often it must hold, and what happens then."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

OFF, WARN, ADJUST, STOP = "off", "warn", "adjust", "stop"
ACTIONS = (OFF, WARN, ADJUST, STOP)
CONTRACT, PROBE, TREND = "contract", "probe", "trend"
CLASSES = (CONTRACT, PROBE, TREND)

# From the outside in: a problem of an outer stage explains those of the stages behind it.
STAGES = (
    "data",
    "evaluation",
    "reward",
    "policy",
    "critic",
    "exploration",
    "freshness",
    "numerics",
    "resources",
)


@dataclass(frozen=True, slots=True)
class Adjustment:
    """One setting that `adjust` changes: value × times + plus, kept between least and most."""

    setting: str
    times: float = 1.0
    plus: float = 0.0
    least: float | None = None
    most: float | None = None

    def apply(self, value: float) -> float:
        """The new value; a whole number stays one where the result is whole. A value that is
        already past a bound is left where it is."""
        changed = value * self.times + self.plus
        if self.least is not None:
            changed = max(changed, min(self.least, value))
        if self.most is not None:
            changed = min(changed, max(self.most, value))
        return int(changed) if isinstance(value, int) and changed == int(changed) else changed

    @property
    def words(self) -> str:
        done = f"× {self.times:g}" if self.times != 1.0 else ""
        if self.plus:
            done = f"{done} {'+' if self.plus > 0 else '−'} {abs(self.plus):g}".strip()
        bounds = [f"at least {self.least:g}"] if self.least is not None else []
        bounds += [f"at most {self.most:g}"] if self.most is not None else []
        return f"{self.setting} {done}" + (f" ({', '.join(bounds)})" if bounds else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One way of seeing one problem, of the runs of `kinds`.

    `metrics` are what it needs at a check; without one of them there is no check. `test` (a name of
    `workers.rules.tests.TESTS`) judges them, by `limit` on the side `bound` in `unit`, and by
    `given`, the test's other parameters. It fires when k of its last n checks were beyond the limit
    (`patience`), not before `grace` checks have passed.

    With `actions` it is a guardrail: those an engineer may choose, `action` the one without a
    choice. With `diagnoses` it says which stage broke; a guardrail without it tells a symptom only.
    `slack`: its start may lie so many steps later than it says. `suspects` are outer stages that
    would show alike; `experiment` tells them apart. `of_models` rules judge reward models only, not
    rules and verifiers. `page` is the playbook's page, `formerly` are names of old runs.
    `severity` is of a warning; a stop is always critical.
    """

    name: str
    title: str
    kinds: tuple[str, ...]
    stage: str
    metrics: tuple[str, ...]
    unit: str
    page: str
    test: str = "level"
    bound: str = ""  # above | below; empty where the test has no single limit
    limit: float = 0.0
    given: Mapping[str, Any] = field(default_factory=dict)
    patience: tuple[int, int] = (1, 1)
    grace: int = 0
    slack: int = 0
    severity: str = "warning"  # info | warning | critical
    actions: tuple[str, ...] = ()
    action: str = ""
    adjustment: tuple[Adjustment, ...] = ()
    evidence_class: str = TREND
    diagnoses: bool = False
    of_models: bool = False
    suspects: tuple[str, ...] = ()
    experiment: str = ""
    source: str = ""
    formerly: tuple[str, ...] = ()

    @property
    def metric(self) -> str:
        """What it reads first; empty for one that reads the diagnosis."""
        return self.metrics[0] if self.metrics else ""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.formerly)

    @property
    def has_limit(self) -> bool:
        """Whether there is a limit that could be chosen, and not only an action."""
        return self.test not in ("finite", "diagnosed")

    @property
    def adjustment_words(self) -> str:
        return ", ".join(change.words for change in self.adjustment)

    @property
    def patience_words(self) -> str:
        k, n = self.patience
        if n == 1:
            return "at once"
        return f"{k} checks in a row" if k == n else f"{k} of {n} checks"


# What a test says of a rule.

MARGIN = 0.2  # a rule clears a fifth of the limit inside it


@dataclass(frozen=True, slots=True)
class Reading:
    """`value` against `limit`, in the rule's unit. `clear`: so far inside that an alert may end;
    `start_step` where the test knows better than the engine when it began."""

    value: float
    limit: float
    crossed: bool
    clear: bool
    expected: str
    detail: str = ""
    start_step: int | None = None


def number(value: Any) -> str:
    """A number in words: three digits, as pages print them."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def against(rule: Rule, value: float, limit: float | None = None, **beside: float) -> Reading:
    """`value` on the rule's side of `limit` (its own unless told); `beside` is what else a reader
    should know."""
    limit = rule.limit if limit is None else limit
    above, margin = rule.bound == "above", MARGIN * abs(limit)
    crossed = value > limit if above else value < limit
    clear = not crossed and (value <= limit - margin if above else value >= limit + margin)
    detail = ", ".join(f"{name.replace('_', ' ')} {number(v)}" for name, v in beside.items())
    expected = f"at {'most' if above else 'least'} {number(limit)}"
    return Reading(value, limit, crossed, clear, expected, detail)


def exact(value: float, expected: str, crossed: bool, **more: Any) -> Reading:
    """Of a test without a limit: either it holds or not."""
    return Reading(value, math.nan, crossed, not crossed, expected, **more)


# The parts of a rule that belong together, for the rows of the table.

PPO, ROLLOUTS = ("ppo",), ("ppo", "grpo")
HELD_ON_ROWS = ("dpo", "kto")  # on fixed rows, held to a reference
POLICIES, TRAINERS = (*ROLLOUTS, *HELD_ON_ROWS), ("sft", "reward", "process_reward", *HELD_ON_ROWS)
ALL = (*TRAINERS, *ROLLOUTS)

SLOWER = Adjustment("learning_rate", times=0.5)
KL_UP = Adjustment("kl_coef", times=1.5, most=1.0)
FEWER_EPOCHS = Adjustment("update_epochs", plus=-1, least=1)
MORE_ENTROPY = Adjustment("entropy_coef", plus=0.005, most=0.05)

Part = dict[str, Any]


def of(stage: str, kinds: tuple[str, ...]) -> Part:
    return {"stage": stage, "kinds": kinds}


def over(limit: float, unit: str, *metrics: str, test: str = "level", **given: Any) -> Part:
    return judged(test, unit, *metrics, **given) | {"bound": "above", "limit": limit}


def under(limit: float, unit: str, *metrics: str, test: str = "level", **given: Any) -> Part:
    return judged(test, unit, *metrics, **given) | {"bound": "below", "limit": limit}


def judged(test: str, unit: str, *metrics: str, **given: Any) -> Part:
    return {"test": test, "unit": unit, "metrics": metrics, "given": given}


def unlike_healthy_runs(metric: str, bound: str, unit: str, **given: Any) -> Part:
    """z past 3.5 against healthy runs at the same step; on either side without a `bound`."""
    return judged("unusual", unit, metric, z=3.5, **given) | {"bound": bound, "patience": (3, 5)}


def warns(*adjustment: Adjustment, action: str = WARN) -> Part:
    """A guardrail: it warns unless something else is chosen."""
    actions = (OFF, WARN, ADJUST, STOP) if adjustment else (OFF, WARN, STOP)
    return {"actions": actions, "action": action, "adjustment": adjustment}


def stops() -> Part:
    """An exact invariant without which nothing may be learned: nobody can choose otherwise."""
    exact = {"evidence_class": CONTRACT, "severity": "critical"}
    return {"actions": (STOP,), "action": STOP} | exact


def explains(experiment: str, evidence_class: str = TREND) -> Part:
    """Names the stage that broke, and acts in no way."""
    severity = "critical" if evidence_class == CONTRACT else "warning"
    return {
        "diagnoses": True,
        "experiment": experiment,
        "evidence_class": evidence_class,
        "severity": severity,
    }

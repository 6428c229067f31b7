"""What a rule is: metrics, a test of them, how often it must hold, and what happens then."""

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

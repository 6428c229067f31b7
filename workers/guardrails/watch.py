"""Watches a run's metrics against the rule table: one problem is one alert, not a hundred.

    guards = Guardrails("ppo", settings.guards, per_check=settings.batch_size)
    violations = guards.check(step, metrics)
    report(context, violations)

A rule alarms when k of its last n checks crossed the bound. It then stays raised, silently, until
ten checks in a row lay well inside, and a new alarm waits until twenty checks have passed since the
last. A rule that adjusts does so again after ten checks if the problem stays, three times at most.
None is a figure that was not measured, which is no check; NaN or infinity is a finding of its own.
"""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workers.context import RunContext
from workers.contract.events import Alert, Evidence, Fault, RecipeError
from workers.contract.guards import RULES, Adjustment, GuardRule, failure_kind, rules_of
from workers.guardrails.readings import Memory, Reading, read

# A guardrail that was crossed, and how a run tells of it.

SKIP = "skip"  # the action of a step whose loss or gradient was no number, the first time


@dataclass(frozen=True, slots=True)
class Violation:
    """`value` and `threshold` are in the rule's unit; `evidence` holds the metrics behind them."""

    rule: GuardRule
    action: str  # warn | adjust | stop | skip
    step: int
    value: float
    threshold: float
    message: str
    evidence: dict[str, Any] = field(default_factory=dict)
    is_known: bool = False  # whether the diagnosis has said it: then it is no new evidence

    @property
    def adjustment(self) -> tuple[Adjustment, ...]:
        """What to change now: nothing unless the action is adjust."""
        return self.rule.adjustment if self.action == "adjust" else ()

    @property
    def severity(self) -> str:
        return "critical" if self.action == "stop" else self.rule.severity


class GuardStop(Exception):
    """A guardrail stops the run; whoever catches it keeps the state as a failed checkpoint."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(violation.message)
        self.violation = violation


def stop_error(violation: Violation) -> RecipeError:
    """The failure of a run that this violation stopped."""
    return RecipeError(failure_kind(violation.rule.name), Fault.GUARD, violation.message)


def first_stop(violations: Sequence[Violation]) -> Violation | None:
    """The violation that ends the run: of several, the one outermost in the diagnosis."""
    return next((violation for violation in violations if violation.action == "stop"), None)


def report(context: RunContext, violations: Sequence[Violation]) -> None:
    """An alert for people and, where it is new, a piece of evidence, of each violation."""
    for violation in violations:
        rule = violation.rule
        context.emit(
            Alert(
                rule=rule.name,
                severity=violation.severity,
                step=violation.step,
                message=violation.message,
                value=_finite(violation.value),
                threshold=_finite(violation.threshold),
            )
        )
        if violation.is_known:
            continue
        side = "at most" if rule.bound == "above" else "at least"
        context.emit(
            Evidence(
                link=rule.link,
                rule=rule.name,
                evidence_class=rule.evidence_class,
                step=violation.step,
                value=_finite(violation.value),
                expected=f"{side} {number(violation.threshold)}",
                unit=rule.unit,
                detail=", ".join(f"{name} {number(v)}" for name, v in violation.evidence.items()),
            )
        )


def number(value: Any) -> str:
    """A figure in words: three digits, as pages print them."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def with_unit(value: float, unit: str) -> str:
    """A figure with its unit; a unit that describes rather than measures stands in brackets."""
    measures = unit.startswith(("×", "nats", "standard errors", "minibatches", "policy versions"))
    return f"{number(value)} {unit}" if measures else f"{number(value)} ({unit})"


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


# A loss or gradient that is no number: the first step is skipped, then the run stops.

WINDOW = 50  # steps within which so many skips are too many
MOST = 2
RULE: GuardRule = next(rule for rule in RULES if rule.name == "non_finite")


class FiniteGuard:
    """Decides between skipping and stopping, and remembers.

    Skipping means that the step leaves the weights and the optimizer's moments as they were: the
    caller drops the gradients (`zero_grad(set_to_none=True)`) and takes no optimizer step. A zero
    gradient would not do, for AdamW moves on by momentum.
    """

    def __init__(self) -> None:
        self.steps: list[int] = []  # those skipped, of the last WINDOW

    def skip_or_stop(
        self,
        step: int,
        what: str,
        *,
        skipped: bool = True,
        again: bool = False,
        value: float = math.nan,
    ) -> Violation:
        """The violation of `what` ("the loss") at `step`; its action is `skip` or `stop`.

        It stops when the step before was bad too, or this one a second time, or when two of the
        last fifty were. `skipped` says whether the step itself is dropped: a figure that is only
        looked at is not. `again`: the caller knows that it is the second time in a row.
        """
        recent = [s for s in self.steps if step - s <= WINDOW]
        again = again or (bool(recent) and step - recent[-1] <= 1)
        stop = again or len(recent) >= MOST
        self.steps = [*recent, step]
        found = f"{what} is not finite at step {step}"
        if not stop:
            done = (
                "The step was skipped: weights and moments are those before it. The run continues."
                if skipped
                else "The run continues."
            )
        else:
            why = "for the second time in a row" if again else f"{len(self.steps)} times of late"
            found = f"{found}, {why}"
            done = "The run was stopped; the checkpoint tagged failed holds the weights."
        return Violation(
            rule=RULE,
            action="stop" if stop else SKIP,
            step=step,
            value=value,
            threshold=RULE.threshold,
            message=f"{found[0].upper()}{found[1:]}. {done} {RULE.advice}",
            evidence={"found": what, "steps": ", ".join(map(str, self.steps))},
        )

    def told_since(self, step: int) -> bool:
        """Whether a step from `step` on was already reported."""
        return bool(self.steps) and self.steps[-1] >= step

    def state(self) -> dict[str, Any]:
        return {"steps": list(self.steps)}

    def restore(self, state: dict[str, Any]) -> None:
        self.steps = [int(step) for step in state["steps"]]


__all__ = ["GuardStop", "Guardrails", "Violation", "first_stop", "report", "stop_error"]

CLEAR_AFTER = 10  # checks well inside that end an alert
COOLDOWN = 20  # checks between two alerts of a rule
ADJUST_AGAIN = 10  # checks after which a problem that stays is adjusted again
MOST_ADJUSTMENTS = 3  # per problem


class Guardrails:
    """The guardrails of one run. `finite` decides about steps that give no numbers."""

    def __init__(
        self, kind: str, overrides: Mapping[str, Any] | None = None, *, per_check: int = 64
    ) -> None:
        """`per_check` is the number of answers behind the metrics of one check: rules that pool
        answers look back over 1,000 of them and judge nothing before 100."""
        self.rules = [rule for rule in rules_of(kind, overrides) if rule.has_limit]
        self.per_check = per_check
        self.finite = FiniteGuard()
        self._memory: dict[str, Memory] = {}
        self._last_step = 0
        self._broken_evaluations = 0

    def check(self, step: int, metrics: Mapping[str, float | None]) -> list[Violation]:
        """Judge the metrics of a step; what newly alarms, outermost link first."""
        known = {name: float(v) for name, v in metrics.items() if v is not None}
        violations = self._non_finite(step, known)
        numbers = {name: value for name, value in known.items() if math.isfinite(value)}
        for rule in self.rules:
            if rule.action != "off":
                memory = self._memory.setdefault(rule.name, {})
                reading = read(rule, memory, numbers, per_check=self.per_check)
                if reading is not None and self._alarms(rule, memory, reading):
                    violations.append(_violation(rule, memory, step, reading))
        self._last_step = step
        return violations

    def is_raised(self, link: str, metric: str) -> bool:
        """Whether a rule of this link that reads `metric` has alarmed and not cleared since. One
        that only informs is no alarm."""
        if metric == RULE.metric:
            return self.finite.told_since(self._last_step)
        return any(
            self._memory.get(rule.name, {}).get("raised", False)
            for rule in self.rules
            if (rule.link, rule.metric) == (link, metric) and rule.severity != "info"
        )

    def state(self) -> dict[str, Any]:
        """Plain JSON; `restore` of it in a new object continues exactly here."""
        return copy.deepcopy(
            {
                "memory": self._memory,
                "finite": self.finite.state(),
                "last_step": self._last_step,
                "broken_evaluations": self._broken_evaluations,
            }
        )

    def restore(self, state: Mapping[str, Any]) -> None:
        state = copy.deepcopy(dict(state))
        self._memory = state["memory"]
        self.finite.restore(state["finite"])
        self._last_step = state["last_step"]
        self._broken_evaluations = state["broken_evaluations"]

    def _non_finite(self, step: int, metrics: Mapping[str, float]) -> list[Violation]:
        """A watched figure that is no number, unless its step was reported when it was skipped.

        An evaluation that is no number a second time in a row stops the run: nothing can be
        chosen by it any more.
        """
        watched = {name for rule in self.rules for name in (rule.metric, *rule.beside)}
        bad = sorted(n for n in watched if n in metrics and not math.isfinite(metrics[n]))
        evaluations = [name for name in bad if name.startswith("eval/")]
        if evaluations:
            self._broken_evaluations += 1
            again = self._broken_evaluations > 1
            return [self._not_a_number(step, evaluations[0], metrics, again=again)]
        if any(name.startswith("eval/") and name in watched for name in metrics):
            self._broken_evaluations = 0
        if not bad or self.finite.told_since(self._last_step + 1):
            return []
        return [self._not_a_number(step, bad[0], metrics)]

    def _not_a_number(
        self, step: int, name: str, metrics: Mapping[str, float], *, again: bool = False
    ) -> Violation:
        return self.finite.skip_or_stop(
            step, f"the figure {name}", skipped=False, again=again, value=metrics[name]
        )

    def _alarms(self, rule: GuardRule, memory: Memory, reading: Reading) -> bool:
        """Whether this check raises the rule; keeps count of checks, alerts and calm."""
        k, n = rule.patience
        recent: list[int] = memory.setdefault("recent_looks", [])
        recent.append(int(reading.crossed))
        del recent[:-n]
        now = memory["looks"]
        since = now - memory.get("alerted_at", -COOLDOWN)
        if memory.get("raised"):
            memory["calm"] = memory["calm"] + 1 if reading.clear else 0
            if memory["calm"] >= CLEAR_AFTER:
                memory["raised"] = False
            again = rule.action == "adjust" and memory["alerts"] < MOST_ADJUSTMENTS
            if not (again and sum(recent) >= k and since >= ADJUST_AGAIN):
                return False
            memory["alerts"] += 1
        else:
            if sum(recent) < k or since < COOLDOWN:
                return False
            memory.update(raised=True, calm=0, alerts=1)
        memory["alerted_at"] = now
        memory.pop("trend", None)  # what is off the trend now begins a new one
        return True


def _violation(rule: GuardRule, memory: Memory, step: int, reading: Reading) -> Violation:
    side = "over" if rule.bound == "above" else "under"
    how_often = f" ({rule.patience_words})" if rule.patience[1] > 1 else ""
    done = {
        "warn": "The run continues.",
        "adjust": f"Changed: {rule.adjustment_words}.",
        "stop": "The run was stopped; its state is kept as the checkpoint tagged failed.",
    }[rule.action]
    return Violation(
        rule=rule,
        action=rule.action,
        step=step,
        value=reading.value,
        threshold=reading.limit,
        message=f"{rule.title}: {rule.metric} at {with_unit(reading.value, rule.unit)}, {side} "
        f"{number(reading.limit)}{how_often}. {done} {rule.advice}",
        evidence=reading.evidence,
    )

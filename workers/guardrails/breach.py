"""A guardrail that was crossed, and how a run tells of it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from workers.context import (
    RunContext,
)
from workers.contract.events import (
    Alert,
    Evidence,
    Fault,
    RecipeError,
)
from workers.contract.guards import Adjustment, GuardRule, failure_kind

SKIP = "skip"  # the action of a step whose loss or gradient was no number, the first time


@dataclass(frozen=True, slots=True)
class Breach:
    """`value` and `threshold` are in the rule's unit; `evidence` holds the figures behind them."""

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

    def __init__(self, breach: Breach) -> None:
        super().__init__(breach.message)
        self.breach = breach


def stop_error(breach: Breach) -> RecipeError:
    """The failure of a run that this breach stopped."""
    return RecipeError(failure_kind(breach.rule.name), Fault.GUARD, breach.message)


def first_stop(breaches: Sequence[Breach]) -> Breach | None:
    """The breach that ends the run: of several, the one outermost in the diagnosis."""
    return next((breach for breach in breaches if breach.action == "stop"), None)


def report(context: RunContext, breaches: Sequence[Breach]) -> None:
    """An alert for people and, where it is new, a piece of evidence, of each breach."""
    for breach in breaches:
        rule = breach.rule
        context.emit(
            Alert(
                rule=rule.name,
                severity=breach.severity,
                step=breach.step,
                message=breach.message,
                value=_finite(breach.value),
                threshold=_finite(breach.threshold),
            )
        )
        if breach.is_known:
            continue
        side = "at most" if rule.bound == "above" else "at least"
        context.emit(
            Evidence(
                link=rule.link,
                rule=rule.name,
                evidence_class=rule.evidence_class,
                step=breach.step,
                value=_finite(breach.value),
                expected=f"{side} {number(breach.threshold)}",
                unit=rule.unit,
                detail=", ".join(f"{name} {number(v)}" for name, v in breach.evidence.items()),
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

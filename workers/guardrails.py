"""What the rules say of a run while it trains, as its events; and how a rule ends it."""

import math
from collections.abc import Iterable
from typing import Any

from workers.context import RunContext
from workers.contract.events import Alert, Fault, RecipeError
from workers.contract.jobs import JobSpec
from workers.rules.choices import failure_kind
from workers.rules.diagnosis import baseline_from_json
from workers.rules.engine import Engine, Violation
from workers.rules.rule import OFF

CUT_ANSWERS = "cut_answers"  # while this rule stands, no checkpoint is called best


def live_engine(spec: JobSpec, settings: Any) -> Engine:
    """The rules of this run as its settings choose them, with the healthy runs that it is compared
    with."""
    chosen = {name: getattr(settings, name, None) for name in ("guards", "reward")}
    healthy = baseline_from_json(spec.baseline) if spec.baseline else None
    return Engine(spec.kind, chosen, baseline=healthy, per_check=settings.batch_size)


def stop_error(violation: Violation) -> RecipeError:
    """The failure of a run that this violation stopped."""
    return RecipeError(failure_kind(violation.rule.name), Fault.GUARD, violation.message)


def report(context: RunContext, violations: Iterable[Violation]) -> None:
    """An alert for people and, where it is new, a piece of evidence, of each violation. A rule that
    is off tells nobody, and still explains."""
    for violation in violations:
        is_said = violation.repeats and not violation.rule.actions
        if violation.action != OFF and not violation.is_quiet and not is_said:
            context.emit(_alert(violation))
        if not violation.repeats:
            context.emit(violation.finding.to_event())


def _alert(violation: Violation) -> Alert:
    return Alert(
        rule=violation.rule.name,
        severity=violation.severity,
        step=violation.step,
        message=violation.message,
        value=_finite(violation.value),
        threshold=_finite(violation.limit) if violation.rule.actions else None,
    )


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None

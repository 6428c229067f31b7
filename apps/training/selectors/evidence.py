"""What detectors found in a run, and which answers people must see: events that have no table."""

from dataclasses import dataclass
from math import inf
from typing import Any

from apps.training.models import Alert, Run, RunEvent
from apps.training.selectors.checkpoints import attempt_ends


@dataclass(frozen=True, slots=True)
class Found:
    """A finding of a detector: `onset` is when the trouble began, `step` when it was found."""

    rule: str
    link: str
    step: int
    onset: int
    value: float | None
    expected: str
    unit: str
    detail: str


@dataclass(frozen=True, slots=True)
class Review:
    """An answer that a person must see, and why."""

    step: int
    prompt: list[dict[str, Any]]
    response: str
    reason: str


def findings(run: Run) -> list[Found]:
    """By step; of steps that count (see `attempt_ends`)."""
    found = []
    for body in _bodies(run, "Evidence"):
        step, onset = body["step"], body.get("onset")
        value = body.get("value")
        found.append(
            Found(
                rule=str(body.get("rule", "")),
                link=str(body.get("link", "")),
                step=step,
                onset=min(onset, step) if isinstance(onset, int) else step,
                value=value if isinstance(value, int | float) else None,
                expected=str(body.get("expected") or ""),
                unit=str(body.get("unit") or ""),
                detail=str(body.get("detail") or ""),
            )
        )
    return sorted(found, key=lambda one: (one.step, one.onset))


def reviews(run: Run) -> list[Review]:
    """Latest step first; of steps that count."""
    found = [
        Review(
            step=body["step"],
            prompt=[turn for turn in body.get("prompt") or [] if isinstance(turn, dict)],
            response=str(body.get("response", "")),
            reason=str(body.get("reason", "")),
        )
        for body in _bodies(run, "ReviewRequested")
    ]
    return sorted(found, key=lambda one: -one.step)


def alerts_that_count(run: Run) -> list[Alert]:
    """By step; without those of a past that a resumed attempt undid."""
    ends = attempt_ends(run)
    rows = Alert.objects.filter(run=run).order_by("step", "pk")
    return [row for row in rows if row.step <= ends.get(row.attempt, inf)]


def _bodies(run: Run, type_: str) -> list[dict[str, Any]]:
    ends = attempt_ends(run)
    rows = RunEvent.objects.filter(run=run, type=type_).order_by("attempt", "seq")
    return [
        body
        for attempt, body in rows.values_list("attempt", "body")
        if isinstance(body.get("step"), int) and body["step"] <= ends.get(attempt, inf)
    ]

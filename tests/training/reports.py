"""What a trainer reports, written by hand: batches as a supervisor sends them."""

from dataclasses import replace
from typing import Any

from apps.training.models import Run
from apps.training.services import Applied, events_apply
from workers.contract import CheckpointSaved, Envelope, Event, Metrics, envelope_to_json
from workers.contract.wire import VERSION

AT = 1_795_000_000.0  # Unix seconds


def batch(run: Run, *events: Event, first: int = 1, attempt: int = 1) -> dict[str, Any]:
    """Files at `runs/x`, as `saved` names them, lie in the folder of this run."""
    return {
        "version": VERSION,
        "run": run.pk,
        "attempt": attempt,
        "events": [
            envelope_to_json(Envelope(run.pk, attempt, seq, AT + seq, _at_home(event, run)))
            for seq, event in enumerate(events, first)
        ],
    }


def _at_home(event: Event, run: Run) -> Event:
    uri = getattr(event, "uri", "")
    if not uri.startswith("runs/x/"):
        return event
    return replace(event, uri=f"runs/{run.pk}/{uri.removeprefix('runs/x/')}")


def report(run: Run, *events: Event, first: int = 1, attempt: int = 1) -> Applied:
    """Apply `events`, numbered from `first`, and look at the run again."""
    applied = events_apply(batch=batch(run, *events, first=first, attempt=attempt))
    run.refresh_from_db()
    return applied


def measured(first: int, last: int, name: str = "loss") -> Metrics:
    """One point a step; the value is the step, so a point tells where it comes from."""
    steps = list(range(first, last + 1))
    return Metrics(steps=steps, values={name: [float(step) for step in steps]})


def saved(step: int, *tags: str, **changes: Any) -> CheckpointSaved:
    event = CheckpointSaved(
        step=step,
        uri=f"runs/x/attempt-1/checkpoints/step-{step}",
        sha256=f"{step:064d}",
        size_bytes=10,
        tags=list(tags),
        metrics={"loss": 1 / (1 + step)},
    )
    return replace(event, **changes)

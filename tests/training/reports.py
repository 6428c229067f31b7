"""What a trainer reports, written by hand: batches as a supervisor sends them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from apps.training import selectors, services
from apps.training.models import MetricBlock, Run, RunAttempt
from apps.training.services import Applied, events_apply
from tests.training.stack import wait_until, witnessed
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


# A drill that is disturbed on its way, and what it must show at its end all the same.


STEPS = 40
PLAN = {"steps": STEPS, "step_seconds": 0.01, "checkpoint_every": 5, "hold_after": 12}


def undisturbed(seed: int = 3, steps: int = STEPS) -> list[float]:
    """The drill's metric as a run without any problem shows it, by another route than the run."""
    state, values = seed, []
    for step in range(1, steps + 1):
        state = (state * 6364136223846793005 + 1442695040888963407 + step) % 2**64
        values.append(state / (2**64 - 1))
    return values


def finish(run: Run) -> Run:
    """Let the sweep do its work, as the scheduler would, until the run has ended."""
    wait_until(
        lambda: Run.objects.filter(pk=run.pk, state__in=Run.ENDED_STATES).exists(),
        meanwhile=services.runs_sweep,
        seconds=120,
        what="the end of the run",
    )
    return Run.objects.get(pk=run.pk)


def assert_whole(run: Run, witness: Path, *, resumed_from: list[int]) -> None:
    """Finished, with one attempt more than times resumed; no step missing or twice, each value as
    if undisturbed; and by the trainers' own lock no two of them ever lived at once."""
    assert run.state == "finished", (run.failure_kind, run.failure_message)
    points = selectors.metric_series(run=run)["drill/value"]
    assert [step for step, _ in points] == list(range(1, STEPS + 1))
    assert [value for _, value in points] == pytest.approx(undisturbed())
    attempts = RunAttempt.objects.filter(run=run)
    assert [a.resumed_from_step for a in attempts] == [None, *resumed_from]
    assert run.attempt == len(attempts)
    records = witnessed(witness)
    assert [r["what"] for r in records if r["what"] != "end"] == ["start"] * len(attempts)
    assert len({r["pid"] for r in records}) == len(attempts)


def points_said(envelopes: Sequence[Mapping[str, Any]]) -> int:
    """Points of all curves in the events of an attempt, those of the machine included."""
    measured = [e["event"] for e in envelopes if e["type"] == "Metrics"]
    return sum(len(event["steps"]) * len(event["values"]) for event in measured)


def points_stored(run: Run, **of: int) -> int:
    blocks = MetricBlock.objects.filter(run=run, **of)
    return sum(blocks.values_list("points", flat=True))

"""A drill that is disturbed on its way, and what it must show at its end all the same."""

from pathlib import Path

import pytest

from apps.training import selectors, services
from apps.training.models import Run, RunAttempt
from tests.training.stack import wait_until, witnessed

STEPS = 40
PLAN = {"steps": STEPS, "step_seconds": 0.01, "checkpoint_every": 5, "hold_after": 12}


def undisturbed(seed: int = 3) -> list[float]:
    """The drill's metric as a run without any trouble shows it, by another route than the run."""
    state, values = seed, []
    for step in range(1, STEPS + 1):
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

"""The benchmark of metric points measures the real path, and both layouts show the same curves."""

from pathlib import Path
from typing import Any

import pytest

from apps.accounts.models import Project
from apps.training import dispatch, selectors, services
from apps.training.models import MetricBlock, Run, RunEvent
from benchmarks.events_world import before
from benchmarks.events_world.trainers import Trainer, curves, names
from tests.web.world import run_make

STEPS, METRICS = 12, 5


class Wire:
    """Straight to the web side, and its acknowledgements back."""

    def __init__(self) -> None:
        self.acks: dict[str, int] = {}
        self.batches = 0

    def send(self, batch: dict[str, Any]) -> bool:
        self.batches += 1
        services.events_apply(batch=batch)
        return True

    def acked(self, run: str, attempt: int) -> int | None:
        return self.acks.get(run)

    def ack_send(self, run: str, attempt: int, seq: int) -> None:
        self.acks[run] = seq

    def batches_waiting(self) -> int:
        return 0


@pytest.fixture
def reported(
    project: Project,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    django_capture_on_commit_callbacks: Any,
) -> Any:
    """Report a small run through the benchmark's trainer; (run, its values, the trainer)."""

    def report(name: str) -> tuple[Run, Any, Trainer]:
        run, wire = run_make(project, name=name), Wire()
        monkeypatch.setattr(dispatch, "ack_send", wire.ack_send)
        values = curves(STEPS, METRICS)
        (tmp_path / name).mkdir()
        trainer = Trainer(run.pk, tmp_path / name, wire, values.tolist())
        for _ in range(STEPS):
            trainer.take_step()
        trainer.context.flush()
        with django_capture_on_commit_callbacks(execute=True):
            trainer.tick(at_once=True)
        trainer.tick(at_once=True)
        assert trainer.is_drained()
        assert wire.batches >= 1
        return run, values, trainer

    return report


def test_what_the_trainers_report_is_what_the_blocks_hold(reported: Any) -> None:
    run, values, trainer = reported("blocks")
    shown = selectors.metric_series(run=run)
    assert shown == {
        name: [(step, float(row[i])) for step, row in enumerate(values, 1)]
        for i, name in enumerate(names(METRICS))
    }
    assert sum(MetricBlock.objects.values_list("points", flat=True)) == STEPS * METRICS
    assert len(trainer.delays) == len(trainer.written)


def test_the_old_layout_shows_the_same_and_is_the_old_one(reported: Any) -> None:
    new, *_ = reported("blocks")
    with before.old_storage():
        old, *_ = reported("rows")
    assert RunEvent.objects.filter(run=old, type="Metrics").exists()
    assert not MetricBlock.objects.filter(run=old).exists()
    assert before.metric_series(run=old) == selectors.metric_series(run=new)
    reported("after")
    assert not RunEvent.objects.filter(type="Metrics").exclude(run=old).exists(), "as it was before"

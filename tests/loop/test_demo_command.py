"""`manage.py demo`: what it says and how it ends. The real circle is `make demo`."""

import json
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from apps.accounts.models import Project
from apps.loop.demo import Workspace
from apps.loop.management.commands import demo as command
from apps.training.models import Run

pytestmark = pytest.mark.django_db


class NoWorkers:
    """Stands in for the worker processes; each tick moves the runs on by `moves`."""

    def __init__(self, moves: list) -> None:
        self.moves, self.stopped = moves, False

    def ensure(self) -> None:
        pass

    def tick(self) -> None:
        if self.moves:
            self.moves.pop(0)()

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def runs(project: Project) -> dict[str, Run]:
    return {
        stage: Run.objects.create(project=project, name=stage, kind=kind, state="queued")
        for stage, kind in (("sft", "sft"), ("judge", "reward"), ("generate", "generate"))
    }


@pytest.fixture
def demo(project: Project, runs: dict[str, Run], monkeypatch, settings, tmp_path):
    """Run the command over `runs`; returns (its output, the workers it used)."""
    settings.VAR_DIR = tmp_path
    made = Workspace(project, None, runs)
    monkeypatch.setattr(command, "demo_build", lambda say, real=None: made)
    monkeypatch.setattr(command.report, "report_make", lambda workspace: {"made": "here"})
    monkeypatch.setattr(command, "round_end", lambda runs, say: say(f"ends {len(runs)} runs"))
    monkeypatch.setattr(command, "table_lines", lambda figures: iter(["a table"]))
    monkeypatch.setattr(command.time, "sleep", lambda seconds: None)

    def run(moves: list, **options) -> tuple[str, NoWorkers]:
        workers = NoWorkers(moves)
        monkeypatch.setattr(command, "LocalWorkers", lambda say: workers)
        said = StringIO()
        try:
            call_command("demo", stdout=said, **options)
        finally:
            run.said, run.workers = said.getvalue(), workers
        return run.said, workers

    return run


def end(run: Run, state: str = "finished", **more) -> None:
    Run.objects.filter(pk=run.pk).update(
        state=state, started_at=timezone.now(), ended_at=timezone.now(), **more
    )
    run.refresh_from_db()


def test_it_waits_for_every_run_and_writes_the_report(
    demo, runs: dict[str, Run], tmp_path: Path
) -> None:
    moves = [lambda: None, *(lambda run=run: end(run) for run in runs.values())]
    said, workers = demo(moves)
    for stage in runs:
        assert f"{stage}: queued" in said
        assert f"{stage}: finished" in said
    assert "ends 3 runs" in said
    assert "a table" in said
    assert json.loads((tmp_path / "demo" / "report.json").read_text()) == {"made": "here"}
    assert workers.stopped


def test_the_real_circle_writes_a_report_of_its_own_to_read(
    demo, runs: dict[str, Run], tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(command, "markdown_lines", lambda figures: iter(["# Figures"]))
    said, _ = demo([lambda run=run: end(run) for run in runs.values()], real=True)
    assert (tmp_path / "demo" / "report-real.json").exists()
    assert (tmp_path / "demo" / "report-real.md").read_text() == "# Figures\n"
    assert "minutes" in said
    with pytest.raises(CommandError, match="--real"):
        demo([], small=True)


def test_a_failed_run_ends_it_with_the_stage_and_the_error(
    demo, runs: dict[str, Run], tmp_path: Path
) -> None:
    error = {"failure_kind": "out_of_memory", "failure_message": "batch_size 64 does not fit"}
    moves = [lambda: end(runs["sft"]), lambda: end(runs["judge"], "failed", **error)]
    with pytest.raises(CommandError, match=r"judge.* out_of_memory: .*64") as ended:
        demo(moves)
    assert ended.value.returncode == 1
    assert demo.workers.stopped
    assert not (tmp_path / "demo" / "report.json").exists()


def test_what_failed_before_is_resumed(demo, runs: dict[str, Run]) -> None:
    end(runs["sft"], "failed", failure_kind="killed", failure_message="gone")
    with pytest.raises(CommandError, match="time limit"):
        demo([], timeout=0)
    assert "sft: resuming" in demo.said
    assert Run.objects.get(pk=runs["sft"].pk).state == "queued"


def test_an_interrupt_stops_the_workers_and_says_how_to_go_on(demo) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(CommandError, match="run it again") as ended:
        demo([interrupt])
    assert ended.value.returncode == 130
    assert demo.workers.stopped

"""`manage.py replay_events`: a spool is imported as often as one likes."""

import json
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from apps.training.models import Run, RunEvent
from tests.training.reports import batch, measured, report
from workers.contract import Failed, Finished, Log, Opened, Progress

KILLED = Failed("killed", "machine", "It was killed.", retryable=True)


def spool(path: Path, *batches: dict) -> Path:
    lines = [json.dumps(event) for each in batches for event in each["events"]]
    path.write_text("\n".join(lines) + "\n")
    return path


def replay(path: Path) -> dict[str, int]:
    out = StringIO()
    call_command("replay_events", str(path), stdout=out, stderr=StringIO())
    words = (line.split() for line in out.getvalue().splitlines())
    return {line[0]: int(line[1]) for line in words}


def test_a_spool_is_applied_once_and_skipped_from_then_on(run: Run, tmp_path: Path) -> None:
    logs = [Log(lines=[str(n)]) for n in range(450)]
    path = spool(tmp_path / "s", batch(run, Opened(), *logs, Progress(step=9), Finished(step=9)))
    nothing = {"applied": 0, "superseded": 0, "skipped": 0, "invalid": 0, "unreadable": 0}
    assert replay(path) == nothing | {"applied": 453}
    run.refresh_from_db()
    assert (run.state, run.step) == ("finished", 9)
    assert replay(path) == nothing | {"skipped": 453}


def test_it_continues_where_the_wire_was_cut(run: Run, tmp_path: Path) -> None:
    events = [Opened(), measured(1, 3), Progress(step=3), Finished(step=3)]
    report(run, *events[:2])
    found = replay(spool(tmp_path / "s", batch(run, *events)))
    assert (found["skipped"], found["applied"]) == (2, 2)


def test_events_of_a_superseded_attempt_are_kept_for_the_record(run: Run, tmp_path: Path) -> None:
    report(run, Opened(), KILLED)
    path = spool(tmp_path / "s", batch(run, Opened(), KILLED, Log(lines=["late"])))
    found = replay(path)
    assert (found["skipped"], found["superseded"], found["applied"]) == (2, 1, 0)
    run.refresh_from_db()
    assert (run.attempt, run.state) == (2, "queued")
    assert RunEvent.objects.filter(run=run, attempt=1).count() == 3


def test_torn_and_foreign_lines_are_counted_and_passed_over(run: Run, tmp_path: Path) -> None:
    path = spool(tmp_path / "s", batch(run, Opened(), Progress(step=2)))
    path.write_text("a warning\n\n" + path.read_text() + '{"version": 1, "run"')
    found = replay(path)
    assert (found["applied"], found["unreadable"]) == (2, 2)


def test_a_spool_with_a_hole_is_refused_from_there_on_and_says_so(run: Run, tmp_path: Path) -> None:
    sent = batch(run, Opened(), Progress(step=1), Progress(step=2))
    del sent["events"][1]
    error = StringIO()
    with pytest.raises(CommandError, match="Not everything"):
        call_command(
            "replay_events", str(spool(tmp_path / "s", sent)), stdout=StringIO(), stderr=error
        )
    assert "event 2 is missing" in error.getvalue()
    run.refresh_from_db()
    assert run.step == 0


def test_a_spool_of_a_run_from_elsewhere_is_refused(run: Run, tmp_path: Path) -> None:
    sent = batch(run, Opened())
    sent["events"][0]["run"] = "elsewhere"
    error = StringIO()
    with pytest.raises(CommandError):
        call_command(
            "replay_events", str(spool(tmp_path / "s", sent)), stdout=StringIO(), stderr=error
        )
    assert "run elsewhere, attempt 1: is not known here" in error.getvalue()


def test_a_file_that_cannot_be_read_is_an_error(db: None, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="No such file"):
        call_command("replay_events", str(tmp_path / "none"))

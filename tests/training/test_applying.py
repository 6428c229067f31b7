"""Taking in events: at least once becomes exactly once, and no batch can break the queue."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django.fixtures import Settings

from apps.snapshots.models import Snapshot
from apps.training import selectors, services
from apps.training.models import Alert as AlertRow
from apps.training.models import (
    Artifact,
    Checkpoint,
    MetricBlock,
    Run,
    RunAttempt,
    RunEvent,
    RunInput,
)
from apps.training.models import Sample as SampleRow
from tests.training.conftest import FakeWire
from tests.training.reports import batch, measured, report, saved
from workers.contract import (
    Alert,
    ArtifactSaved,
    Cancelled,
    Evidence,
    Failed,
    Finished,
    Generated,
    Histogram,
    Log,
    Metrics,
    Opened,
    Progress,
    ReviewRequested,
    Sample,
    SplitRead,
)
from workers.contract.events import EVENT_TYPES

OPENED = Opened(total_steps=10, environment={"host": "here"})
SAMPLE = Sample(step=3, bucket="high", prompt=[{"role": "user", "content": "?"}], response="!")
ALERT = Alert(rule="kl", severity="warning", step=3, message="far", value=11.0, threshold=10.0)
ARTIFACT = ArtifactSaved("report.html", "runs/x/report.html", "1" * 64, 5, "text/html")
GENERATED = Generated("runs/x/answers.jsonl", "2" * 64, 12, "candidates")
KILLED = Failed("killed", "machine", "It was killed.", retryable=True)
FINAL = Failed("bad_config", "configuration", "stepz: is no field")


def test_every_event_of_the_contract_has_an_arm(run: Run) -> None:
    """An event that is added to the contract fails here until somebody decides what it means."""
    data = Snapshot.objects.create(project=run.project, name="data", kind="prompts")
    RunInput.objects.create(run=run, role="prompts", snapshot=data)
    examples = [
        OPENED,
        Progress(step=1),
        measured(1, 1),
        Log(lines=["x"]),
        SAMPLE,
        GENERATED,
        SplitRead("prompts", "dev", 12),
        Evidence("reward", "r", "trend", 3),
        ALERT,
        ReviewRequested(3, [], "?", "phrase"),
        Histogram(3, "reward", [0.0, 0.5, 1.0], [3, 5]),
        saved(1, "last"),
        ARTIFACT,
        Finished(step=1),
        FINAL,
        Cancelled(),
    ]
    assert {type(event).__name__ for event in examples} == set(EVENT_TYPES)
    applied = report(run, *examples)
    assert applied.invalid == 0
    stored = list(RunEvent.objects.filter(run=run).order_by("seq").values_list("type", flat=True))
    others = [event for event in examples if not isinstance(event, Metrics)]
    assert stored == [type(event).__name__ for event in others], "points are no rows of their own"
    assert MetricBlock.objects.get(run=run).points == 1


def test_the_run_shows_what_its_trainer_said(run: Run) -> None:
    report(run, OPENED, Progress(step=4, total_steps=10, phase="update", eta_s=6.5))
    assert (run.state, run.step, run.total_steps) == ("running", 4, 10)
    assert (run.phase, run.eta_s) == ("update", 6.5)
    assert run.started_at is not None
    assert run.heard_at is not None
    assert run.attempts.get().environment == {"host": "here"}


def test_what_a_trainer_leaves_becomes_rows(run: Run) -> None:
    report(run, OPENED, SAMPLE, ALERT, ARTIFACT, GENERATED, saved(5, "last", "best"))
    assert SampleRow.objects.get(run=run).response == "!"
    assert AlertRow.objects.get(run=run).value == 11.0
    names = Artifact.objects.filter(run=run).order_by("seq").values_list("name", "purpose", "count")
    assert list(names) == [("report.html", "", None), ("candidates.jsonl", "candidates", 12)]
    checkpoint = Checkpoint.objects.get(run=run)
    assert (checkpoint.step, checkpoint.tags, checkpoint.project_id) == (
        5,
        ["last", "best"],
        run.project_id,
    )


def test_a_tag_belongs_to_its_newest_checkpoint(run: Run) -> None:
    report(run, OPENED, saved(5, "last", "best"), saved(7, "failed"), saved(9, "last"))
    tags = dict(Checkpoint.objects.filter(run=run).values_list("step", "tags"))
    assert tags == {5: ["best"], 7: ["failed"], 9: ["last"]}


def test_a_state_that_is_saved_again_keeps_all_its_tags(run: Run) -> None:
    report(run, OPENED, saved(5, "last"), saved(5, "final"))
    assert Checkpoint.objects.get(run=run).tags == ["final", "last"]


def test_a_batch_that_comes_twice_changes_nothing(run: Run) -> None:
    events = (OPENED, SAMPLE, ALERT, saved(5, "last"), measured(1, 5))
    assert report(run, *events).applied == 5
    again = report(run, *events)
    assert (again.applied, again.skipped) == (0, 5)
    assert RunEvent.objects.filter(run=run).count() == 4
    assert MetricBlock.objects.get(run=run).points == 5
    assert SampleRow.objects.filter(run=run).count() == 1


def test_batches_that_overlap_are_taken_from_where_they_are_new(run: Run) -> None:
    report(run, OPENED, Progress(step=1), Progress(step=2))
    applied = report(run, Progress(step=2), Progress(step=3), first=3)
    assert (applied.skipped, applied.applied, run.step) == (1, 1, 3)


def test_a_gap_is_refused_and_what_is_acknowledged_says_where(
    run: Run, wire: FakeWire, commits: Callable[..., Any]
) -> None:
    with commits():
        report(run, OPENED)
    with commits():
        applied = report(run, Progress(step=9), first=3)
    assert (applied.missing, applied.applied, run.step) == (2, 0, 0)
    assert wire.acks == [(run.pk, 1, 1), (run.pk, 1, 1)]


def test_nothing_is_acknowledged_before_it_is_committed(
    run: Run, wire: FakeWire, commits: Callable[..., Any]
) -> None:
    with commits():
        report(run, OPENED, Progress(step=1))
        assert wire.acks == []
    assert wire.acks == [(run.pk, 1, 2)]


def test_a_heartbeat_is_a_sign_of_life_and_nothing_else(run: Run) -> None:
    services.events_apply(batch=batch(run))
    run.refresh_from_db()
    assert run.heard_at is not None
    assert (run.state, RunEvent.objects.filter(run=run).count()) == ("queued", 0)
    Run.objects.filter(pk=run.pk).update(heard_at=None)
    services.events_apply(batch=batch(run, attempt=7))
    run.refresh_from_db()
    assert run.heard_at is None, "nor is one of another attempt"


def test_events_of_a_superseded_attempt_are_kept_and_change_nothing(
    run: Run, wire: FakeWire, commits: Callable[..., Any]
) -> None:
    report(run, OPENED, measured(1, 4), Progress(step=4), KILLED)
    assert (run.attempt, run.state) == (2, "queued")
    late = (Progress(step=99), SAMPLE, measured(5, 99), saved(99, "final"), Finished(step=99))
    with commits():
        applied = report(run, *late, first=5)
    assert (applied.applied, applied.kept) == (0, 5)
    assert (run.attempt, run.state, run.step) == (2, "queued", 0)
    assert not Checkpoint.objects.filter(run=run).exists()
    assert not SampleRow.objects.filter(run=run).exists()
    assert RunEvent.objects.filter(run=run, attempt=1).count() == 7, "they are kept"
    assert MetricBlock.objects.filter(run=run).count() == 2, "and so are its late points"
    assert wire.acks == [(run.pk, 1, 9)], "and acknowledged, or they would come for ever"


def test_nothing_after_the_outcome_changes_the_run(run: Run) -> None:
    report(run, OPENED, Finished(step=10, summary={"loss": 0.5}))
    applied = report(run, Progress(step=3), FINAL, first=3)
    assert (run.state, run.step, run.summary) == ("finished", 10, {"loss": 0.5})
    assert applied.kept == 2


@pytest.mark.parametrize(
    ("outcome", "state", "attempt_outcome"),
    [
        (Finished(step=10), "finished", "finished"),
        (FINAL, "failed", "failed"),
        (Cancelled(step=3), "cancelled", "cancelled"),
    ],
)
def test_an_outcome_ends_run_and_attempt(
    run: Run, outcome: Any, state: str, attempt_outcome: str
) -> None:
    report(run, OPENED, outcome)
    attempt = RunAttempt.objects.get(run=run)
    assert (run.state, attempt.outcome) == (state, attempt_outcome)
    assert run.ended_at is not None
    assert attempt.ended_at is not None


def test_a_final_failure_says_whose_turn_it_is(run: Run) -> None:
    report(run, OPENED, FINAL)
    assert (run.failure_kind, run.fault) == ("bad_config", "configuration")
    assert run.failure_message == FINAL.message


def test_a_failure_that_may_pass_is_tried_again_up_to_the_maximum(
    run: Run, settings: Settings, wire: FakeWire, commits: Callable[..., Any]
) -> None:
    settings.RUN_MAX_ATTEMPTS = 3
    for attempt in (1, 2):
        with commits():
            report(run, OPENED, KILLED, attempt=attempt)
        assert (run.state, run.attempt) == ("queued", attempt + 1)
    report(run, OPENED, KILLED, attempt=3)
    assert (run.state, run.failure_kind, run.attempt) == ("failed", "killed", 3)
    assert [job["attempt"] for job in wire.jobs] == [1, 2, 3]


def test_an_interruption_is_nobodys_failure_and_uses_up_no_attempt(
    run: Run, settings: Settings
) -> None:
    settings.RUN_MAX_ATTEMPTS = 1
    interrupted = Failed("interrupted", "machine", "The worker shuts down.", retryable=True)
    for attempt in (1, 2, 3):
        report(run, OPENED, interrupted, attempt=attempt)
        assert (run.state, run.attempt) == ("queued", attempt + 1)
    report(run, OPENED, KILLED, attempt=4)
    assert run.state == "failed"


def test_a_person_who_resumes_a_run_gives_it_all_its_attempts_again(
    run: Run, settings: Settings
) -> None:
    settings.RUN_MAX_ATTEMPTS = 2
    report(run, OPENED, KILLED)
    report(run, OPENED, KILLED, attempt=2)
    run = services.run_resume(run=run)
    report(run, OPENED, KILLED, attempt=3)
    assert (run.state, run.attempt) == ("queued", 4)
    report(run, OPENED, KILLED, attempt=4)
    assert run.state == "failed"


def test_a_run_that_people_want_ended_is_not_tried_again(run: Run) -> None:
    report(run, OPENED)
    Run.objects.filter(pk=run.pk).update(command="stop", state="stopping")
    report(run, KILLED, first=2)
    assert (run.state, run.attempt) == ("failed", 1)


def test_a_cancelled_run_whose_trainer_dies_is_cancelled(run: Run) -> None:
    report(run, OPENED)
    Run.objects.filter(pk=run.pk).update(command="cancel", state="stopping")
    report(run, KILLED, first=2)
    assert (run.state, run.failure_kind) == ("cancelled", "")


def test_the_trainer_of_a_lost_run_knows_better(run: Run) -> None:
    report(run, OPENED, Progress(step=3))
    Run.objects.filter(pk=run.pk).update(
        state="failed", failure_kind="lost", fault="machine", ended_at=run.updated_at
    )
    report(run, Progress(step=9), first=3)
    assert (run.state, run.step) == ("failed", 9)
    report(run, Finished(step=10), first=4)
    assert (run.state, run.failure_kind, run.fault) == ("finished", "", "")


# --- what does not fit ---

VIOLATIONS: dict[str, Any] = {
    "no type": {"type": None},
    "no version": {"version": "1"},
    "no body": {"event": None},
    "another run": {"run": "somebody-else"},
    "another attempt": {"attempt": 9},
    "a time beyond time": {"at": 1e300},
    "a step that is text": {"event": {"step": "four"}},
    "a step beyond the column": {"event": {"step": 2**63}},
    "a negative step": {"event": {"step": -1}},
    "a step that is true": {"event": {"step": True}},
    "an eta that is text": {"event": {"step": 1, "eta_s": "soon"}},
}


@pytest.mark.parametrize("violation", VIOLATIONS)
def test_an_event_that_breaks_the_contract_fails_its_run_and_holds_up_nothing(
    run: Run, violation: str, wire: FakeWire, commits: Callable[..., Any]
) -> None:
    sent = batch(run, OPENED, Progress(step=1), Log(lines=["after"]))
    sent["events"][1] |= VIOLATIONS[violation]
    with commits():
        applied = services.events_apply(batch=sent)
    run.refresh_from_db()
    assert applied.invalid == 1
    assert (run.state, run.failure_kind, run.fault) == ("failed", "contract_violation", "bug")
    assert "Event 2 of attempt 1" in run.failure_message
    types = RunEvent.objects.filter(run=run).order_by("seq").values_list("type", flat=True)
    assert list(types) == ["Opened", "Invalid", "Log"]
    assert wire.acks == [(run.pk, 1, 3)]
    assert wire.commands[-1] == (run.pk, "cancel"), "its trainer is told to end"


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("Metrics", {"steps": [1, 2], "values": {"loss": [1.0]}}),
        ("Metrics", {"steps": [1], "values": {"loss": ["much"]}}),
        ("Metrics", {"steps": ["x"], "values": {}}),
        ("Metrics", {"steps": [1], "values": [1]}),
        ("Alert", {"rule": "r", "severity": "panic", "step": 1, "message": "m"}),
        ("Sample", {"step": 1, "bucket": "high", "prompt": [], "response": None}),
        ("CheckpointSaved", {"step": 1, "uri": 5, "sha256": "y", "size_bytes": 1}),
        ("Failed", {"kind": "", "fault": "bug", "message": ""}),
        ("Finished", {"step": 1, "summary": [1]}),
        ("Opened", {"environment": "here"}),
    ],
)
def test_a_value_that_no_field_can_hold_is_a_violation_too(
    run: Run, kind: str, body: dict[str, Any]
) -> None:
    sent = batch(run, OPENED, Progress(step=1))
    sent["events"][1] |= {"type": kind, "event": body}
    assert services.events_apply(batch=sent).invalid == 1
    run.refresh_from_db()
    assert run.failure_kind == "contract_violation"


def test_an_arm_that_fails_halfway_leaves_nothing_behind(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumble(**_: Any) -> None:
        raise RuntimeError("a bug in an arm")

    monkeypatch.setattr("apps.training.services.event_handlers.run_end", stumble)
    sent = report(run, OPENED, SAMPLE, Finished(step=3))
    assert (sent.applied, sent.invalid) == (2, 1)
    assert run.failure_kind == "contract_violation"


@pytest.mark.parametrize(
    "poison",
    [
        None,
        5,
        "text",
        [],
        {},
        {"run": 5, "attempt": 1},
        {"run": "x", "attempt": "1"},
        {"run": "x", "attempt": 2**40, "events": []},
        {"run": "x", "attempt": True, "events": []},
    ],
)
def test_a_batch_without_an_address_is_dropped(db: None, poison: Any) -> None:
    assert services.events_apply(batch=poison).applied == 0


def test_events_that_are_no_events_fail_the_run_and_nothing_else(run: Run) -> None:
    sent = batch(run, OPENED) | {"events": [5, None, "x", {"seq": "y"}]}
    assert services.events_apply(batch=sent).invalid == 4
    run.refresh_from_db()
    assert run.failure_kind == "contract_violation"


def test_events_of_a_run_that_is_gone_tell_its_supervisor_to_stop(
    db: None, wire: FakeWire, run: Run
) -> None:
    sent = batch(run, OPENED, Progress(step=1))
    sent["run"] = "deleted"
    assert services.events_apply(batch=sent).unknown
    assert wire.acks == [("deleted", 1, 2)]
    assert wire.commands[-1] == ("deleted", "cancel")


def test_text_that_postgresql_cannot_hold_is_mended(run: Run) -> None:
    odd = json.loads('"nul \\u0000, half a pair \\ud800."')
    report(run, OPENED, Sample(step=1, bucket="low", prompt=[{"role": odd}], response=odd))
    report(run, Log(lines=[odd]), Finished(step=1, summary={odd: float("nan")}), first=3)
    assert SampleRow.objects.get(run=run).response == "nul \ufffd, half a pair \ufffd."
    assert list(run.summary.values()) == ["nan"]
    assert run.state == "finished"


def test_nan_and_infinities_are_stored_so_that_they_are_seen(run: Run) -> None:
    event = measured(1, 3)
    event.values["loss"][:] = ["nan", "-inf", None]
    sample = Sample(step=1, bucket="low", prompt=[], response="", reward="nan")
    report(run, OPENED, event, sample)
    series = selectors.metric_series(run=run)["loss"]
    assert series == [(1, "nan"), (2, "-inf"), (3, None)]
    assert SampleRow.objects.get(run=run).reward != SampleRow.objects.get(run=run).reward


def test_a_large_batch_of_points_costs_few_queries(run: Run) -> None:
    report(run, OPENED)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        report(run, *(measured(n, n) for n in range(1, 200)), first=2)
    assert len(queries) < 12

"""The sweep: never an endless spinner, never a second trainer beside a live one."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from pytest_django.fixtures import Settings

from apps.training import services
from apps.training.models import Run, RunAttempt, RunInput
from tests.training.conftest import FakeWire
from tests.training.reports import batch, report, saved
from workers.artifacts import Store, StoreUnreachable
from workers.contract import Failed, Finished, Opened, Progress

Sweep = Callable[[], dict[str, int]]


@pytest.fixture
def sweep(commits: Callable[..., Any]) -> Sweep:
    def once() -> dict[str, int]:
        with commits():
            return dict(services.runs_sweep())

    return once


def silent_for(run: Run, seconds: float) -> None:
    then = timezone.now() - timedelta(seconds=seconds)
    Run.objects.filter(pk=run.pk).update(heard_at=then, dispatched_at=then)
    RunAttempt.objects.filter(run=run).update(created_at=then)


@pytest.fixture
def running(run: Run) -> Run:
    report(run, Opened(), Progress(step=3))
    return run


def test_what_runs_and_is_heard_is_left_alone(running: Run, sweep: Sweep, wire: FakeWire) -> None:
    assert sweep() == {}
    wire.claimed(running, leased=False)
    assert sweep() == {}, "it was heard a moment ago"


def test_a_silent_run_whose_lease_lives_is_left_alone(running: Run, sweep: Sweep) -> None:
    silent_for(running, 10_000)
    assert sweep() == {}


def test_a_silent_run_without_a_lease_gets_a_new_attempt_from_its_checkpoint(
    running: Run, sweep: Sweep, wire: FakeWire, artifacts: Path
) -> None:
    store = Store(str(artifacts))
    digest = store.write_bytes(f"runs/{running.pk}/five/manifest.json", b"{}")
    report(running, saved(5, "last", uri="runs/x/five", sha256=digest), Progress(step=8), first=3)
    wire.claimed(running, leased=False)
    silent_for(running, 46)
    assert sweep() == {"recovered": 1}
    running.refresh_from_db()
    assert (running.state, running.attempt, running.step) == ("queued", 2, 5)
    assert running.attempts.get(number=1).outcome == "lost"
    assert running.attempts.get(number=2).resumed_from_step == 5
    assert [job["attempt"] for job in wire.jobs] == [1, 2]


def test_a_run_that_is_lost_again_and_again_is_given_up(
    running: Run, sweep: Sweep, wire: FakeWire, settings: Settings
) -> None:
    settings.RUN_MAX_ATTEMPTS = 2
    for expected in ("recovered", "lost"):
        running.refresh_from_db()
        wire.claimed(running, leased=False)
        silent_for(running, 46)
        assert sweep() == {expected: 1}
    running.refresh_from_db()
    assert (running.state, running.failure_kind, running.fault) == ("failed", "lost", "machine")
    assert "Attempt 2 went silent" in running.failure_message


def test_a_run_that_started_before_its_sending_was_noted_is_recovered_too(
    running: Run, sweep: Sweep, wire: FakeWire
) -> None:
    wire.claimed(running, leased=False)
    silent_for(running, 46)
    Run.objects.filter(pk=running.pk).update(dispatched_at=None, heard_at=None)
    assert sweep() == {"recovered": 1}


def test_nothing_is_concluded_while_redis_is_away(
    running: Run, sweep: Sweep, wire: FakeWire
) -> None:
    wire.reachable = False
    silent_for(running, 10_000)
    assert sweep() == {}


def test_an_attempt_that_was_claimed_and_never_opened_is_recovered_too(
    run: Run, sweep: Sweep, wire: FakeWire
) -> None:
    wire.claimed(run, leased=False)
    silent_for(run, 46)
    assert sweep() == {"recovered": 1}


def test_a_job_that_could_not_be_sent_is_sent(run: Run, sweep: Sweep, wire: FakeWire) -> None:
    wire.standings.clear()
    Run.objects.filter(pk=run.pk).update(dispatched_at=None)
    wire.takes_jobs = False
    assert sweep() == {"sent": 1}
    wire.takes_jobs = True
    assert sweep() == {"sent": 1}
    assert sweep() == {}
    assert [job["attempt"] for job in wire.jobs] == [1, 1]


def test_a_message_that_is_in_no_queue_and_was_not_claimed_is_sent_again(
    run: Run, sweep: Sweep, wire: FakeWire
) -> None:
    wire.standings.clear()
    assert sweep() == {}, "it was sent a moment ago"
    silent_for(run, 16)
    wire.queued = {(run.pk, 1)}
    assert sweep() == {}, "it still waits for a worker, be it for days"
    wire.queued = set()
    assert sweep() == {"sent": 1}
    assert len(wire.jobs) == 2


def test_a_claimed_job_is_not_sent_again(run: Run, sweep: Sweep, wire: FakeWire) -> None:
    wire.claimed(run, leased=False)
    silent_for(run, 16)
    assert sweep() == {}


def test_a_waiting_run_whose_bell_was_missed_is_released(
    run: Run, sweep: Sweep, project: Any
) -> None:
    waiting = services.run_launch(
        project=project, kind="drill", name="two", config={}, inputs={"base": run}
    )
    assert sweep() == {}
    report(run, Opened(), saved(3, "final"))
    Run.objects.filter(pk=run.pk).update(state="finished", ended_at=timezone.now())
    assert sweep() == {"released": 1}
    waiting.refresh_from_db()
    assert waiting.state == "queued"
    assert RunInput.objects.get(run=waiting).checkpoint.step == 3


def test_a_wish_is_repeated_until_the_run_has_ended(
    running: Run, sweep: Sweep, wire: FakeWire
) -> None:
    services.run_stop_and_keep(run=running)
    for _ in range(3):
        sweep()
    assert wire.wishes[-3:] == [(running.pk, "stop")] * 3


def test_a_cancelled_run_whose_machine_is_gone_is_cancelled(
    running: Run, sweep: Sweep, wire: FakeWire
) -> None:
    services.run_cancel(run=running)
    wire.claimed(running, leased=False)
    silent_for(running, 46)
    assert sweep() == {"cancelled": 1}
    running.refresh_from_db()
    assert (running.state, running.attempts.get().outcome) == ("cancelled", "lost")


def test_a_stopped_run_whose_machine_is_gone_is_not_started_again(
    running: Run, sweep: Sweep, wire: FakeWire
) -> None:
    services.run_stop_and_keep(run=running)
    wire.claimed(running, leased=False)
    silent_for(running, 46)
    assert sweep() == {"lost": 1}


def spool(run: Run, artifacts: Path, *events: Any) -> None:
    path = artifacts / f"runs/{run.pk}/attempt-{run.attempt}/events.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(e) + "\n" for e in batch(run, *events)["events"]))


@pytest.mark.parametrize(
    ("last", "state", "attempt"),
    [
        (Finished(step=9), "finished", 1),
        (Failed("bad_config", "configuration", "no"), "failed", 1),
        (Failed("killed", "machine", "killed", retryable=True), "queued", 2),
    ],
)
def test_an_outcome_that_only_reached_the_store_is_found_there(
    running: Run,
    sweep: Sweep,
    wire: FakeWire,
    artifacts: Path,
    last: Any,
    state: str,
    attempt: int,
) -> None:
    spool(running, artifacts, Opened(), Progress(step=3), Progress(step=9), last)
    wire.claimed(running, leased=False)
    silent_for(running, 46)
    assert sweep() == {"settled": 1}
    running.refresh_from_db()
    assert (running.state, running.attempt) == (state, attempt)


@pytest.mark.parametrize(("wish", "state"), [("", "running"), ("cancel", "cancelled")])
def test_a_silent_run_is_not_lost_while_the_store_that_may_know_its_end_is_away(
    running: Run, sweep: Sweep, wire: FakeWire, artifacts: Path, monkeypatch: pytest.MonkeyPatch,
    wish: str, state: str,
) -> None:  # fmt: skip
    spool(running, artifacts, Opened(), Progress(step=3), Finished(step=9))
    wire.claimed(running, leased=False)
    silent_for(running, 46)
    Run.objects.filter(pk=running.pk).update(wish=wish)
    own = Store.open

    def away(store: Store, relative: str, mode: str = "rb") -> Any:
        raise StoreUnreachable("the artifact store failed: no route to host")

    monkeypatch.setattr(Store, "open", away)
    sweep()
    running.refresh_from_db()
    assert (running.state, running.attempt) == (state, 1)
    monkeypatch.setattr(Store, "open", own)
    sweep()
    running.refresh_from_db()
    assert (running.state, running.attempt) == ("finished" if not wish else state, 1)


def test_a_lost_run_resumes_from_a_checkpoint_that_only_its_spool_knew(
    running: Run, sweep: Sweep, wire: FakeWire, artifacts: Path
) -> None:
    digest = Store(str(artifacts)).write_bytes(f"runs/{running.pk}/seven/manifest.json", b"{}")
    checkpoint = saved(7, "last", uri="runs/x/seven", sha256=digest)
    spool(running, artifacts, Opened(), Progress(step=3), checkpoint, Progress(step=8))
    wire.claimed(running, leased=False)
    silent_for(running, 46)
    assert sweep() == {"recovered": 1}
    assert RunAttempt.objects.get(run=running, number=2).resumed_from_step == 7


def test_one_runs_trouble_does_not_keep_the_others_from_being_looked_at(
    running: Run, sweep: Sweep, wire: FakeWire, project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = services.run_launch(project=project, kind="drill", name="b", config={}, inputs={})
    Run.objects.filter(pk=other.pk).update(admitted_at=timezone.now(), dispatched_at=None)
    standing = wire.standing

    def stumble(run: str) -> Any:
        if run == running.pk:
            raise RuntimeError("trouble")
        return standing(run)

    monkeypatch.setattr("apps.training.dispatch.standing", stumble)
    assert sweep() == {"error": 1, "sent": 1}

"""The sweep: never an endless spinner, never a second trainer beside a live one."""

import copy
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from pytest_django.fixtures import Settings

from apps.training import services
from apps.training.models import Checkpoint, Run, RunAttempt, RunEvent, RunInput
from apps.training.services import batch_receive
from apps.training.signing import secret_of
from tests.training.conftest import FakeWire
from tests.training.reports import batch, report, saved
from tests.training.stack import redis_client
from workers.artifacts import Store, StoreUnreachable
from workers.contract import Failed, Finished, Opened, Progress, wire
from workers.contract.signing import attempt_secret, signed
from workers.emitter import Emitter
from workers.supervisor.relay import Relay, Spool

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


def test_a_command_is_repeated_until_the_run_has_ended(
    running: Run, sweep: Sweep, wire: FakeWire
) -> None:
    services.run_stop_and_keep(run=running)
    for _ in range(3):
        sweep()
    assert wire.commands[-3:] == [(running.pk, "stop")] * 3


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


@pytest.mark.parametrize(("command", "state"), [("", "running"), ("cancel", "cancelled")])
def test_a_silent_run_is_not_lost_while_the_store_that_may_know_its_end_is_away(
    running: Run,
    sweep: Sweep,
    wire: FakeWire,
    artifacts: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    state: str,
) -> None:
    spool(running, artifacts, Opened(), Progress(step=3), Finished(step=9))
    wire.claimed(running, leased=False)
    silent_for(running, 46)
    Run.objects.filter(pk=running.pk).update(command=command)
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
    assert (running.state, running.attempt) == ("finished" if not command else state, 1)


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
            raise RuntimeError("problem")
        return standing(run)

    monkeypatch.setattr("apps.training.dispatch.standing", stumble)
    assert sweep() == {"error": 1, "sent": 1}


# Who may speak for a run: the worker that was given the attempt, and nobody else on the broker.


def said(run: Run) -> dict[str, Any]:
    return batch(run, Opened(), saved(5, "final"), Finished(step=5, summary={"à": 0.1 + 0.2}))


FORGERIES: dict[str, Callable[[Run], dict[str, Any]]] = {
    "no signature": said,
    "a signature that is no text": lambda run: said(run) | {"signature": 5},
    "a signature of other letters": lambda run: said(run) | {"signature": "é\ud800" * 32},
    "another run's secret": lambda run: signed(said(run), secret_of("another", 1)),
    "another attempt's secret": lambda run: signed(said(run), secret_of(run.pk, 2)),
    "no secret at all": lambda run: signed(said(run), attempt_secret("", run=run.pk, attempt=1)),
    "other events than were signed": lambda run: (
        signed(batch(run, Opened()), secret_of(run.pk, 1)) | {"events": said(run)["events"]}
    ),
    "another attempt than was signed": lambda run: (
        signed(said(run), secret_of(run.pk, 2)) | {"attempt": 1}
    ),
    "more than was signed": lambda run: signed(batch(run), secret_of(run.pk, 1)) | {"note": "ha"},
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_batch_that_its_worker_did_not_sign_changes_nothing_and_is_counted(
    run: Run, forgery: str, caplog: pytest.LogCaptureFixture
) -> None:
    before, refused = Run.objects.values().get(pk=run.pk), refusals()
    assert batch_receive(batch=FORGERIES[forgery](run)).refused
    assert Run.objects.values().get(pk=run.pk) == before
    assert not RunEvent.objects.filter(run=run).exists()
    assert not Checkpoint.objects.filter(run=run).exists()
    assert refusals() == refused + 1
    (line,) = (record.getMessage() for record in caplog.records)
    assert run.pk in line


def refusals() -> int:
    with redis_client() as client:
        return int(client.get(wire.REFUSED_KEY) or 0)


def test_the_worker_that_got_the_job_can_sign_for_it(
    run: Run, wire: FakeWire, tmp_path: Path
) -> None:
    (job,) = wire.jobs
    assert "secret" not in run.attempts.get().spec, "the row, its page and its backup hold none"

    class Line:
        sent: list[dict[str, Any]] = []

        def send(self, message: dict[str, Any]) -> bool:
            self.sent.append(message)
            return True

        def acked(self, run: str, attempt: int) -> None:
            return None

    emitter = Emitter(tmp_path / "events.jsonl", run=run.pk, attempt=1)
    for event in (Opened(), Progress(step=3, eta_s=0.1), Finished(step=3)):
        emitter.write(event)
    emitter.close()
    spool = Spool(tmp_path / "events.jsonl", run=run.pk, attempt=1)
    address: dict[str, Any] = {"run": job["run"], "attempt": job["attempt"]}
    more = {"batch_s": 0.0, "heartbeat_s": 9.0, "clock": lambda: 1.0}
    relay = Relay(spool, Line(), **address, secret=job["secret"], **more)
    relay.tick()
    assert batch_receive(batch=Line.sent[0]).applied == 3
    run.refresh_from_db()
    assert run.state == "finished"
    assert batch_receive(batch=copy.deepcopy(Line.sent[0])).skipped == 3, "and said again"


def test_a_run_that_is_older_than_the_key_reports_on(run: Run, settings: Settings) -> None:
    sent = signed(said(run), secret_of(run.pk, 1))
    settings.SECRET_KEY, former = "a new key", settings.SECRET_KEY
    assert batch_receive(batch=sent).refused
    settings.SECRET_KEY_FALLBACKS = ["older", former]
    assert batch_receive(batch=sent).applied == 3


@pytest.mark.parametrize(
    "uri",
    [
        "runs/{other}/attempt-1/checkpoints/step-5",
        "runs/{run}/../{other}/step-5",
        "runs/{run}",
        "runs/{run}x/step-5",
        "runs/{run}//step-5",
        "/runs/{run}/step-5",
        "./runs/{run}/step-5",
        "snapshots/private",
        "s3://elsewhere/runs/{run}/step-5",
        "runs/{run}/s3://elsewhere",
        "runs/{run}\\..\\step-5",
        "",
    ],
)
@pytest.mark.parametrize("kind", ["CheckpointSaved", "ArtifactSaved", "Generated"])
def test_a_file_outside_the_runs_own_folder_ends_the_run(run: Run, kind: str, uri: str) -> None:
    where = {"uri": uri.format(run=run.pk, other="2222222222"), "sha256": "0" * 64}
    more = {
        "CheckpointSaved": {"step": 5, "size_bytes": 1},
        "ArtifactSaved": {"name": "n", "size_bytes": 1},
        "Generated": {"count": 1, "purpose": "candidates"},
    }
    sent = batch(run, Opened(), Progress(step=1))
    sent["events"][1] |= {"type": kind, "event": where | more[kind]}
    assert batch_receive(batch=signed(sent, secret_of(run.pk, 1))).invalid == 1
    run.refresh_from_db()
    assert (run.state, run.failure_kind, run.fault) == ("failed", "uri_outside_run", "bug")
    assert not Checkpoint.objects.filter(run=run).exists()

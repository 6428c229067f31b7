"""Who may speak for a run: the worker that was given the attempt, and nobody else on the broker."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from apps.training.models import Checkpoint, Run, RunEvent
from apps.training.services import batch_receive
from apps.training.signing import secret_of
from tests.training.conftest import FakeWire
from tests.training.reports import batch, saved
from tests.training.stack import redis_client
from workers.contract import Finished, Opened, Progress, wire
from workers.contract.signing import attempt_secret, signed
from workers.emitter import Emitter
from workers.supervisor.relay import Relay, Spool


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
    relay = Relay(spool, Line(), **address, secret=job["secret"], **more)  # type: ignore[arg-type]
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

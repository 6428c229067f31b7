"""Either side may be upgraded first: what only a newer version reads is kept until that comes."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import User
from apps.training import selectors, services
from apps.training.models import PARKED, Checkpoint, Run, RunAttempt, RunEvent
from apps.training.services.receiving import parked_apply
from tests.training.conftest import FakeWire
from tests.training.reports import batch, measured, report, saved
from tests.training.stack import worker_redis_url
from workers.contract import Finished, Log, Opened, Progress, wire


def newer(run: Run, *events: Any, first: int = 1, only: tuple[int, ...] = ()) -> dict[str, Any]:
    """A batch of a worker of the next version; `only`: numbers of the events that are new."""
    sent = batch(run, *events, first=first)
    for event in sent["events"]:
        if not only or event["seq"] in only:
            event["version"] = 2
    return sent


@pytest.fixture
def upgraded(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From here on the web side is of version 2 as well."""

    def upgrade() -> None:
        monkeypatch.setattr("workers.contract.wire.VERSION", 2)
        monkeypatch.setattr("apps.training.services.receiving.VERSION", 2)

    return upgrade


def types_of(run: Run) -> list[str]:
    rows = RunEvent.objects.filter(run=run).order_by("attempt", "seq")
    return list(rows.values_list("type", flat=True))


def test_a_newer_workers_events_are_parked_and_its_run_goes_on(
    run: Run, wire: FakeWire, emil: User, client: Client, commits: Callable[..., Any]
) -> None:
    sent = newer(run, Opened(), Log(lines=["?"]), Log(lines=["?"]), Progress(step=7), only=(3,))
    sent["events"][1] |= {"type": "FancyNew", "event": {"fancy": [1]}}
    with commits():
        applied = services.events_apply(batch=sent)
    assert (applied.applied, applied.parked, applied.invalid) == (2, 2, 0)
    run.refresh_from_db()
    assert (run.state, run.step, types_of(run)) == (
        "running",
        7,
        ["Opened", PARKED, PARKED, "Progress"],
    )
    assert wire.acks == [(run.pk, 1, 4)], "the worker need not send them again"
    client.force_login(emil)
    page = client.get(reverse("training:run", args=[run.project.slug, run.pk]))
    assert page.context["parked"] == 2
    detail = client.get(f"/api/v1/projects/{run.project.slug}/runs/{run.pk}")
    assert detail.json()["parked_events"] == 2
    report(run, Finished(step=9), first=5)
    assert (run.state, run.step) == ("finished", 9)


def test_after_the_upgrade_parked_events_are_applied_once_and_overtake_nothing(
    run: Run, upgraded: Callable[[], None]
) -> None:
    events = (Opened(), Progress(step=2), measured(1, 3), saved(5, "last", "best"))
    services.events_apply(batch=newer(run, *events))
    report(run, Progress(step=8), saved(9, "last"), measured(4, 6), Finished(step=9), first=5)
    assert services.runs_sweep()["unparked"] == 0, "this side is still the older one"
    upgraded()
    assert [services.runs_sweep()["unparked"], parked_apply()] == [4, 0]
    run.refresh_from_db()
    assert (run.state, run.step) == ("finished", 9)
    assert run.attempts.get().opened_at is not None
    tags = dict(Checkpoint.objects.filter(run=run).values_list("step", "tags"))
    assert tags == {5: ["best"], 9: ["last"]}
    points = selectors.metric_series(run=run)["loss"]
    assert sorted(points) == [(step, float(step)) for step in range(1, 7)]
    assert types_of(run) == [
        "Opened",
        "Progress",
        "CheckpointSaved",
        "Progress",
        "CheckpointSaved",
        "Finished",
    ]


def test_a_parked_event_that_proves_broken_changes_nothing(
    run: Run, upgraded: Callable[[], None]
) -> None:
    sent = newer(run, Opened(), saved(5, "last"), only=(2,))
    sent["events"][1]["event"]["uri"] = "snapshots/private"
    services.events_apply(batch=sent)
    upgraded()
    assert parked_apply() == 1
    run.refresh_from_db()
    assert (run.state, types_of(run)) == ("running", ["Opened", "Invalid"])
    assert not Checkpoint.objects.filter(run=run).exists()


def silent(run: Run, wire: FakeWire) -> None:
    then = timezone.now() - timedelta(hours=1)
    Run.objects.filter(pk=run.pk).update(heard_at=then, dispatched_at=then)
    RunAttempt.objects.filter(run=run).update(created_at=then)
    wire.claimed(run, leased=False)


def test_a_run_whose_end_cannot_be_read_yet_is_not_taken_for_lost(
    run: Run, wire: FakeWire, artifacts: Path, upgraded: Callable[[], None]
) -> None:
    services.events_apply(batch=newer(run, Opened(), Finished(step=9), only=(2,)))
    silent(run, wire)
    assert dict(services.runs_sweep()) == {}
    run.refresh_from_db()
    assert (run.state, run.attempt) == ("running", 1), "nobody trains it again"
    upgraded()
    services.runs_sweep()
    run.refresh_from_db()
    assert (run.state, run.step, run.attempt) == ("finished", 9, 1)


def test_a_run_whose_end_cannot_be_read_can_be_cancelled(
    run: Run, wire: FakeWire, artifacts: Path
) -> None:
    services.events_apply(batch=newer(run, Opened(), Finished(step=9), only=(2,)))
    silent(run, wire)
    services.run_cancel(run=run)
    services.runs_sweep()
    run.refresh_from_db()
    assert run.state == "cancelled"


def test_an_older_worker_lacks_fields_that_have_defaults(run: Run) -> None:
    sent = batch(run, Opened(), Progress(step=3), saved(5, "last"), Finished(step=5))
    for event, kept in zip(
        sent["events"],
        [(), ("step",), ("step", "uri", "sha256", "size_bytes"), ("step",)],
        strict=True,
    ):
        event["event"] = {name: event["event"][name] for name in kept}
    assert services.events_apply(batch=sent).applied == 4
    run.refresh_from_db()
    assert (run.state, run.step) == ("finished", 5)


def test_an_older_workers_queue_note_is_shown_while_the_run_waits(run: Run) -> None:
    services.events_apply(batch=batch(run) | {"note": "waits for a newer worker"})
    run.refresh_from_db()
    assert (run.state, run.phase) == ("queued", "waits for a newer worker")


# A training worker reaches job queues and keys in Redis, and nothing of the web side.
#
# The worker of the stack that the other tests drive has the same rights.


@pytest.fixture
def worker() -> Iterator[redis.Redis]:
    with redis.Redis.from_url(worker_redis_url()) as client:
        yield client


@pytest.mark.parametrize(
    "command",
    [
        ("GET", "concord:1:0123456789abcdef"),  # a cached page, a session
        ("SET", "concord:1:0123456789abcdef", "x"),
        ("LPUSH", wire.QUEUE_DEFAULT, "x"),
        ("LPUSH", wire.QUEUE_IMPORTS, "x"),
        ("HGETALL", "web-unacked"),
        ("SADD", "_kombu.binding.default", "x"),
        ("PUBLISH", "/0.celery.pidbox", "x"),
        ("KEYS", "*"),
        ("SCAN", "0"),
        ("FLUSHALL",),
        ("CONFIG", "GET", "*"),
        ("ACL", "LIST"),
        ("DEBUG", "SLEEP", "0"),
        ("SCRIPT", "FLUSH"),
    ],
    ids=" ".join,
)
def test_what_a_worker_may_not_do(worker: redis.Redis, command: tuple[str, ...]) -> None:
    with pytest.raises(redis.exceptions.NoPermissionError):
        worker.execute_command(*command)


@pytest.mark.parametrize(
    "key", [wire.QUEUE_GPU, wire.QUEUE_GPU_LARGE, wire.QUEUE_CPU, wire.QUEUE_SHORT, "events"]
)
def test_a_worker_reaches_its_queues(worker: redis.Redis, key: str) -> None:
    assert worker.llen(key) >= 0
    assert worker.get(wire.lease_key("absent")) is None

"""The web side's end of the wire, over the real Redis and over none."""

import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from pytest_django.fixtures import Settings

from apps.accounts.models import AuditEvent, User
from apps.common.errors import Conflict
from apps.training import dispatch, services
from apps.training.dispatch import Standing
from apps.training.models import Run
from tests.training.conftest import FakeWire
from tests.training.reports import report
from workers.contract import (
    Cancelled,
    Failed,
    Finished,
    JobSpec,
    Opened,
    Progress,
    spec_to_json,
    wire,
)
from workers.supervisor.connection import Lease, Line

JOB = {"run": "r", "attempt": 3, "queue": "short"}


@pytest.fixture
def client() -> Iterator[redis.Redis]:
    client = redis.Redis.from_url(os.environ["REDIS_URL"])
    client.delete("short")
    yield client
    client.delete("short")
    client.close()


@pytest.fixture
def name() -> str:
    return f"dispatch-{secrets.token_hex(4)}"


@pytest.fixture
def away(settings: Settings) -> None:
    settings.REDIS_URL = "unix:///nonexistent/redis.sock?db=0"


def test_a_job_is_seen_in_its_queue_until_a_worker_takes_it(client: redis.Redis) -> None:
    spec = JobSpec("r", 3, "drill", "p", 1, "/a", queue="short")
    assert dispatch.job_send(spec_to_json(spec), created_at=5.0)
    assert dispatch.jobs_waiting("short") == {("r", 3)}
    message = json.loads(client.rpop("short"))
    assert message["headers"]["task"] == wire.TASK_RUN_JOB
    assert dispatch.jobs_waiting("short") == set()


def test_foreign_messages_in_the_queue_are_passed_over(client: redis.Redis) -> None:
    client.lpush("short", json.dumps({"headers": {}}), json.dumps({"headers": {"concord_job": 5}}))
    client.lpush("short", "no json", json.dumps([1]), json.dumps({"no": "headers"}))
    assert dispatch.jobs_waiting("short") == set()


def test_a_command_reaches_the_supervisor_and_can_be_taken_back(name: str) -> None:
    line = Line(os.environ["REDIS_URL"])
    assert line.command(name) is None
    for command in ("stop", "cancel"):
        assert dispatch.command_send(name, command)
        assert line.command(name) == command
    assert dispatch.command_send(name, "")
    assert line.command(name) is None
    line.close()


def test_an_acknowledgement_reaches_the_supervisor(name: str) -> None:
    line = Line(os.environ["REDIS_URL"])
    assert line.acked(name, 2) is None
    dispatch.ack_send(name, 2, 41)
    assert (line.acked(name, 2), line.acked(name, 1)) == (41, None)
    line.close()


def test_standing_tells_what_a_supervisor_did(client: redis.Redis, name: str) -> None:
    assert dispatch.standing(name) == Standing(leased=False, fence=0)
    lease = Lease(client, run=name, attempt=2, seconds=30)
    assert lease.claim(created_at=time.time() + 60) == "claimed"
    assert dispatch.standing(name) == Standing(leased=True, fence=2)
    assert dispatch.attempt_fence(name, 2) is False
    lease.release()
    assert dispatch.standing(name) == Standing(leased=False, fence=2)
    assert dispatch.attempt_fence(name, 3) is True
    assert dispatch.standing(name) == Standing(leased=False, fence=3)


def test_without_redis_everything_says_so_soon_and_nothing_raises(away: None, name: str) -> None:
    began = time.monotonic()
    assert dispatch.job_send(JOB, created_at=1.0) is False
    assert dispatch.command_send(name, "cancel") is False
    assert dispatch.attempt_fence(name, 1) is None
    assert dispatch.standing(name) is None
    assert dispatch.jobs_waiting("short") is None
    dispatch.ack_send(name, 1, 1)
    assert time.monotonic() - began < 20


# Cancel, stop and keep, resume: what a person commands is stored first and delivered until done.


@pytest.fixture
def running(run: Run) -> Run:
    report(run, Opened(), Progress(step=3))
    return run


def test_a_running_run_is_asked_to_end(
    running: Run, wire: FakeWire, commits: Callable[..., Any], emil: User
) -> None:
    with commits():
        run = services.run_cancel(run=running, user=emil)
        assert wire.commands[-1][1] == "", "nobody is told before it is stored"
    assert (run.state, run.command) == ("stopping", "cancel")
    assert wire.commands[-1] == (run.pk, "cancel")
    report(run, Cancelled(step=4), first=3)
    assert run.state == "cancelled"
    assert AuditEvent.objects.get(action="run.cancelled").actor == emil


def test_a_run_nobody_has_claimed_is_cancelled_at_once_and_fenced(
    run: Run, wire: FakeWire, commits: Callable[..., Any]
) -> None:
    wire.standings.clear()
    with commits():
        services.run_cancel(run=run)
    run.refresh_from_db()
    assert (run.state, run.attempts.get().outcome) == ("cancelled", "cancelled")
    assert wire.standings[run.pk].fence == 1, "its message may still come; it starts nothing"


def test_a_cancel_waits_while_redis_is_away_and_the_sweep_delivers_it(
    run: Run, wire: FakeWire, commits: Callable[..., Any]
) -> None:
    wire.standings.clear()
    wire.reachable = False
    with commits():
        services.run_cancel(run=run)
    run.refresh_from_db()
    assert (run.state, run.command) == ("stopping", "cancel")
    wire.reachable = True
    with commits():
        services.runs_sweep()
    run.refresh_from_db()
    assert run.state == "cancelled"


def test_cancelling_twice_is_cancelling_once(running: Run, emil: User) -> None:
    services.run_cancel(run=running, user=emil)
    services.run_cancel(run=running, user=emil)
    assert AuditEvent.objects.filter(action="run.cancelled").count() == 1


def test_a_stop_can_still_become_a_cancel(running: Run) -> None:
    services.run_stop_and_keep(run=running)
    assert services.run_cancel(run=running).command == "cancel"


def test_a_stopped_run_finishes_and_says_that_it_was_stopped(
    running: Run, wire: FakeWire, commits: Callable[..., Any], emil: User
) -> None:
    with commits():
        run = services.run_stop_and_keep(run=running, user=emil)
    assert wire.commands[-1] == (run.pk, "stop")
    report(run, Finished(step=5, summary={"loss": 1.0}, stopped_early=True), first=3)
    assert (run.state, run.summary) == ("finished", {"loss": 1.0, "stopped_early": True})


def test_a_run_that_has_not_started_has_nothing_to_keep(run: Run) -> None:
    with pytest.raises(Conflict, match="Cancel it instead"):
        services.run_stop_and_keep(run=run)


def test_an_ended_run_can_be_neither_cancelled_nor_stopped(running: Run) -> None:
    report(running, Finished(step=3), first=3)
    with pytest.raises(Conflict, match="cancelled"):
        services.run_cancel(run=running)
    with pytest.raises(Conflict, match="stopped"):
        services.run_stop_and_keep(run=running)


def test_a_failed_run_is_resumed_as_a_new_attempt_without_its_old_command(
    running: Run, wire: FakeWire, commits: Callable[..., Any], emil: User
) -> None:
    services.run_stop_and_keep(run=running)
    report(running, Failed("stop_forced", "user", "It did not stop."), first=3)
    assert running.state == "failed"
    with commits():
        run = services.run_resume(run=running, user=emil)
    assert (run.state, run.attempt, run.command) == ("queued", 2, "")
    assert (run.failure_kind, run.fault, run.ended_at) == ("", "", None)
    assert run.attempts.get(number=2).cause == "resume"
    assert wire.commands[-1] == (run.pk, ""), "or the old command would end the new attempt"
    assert wire.jobs[-1]["attempt"] == 2
    assert AuditEvent.objects.get(action="run.resumed").actor == emil


@pytest.mark.parametrize("state", ["queued", "running", "finished"])
def test_only_what_failed_or_was_cancelled_is_resumed(running: Run, state: str) -> None:
    if state == "finished":
        report(running, Finished(step=3), first=3)
    else:
        Run.objects.filter(pk=running.pk).update(state=state)
    with pytest.raises(Conflict, match=f"The run is {state}"):
        services.run_resume(run=running)

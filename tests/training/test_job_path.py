"""From launch to outcome through the real broker, a real worker and a real child process."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from pytest_django.fixtures import Settings

from apps.accounts.models import Project, User
from apps.common.errors import Conflict
from apps.training import dispatch, selectors, services
from apps.training.models import Run, RunAttempt, RunEvent
from apps.training.selectors.queueing import fleet_state, why_it_waits
from tests.training.reports import points_said, points_stored
from tests.training.stack import Process, Stack, redis_client, wait_until, witnessed
from workers.contract import wire
from workers.contract.fleet import DRAINING_KEY, WORKERS_KEY, Fleet, WorkerReport

pytestmark = [pytest.mark.stack, pytest.mark.spread]
FOR_EVER = {"steps": 100_000, "step_seconds": 0.05}


def in_state(run: Run, *states: str) -> Run:
    wait_until(
        lambda: Run.objects.filter(pk=run.pk, state__in=states).exists(),
        meanwhile=services.runs_sweep,
        what=f"a run that is {states}",
    )
    return Run.objects.get(pk=run.pk)


def at_work(run: Run) -> Run:
    wait_until(lambda: Run.objects.filter(pk=run.pk, step__gte=3).exists(), what="step 3")
    return Run.objects.get(pk=run.pk)


def starts(witness: Path) -> int:
    return sum(record["what"] == "start" for record in witnessed(witness))


def test_a_launched_run_trains_in_a_child_process_and_finishes(
    stack: Stack, drill: Callable[..., Run]
) -> None:
    run = in_state(drill(steps=20, step_seconds=0.02, sample_every=5), "finished")
    assert run.step == run.total_steps == 20
    assert run.summary["steps"] == 20
    assert run.started_at is not None
    assert run.ended_at is not None
    attempt = RunAttempt.objects.get(run=run)
    assert attempt.outcome == "finished"
    assert attempt.environment["pid"] != stack.worker.pid
    assert "celery" in attempt.environment["versions"]
    assert [sample.step for sample in selectors.samples(run=run)] == [20, 15, 10, 5]
    assert selectors.checkpoint_for_use(run).step == 20
    assert ["0 to 20" in line["text"] for line in selectors.log_tail(run=run)] == [True]
    spool = stack.artifacts / f"runs/{run.pk}/attempt-1/events.jsonl"
    said = [json.loads(line) for line in spool.read_text().splitlines()]
    others = [event["seq"] for event in said if event["type"] != "Metrics"]
    assert others == list(RunEvent.objects.filter(run=run).values_list("seq", flat=True))
    assert points_stored(run) == points_said(said)
    wait_until(lambda: not (stack.work / run.pk / "attempt-1").exists(), what="a tidy worker")


def test_a_cancelled_run_ends_politely(
    stack: Stack, drill: Callable[..., Run], emil: User, tmp_path: Path
) -> None:
    run = at_work(drill(**FOR_EVER))
    assert services.run_cancel(run=run, user=emil).state == "stopping"
    run = in_state(run, "cancelled")
    last = RunEvent.objects.filter(run=run).order_by("seq").last()
    assert (last.type, last.body["by_force"]) == ("Cancelled", False)
    assert witnessed(tmp_path / "witness.jsonl")[-1]["what"] == "end"
    assert stack.trainers() == []


def test_a_trainer_deaf_to_a_cancel_is_killed_after_the_grace_time(
    stack: Stack, drill: Callable[..., Run]
) -> None:
    run = at_work(drill(**FOR_EVER, ignore_stop=True))
    services.run_cancel(run=run)
    run = in_state(run, "cancelled")
    last = RunEvent.objects.filter(run=run).order_by("seq").last()
    assert (last.type, last.body["by_force"]) == ("Cancelled", True)
    assert stack.trainers() == []


def test_a_stopped_run_is_kept_and_counts_as_finished(
    stack: Stack, drill: Callable[..., Run]
) -> None:
    run = at_work(drill(**FOR_EVER))
    services.run_stop_and_keep(run=run)
    run = in_state(run, "finished")
    assert run.summary["stopped_early"] is True
    kept = selectors.checkpoint_for_use(run)
    assert kept.step == run.step > 0
    assert (stack.artifacts / kept.uri / "state.json").exists()


def test_a_run_launched_while_the_broker_is_away_starts_when_it_is_back(
    stack: Stack, drill: Callable[..., Run], settings: Settings
) -> None:
    there, settings.REDIS_URL = settings.REDIS_URL, "unix:///nonexistent/redis.sock?db=0"
    run = drill(steps=5)
    assert (run.state, run.dispatched_at) == ("queued", None)
    assert services.runs_sweep() == {"sent": 1}  # tried, and failed again
    assert Run.objects.get(pk=run.pk).dispatched_at is None
    settings.REDIS_URL = there
    assert in_state(run, "finished").attempt == 1


def test_a_doubled_message_starts_the_attempt_once(
    stack: Stack, drill: Callable[..., Run], tmp_path: Path
) -> None:
    run = drill(steps=10)
    for _ in range(3):
        services.run_send(run_id=run.pk, attempt=1)
    run = in_state(run, "finished")
    wait_until(lambda: redis_client().llen(run.queue) == 0, what="all messages taken")
    time.sleep(0.3)
    assert starts(tmp_path / "witness.jsonl") == 1
    assert run.attempt == 1


@pytest.fixture
def absent(stack: Stack) -> Iterator[Process]:
    """The worker takes nothing from the broker until it is told to go on."""
    os.kill(stack.worker.pid, signal.SIGSTOP)
    time.sleep(2)  # what it was asking Redis for a second ago is over
    yield stack.worker
    os.kill(stack.worker.pid, signal.SIGCONT)


def test_a_lost_message_is_sent_again(
    stack: Stack, absent: Process, drill: Callable[..., Run], tmp_path: Path
) -> None:
    run = drill(steps=5)
    assert dispatch.jobs_waiting("cpu") == {(run.pk, 1)}
    redis_client().delete("cpu")  # the broker forgets it
    wait_until(
        lambda: services.runs_sweep()["sent"] == 1, seconds=30, what="the sweep that misses it"
    )
    assert dispatch.jobs_waiting("cpu") == {(run.pk, 1)}
    assert services.runs_sweep()["sent"] == 0, "what waits in the queue is not sent twice"
    os.kill(absent.pid, signal.SIGCONT)
    assert in_state(run, "finished").attempt == 1
    assert starts(tmp_path / "witness.jsonl") == 1


def test_a_cancelled_run_that_still_waits_in_the_queue_never_starts(
    stack: Stack, absent: Process, drill: Callable[..., Run], tmp_path: Path
) -> None:
    run = drill(steps=5)
    assert dispatch.jobs_waiting("cpu") == {(run.pk, 1)}
    assert services.run_cancel(run=run).state == "cancelled"
    os.kill(absent.pid, signal.SIGCONT)
    wait_until(lambda: redis_client().llen("cpu") == 0, what="the message taken")
    time.sleep(0.5)
    assert starts(tmp_path / "witness.jsonl") == 0


def test_a_worker_that_shuts_down_hands_its_run_on_without_using_up_an_attempt(
    stack: Stack, drill: Callable[..., Run], tmp_path: Path, settings: Settings
) -> None:
    settings.RUN_MAX_ATTEMPTS = 1
    hold = {"hold_after": 5, "hold_file": str(tmp_path / "never")}
    run = at_work(drill(steps=20, step_seconds=0.01, checkpoint_every=1000, **hold))
    assert stack.worker.terminate() == 0
    assert stack.trainers() == []
    stack.worker.start()
    run = in_state(run, "finished")
    first, second = RunAttempt.objects.filter(run=run)
    assert (first.outcome, second.outcome) == ("interrupted", "finished")
    assert second.resumed_from_step == 5, "a checkpoint was saved on the way out"
    steps = [step for step, _ in selectors.metric_series(run=run)["drill/value"]]
    assert steps == list(range(1, 21))
    assert [r["what"] for r in witnessed(tmp_path / "witness.jsonl")] == ["start", "end"] * 2


@pytest.mark.parametrize(
    ("fault", "kind", "whose"),
    [
        ("data", "bad_data", "data"),
        ("violation", "contract_violation", "bug"),
    ],
)
def test_a_failure_that_would_come_again_is_final_and_says_whose_turn_it_is(
    stack: Stack, drill: Callable[..., Run], fault: str, kind: str, whose: str
) -> None:
    run = in_state(drill(steps=40, step_seconds=0.05, fault=fault, fault_at=2), "failed")
    assert (run.failure_kind, run.fault, run.attempt) == (kind, whose, 1)
    assert run.failure_message
    wait_until(lambda: not stack.trainers(), what="the end of its trainer")


def test_a_crash_that_comes_every_time_is_given_up_after_the_last_attempt(
    stack: Stack, drill: Callable[..., Run]
) -> None:
    run = in_state(drill(steps=9, fault="segv", fault_at=3, fault_attempts=99), "failed")
    assert (run.failure_kind, run.attempt) == ("crashed", 3)
    assert "SIGSEGV" in run.failure_message


def test_a_run_that_waits_for_another_starts_from_its_final_checkpoint(
    stack: Stack, drill: Callable[..., Run], project: Project
) -> None:
    first = drill(steps=10, step_seconds=0.05)
    second = services.run_launch(
        project=project, kind="drill", name="on top", config={"steps": 3}, inputs={"base": first}
    )
    assert (second.state, second.attempt) == ("waiting", 0)
    assert in_state(second, "finished").attempt == 1
    (given,) = RunAttempt.objects.get(run=second).spec["inputs"]
    assert (given["role"], given["id"]) == ("base", selectors.checkpoint_for_use(first).pk)


def test_a_resumed_run_continues_where_its_cancelled_attempt_had_saved(
    stack: Stack, drill: Callable[..., Run], tmp_path: Path
) -> None:
    hold = {"hold_after": 7, "hold_file": str(tmp_path / "never")}
    run = at_work(drill(steps=30, step_seconds=0.01, checkpoint_every=3, **hold))
    services.run_cancel(run=run)
    run = services.run_resume(run=in_state(run, "cancelled"))
    assert (run.state, run.attempt, run.command) == ("queued", 2, "")
    assert RunAttempt.objects.get(run=run, number=2).resumed_from_step == 6
    run = in_state(run, "finished")
    steps = [step for step, _ in selectors.metric_series(run=run)["drill/value"]]
    assert steps == list(range(1, 31))
    with pytest.raises(Conflict, match="failed or cancelled"):
        services.run_resume(run=run)


def test_the_spool_of_a_run_given_up_as_lost_can_be_replayed(
    stack: Stack, drill: Callable[..., Run], settings: Settings, tmp_path: Path
) -> None:
    settings.RUN_MAX_ATTEMPTS = 1
    go_on = tmp_path / "go on"
    hold = {"hold_after": 12, "hold_file": str(go_on)}
    run = at_work(drill(steps=40, step_seconds=0.01, checkpoint_every=5, **hold))
    stack.events.kill()  # the machine is cut off: what it says arrives nowhere
    go_on.touch()
    spool = stack.artifacts / f"runs/{run.pk}/attempt-1/events.jsonl"
    wait_until(lambda: '"Finished"' in spool.read_text(), what="the end of training")
    stack.worker.close()  # with its children: one of them would put the spool back
    wait_until(lambda: not stack.trainers(), what="no trainer left")
    assert Run.objects.get(pk=run.pk).state == "running"
    copy = tmp_path / "spool.jsonl"
    copy.write_bytes(spool.read_bytes())
    spool.unlink()
    redis_client().delete(wire.QUEUE_EVENTS)
    run = in_state(run, "failed")
    assert run.failure_kind == "lost"
    out = StringIO()
    call_command("replay_events", str(copy), stdout=out)
    run.refresh_from_db()
    assert (run.state, run.step, run.failure_kind) == ("finished", 40, "")
    again = StringIO()
    call_command("replay_events", str(copy), stdout=again)
    assert "applied     0" in again.getvalue()
    steps = [step for step, _ in selectors.metric_series(run=run)["drill/value"]]
    assert steps == list(range(1, 41))


def test_a_second_run_waits_in_the_database_until_the_workers_slot_is_free(
    stack: Stack, drill: Callable[..., Run], tmp_path: Path
) -> None:
    """The real report of the worker, read back: one slot for each of its classes, and its run."""
    with redis_client() as client:  # a worker killed by an earlier test counts for half a minute
        client.delete(WORKERS_KEY)
    busy = at_work(drill(**FOR_EVER, witness=str(tmp_path / "busy.jsonl")))
    fleet = wait_until(lambda: told_by_worker(busy), what="a report that names the run")
    run = drill(steps=5)
    assert (dispatch.jobs_waiting("cpu"), run.admitted_at) == (set(), None)
    assert (fleet.slots("cpu"), fleet.slots("gpu"), fleet.slots("short")) == (1, 1, 0)
    assert "torch" in fleet.workers[0].versions
    assert "in use" in why_it_waits(run)
    services.run_cancel(run=busy)
    assert in_state(run, "finished").attempt == 1


def test_a_drained_worker_ends_what_it_is_at_and_takes_nothing_also_after_a_restart(
    stack: Stack, held: Callable[..., Run], go_on: Callable[[], None], drill: Callable[..., Run]
) -> None:
    with redis_client() as client:
        client.delete(WORKERS_KEY)
    first = held()
    fleet = wait_until(lambda: told_by_worker(first), what="a report that names the run")
    name = fleet.workers[0].name
    try:
        assert services.worker_drain(name=name)
        wait_until(lambda: drained(name), what="a report that says so")
        second = drill(steps=5)
        assert "is draining" in why_it_waits(second)
        go_on()
        assert in_state(first, "finished").attempt == 1
        stack.worker.terminate()
        started_at = time.time()
        stack.revive()
        again = wait_until(lambda: drained(name, since=started_at), what="the same after a restart")
        assert again.runs == ()
        # What it took before it knew, it has put back.
        waits = {(second.pk, 1)}
        wait_until(lambda: dispatch.jobs_waiting("cpu") == waits, what="a job that nobody takes")
        second.refresh_from_db()
        assert second.state == "queued"
        services.worker_resume(name=name)
        assert in_state(second, "finished").attempt == 1
    finally:
        with redis_client() as client:
            client.delete(DRAINING_KEY)


def test_a_job_that_comes_to_a_drained_worker_is_put_back(
    stack: Stack, drill: Callable[..., Run]
) -> None:
    """It may have asked the broker for one before it heard."""
    with redis_client() as client:
        client.delete(WORKERS_KEY)
        fleet = wait_until(
            lambda: (told := fleet_state()) and told.workers and told, what="a worker that reports"
        )
        client.sadd(DRAINING_KEY, fleet.workers[0].name)
        try:
            run = drill(steps=5)
            wait_until(lambda: drained(fleet.workers[0].name), what="a report that says so")
            waits = {(run.pk, 1)}
            wait_until(lambda: dispatch.jobs_waiting("cpu") == waits, what="the job in its queue")
            assert dispatch.standing(run.pk) == dispatch.Standing(False, 0), "nobody claimed it"
        finally:
            client.delete(DRAINING_KEY)
    assert in_state(run, "finished").attempt == 1


def drained(name: str, *, since: float = 0.0) -> WorkerReport | None:
    told = fleet_state()
    for worker in told.workers if told else ():
        if worker.name == name and worker.draining and worker.started_at >= since:
            return worker
    return None


def told_by_worker(run: Run) -> Fleet | None:
    told = fleet_state()
    return told if told and any(run.pk in worker.runs for worker in told.workers) else None

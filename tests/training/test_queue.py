"""Admission: who gets a slot of a machine class, in which order, and why the others wait."""

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models import F
from django.utils import timezone
from pytest_django.fixtures import Settings

from apps.accounts.models import AuditEvent, Project, User
from apps.common.errors import Conflict, DomainError
from apps.training import services
from apps.training.models import Run, RunAttempt
from apps.training.selectors.queueing import queue_words, span, why_it_waits
from apps.training.selectors.quotas import gpu_hours_used
from apps.training.selectors.space import space_used
from tests.training import reports
from tests.training.conftest import FakeWire, worker_make
from tests.training.reports import report
from workers.config import as_trained
from workers.contract import Failed, Fault, Finished, Opened
from workers.contract.fleet import Gpu

Commits = Callable[..., AbstractContextManager[Any]]
Launch = Callable[..., Run]


@pytest.fixture
def launch(
    project: Project, wire: FakeWire, artifacts: Any, commits: Commits
) -> Callable[..., Run]:
    """A drill on the one slot of class cpu, unless something else is said."""
    wire.workers = [worker_make("train@box")]

    def make(name: str, **more: Any) -> Run:
        given = {"project": project, "kind": "drill", "config": {}, "inputs": {}} | more
        given["config"] = as_trained(given["kind"], given["config"])
        with commits():
            run = services.run_launch(name=name, **given)
        run.refresh_from_db()
        return run

    return make


def sent(wire: FakeWire) -> list[str]:
    """The names of the runs whose jobs were sent, in that order."""
    names = dict(Run.objects.values_list("pk", "name"))
    return [names[job["run"]] for job in wire.jobs]


def end(run: Run, commits: Commits) -> None:
    with commits():
        report(run, Opened(), Finished(step=1))


def test_a_class_gets_as_many_runs_as_it_has_slots_and_the_next_when_one_ends(
    launch: Launch, wire: FakeWire, commits: Commits
) -> None:
    wire.workers = [worker_make("a@box", slots=2), worker_make("b@box", queues=("gpu",))]
    runs = [launch(name) for name in "abcd"]
    assert sent(wire) == ["a", "b"]
    assert [run.admitted_at is None for run in runs] == [False, False, True, True]
    end(runs[0], commits)
    assert sent(wire) == ["a", "b", "c"]


def test_a_class_without_a_worker_gets_one_run_and_says_that_nobody_is_there(
    launch: Launch, wire: FakeWire
) -> None:
    wire.workers, wire.heard = [], {"cpu": timezone.now().timestamp() - 180}
    first, second = launch("first"), launch("second")
    assert sent(wire) == ["first"]
    silence = "No worker of class cpu has been heard for 3 min; it starts when one comes."
    assert why_it_waits(first) == f"Sent. {silence}"
    assert why_it_waits(second).endswith(f"in use. {silence}")


def test_priority_goes_before_age_and_a_place_before_both_of_its_kind(
    launch: Launch, wire: FakeWire, commits: Commits, emil: User
) -> None:
    runs = {name: launch(name) for name in ("now", "a", "b", "c")}
    runs["high"] = launch("high", priority=Run.Priority.HIGH)
    runs["low"] = launch("low", priority=Run.Priority.LOW)
    assert why_it_waits(runs["low"]) == "4 runs before it."
    assert why_it_waits(runs["a"]) == "1 run before it."
    with commits():
        services.run_move(run=runs["c"], to="first", user=emil)
        services.run_move(run=runs["a"], to="down", user=emil)
        services.run_prioritise(run=runs["low"], priority=Run.Priority.HIGH, user=emil)
    for name in ("now", "high", "low", "c", "b"):
        end(runs[name], commits)
    assert sent(wire) == ["now", "high", "low", "c", "b", "a"]
    actions = list(AuditEvent.objects.filter(actor=emil).values_list("action", flat=True))
    assert sorted(actions) == ["run.moved", "run.moved", "run.prioritised"]


def test_moving_a_run_changes_no_place_of_another_project(
    launch: Launch, wire: FakeWire, commits: Commits
) -> None:
    other = Project.objects.create(slug="other", name="Other")
    launch("now")
    launch("mine 1")
    theirs = [launch("theirs 1", project=other), launch("theirs 2", project=other)]
    mine = launch("mine 2")
    places = [run.place for run in theirs]
    with commits():
        services.run_move(run=mine, to="first")
    waiting = Run.objects.filter(admitted_at=None).order_by("place")
    assert [run.name for run in waiting] == ["mine 2", "theirs 1", "theirs 2", "mine 1"]
    assert [Run.objects.get(pk=run.pk).place for run in theirs] == places


def test_a_quota_holds_a_projects_runs_back_and_lets_others_pass(
    launch: Launch, wire: FakeWire, commits: Commits, project: Project, ada: User
) -> None:
    other = Project.objects.create(slug="other", name="Other")
    wire.workers = [worker_make("train@box", slots=3)]
    services.quota_set(project=project, runs_at_once=1, user=ada)
    runs = {name: launch(name) for name in ("mine 1", "mine 2")}
    launch("theirs", project=other)
    assert sent(wire) == ["mine 1", "theirs"]
    assert "quota of 1 run" in why_it_waits(runs["mine 2"])
    with commits():
        services.quota_set(project=project, runs_at_once=None, user=ada)
    assert sent(wire)[-1] == "mine 2"


def gpu_hours_spent(launch: Launch, project: Project, commits: Commits, hours: float) -> Run:
    """A run that ended a day ago, on two GPUs; another project's, and an older one, beside it."""
    now = timezone.now()
    rows = ((project, 1), (Project.objects.create(slug="elsewhere", name="Elsewhere"), 1))
    for whose, days in (*rows, (project, 40)):
        run = launch("before", project=whose, queue="gpu")
        end(run, commits)
        ended = now - timedelta(days=days)
        run.attempts.update(
            opened_at=ended - timedelta(hours=hours / 2),
            ended_at=ended,
            environment={"world_size": 2},
        )
    return run


def test_gpu_hours_of_thirty_days_hold_runs_on_gpus_back_until_they_are_older(
    launch: Launch, wire: FakeWire, commits: Commits, project: Project, ada: User
) -> None:
    wire.workers = [worker_make("all@box", slots=9, queues=("cpu", "gpu"))]
    gpu_hours_spent(launch, project, commits, 10.0)
    assert gpu_hours_used(project.pk) == pytest.approx(10.0, abs=0.01)
    before = len(sent(wire))
    services.quota_set(project=project, gpu_hours=10, user=ada)
    held = launch("held", queue="gpu")
    launch("on a processor")
    assert sent(wire)[before:] == ["on a processor"]
    assert "10.0 of its 10 GPU hours" in why_it_waits(held)
    with commits():
        services.quota_set(project=project, gpu_hours=11, user=ada)
    assert sent(wire)[-1] == "held"


def test_what_a_project_says_of_itself_does_not_lift_the_quota_of_the_site(
    launch: Launch, wire: FakeWire, commits: Commits, project: Project, settings: Settings
) -> None:
    wire.workers = [worker_make("all@box", slots=9, queues=("cpu", "gpu"))]
    gpu_hours_spent(launch, project, commits, 10.0)
    settings.PROJECT_GPU_HOURS, settings.PROJECT_SPACE_GB = 9, 2
    services.quota_set(project=project, gpu_hours=1000, space_bytes=10**15)
    assert "of its 9 GPU hours" in why_it_waits(launch("held", queue="gpu"))
    assert space_used(project).quota == 2 * 10**9


def test_the_slot_of_a_worker_of_two_classes_is_given_once_and_by_priority(
    launch: Launch, wire: FakeWire, commits: Commits
) -> None:
    wire.workers = [worker_make("both@box", queues=("cpu", "gpu"))]
    first = launch("first")
    other, urgent = launch("other", queue="gpu"), launch("urgent", priority=Run.Priority.HIGH)
    assert sent(wire) == ["first"]
    assert "also serve cpu" in why_it_waits(other)
    assert "in use" in why_it_waits(urgent)
    end(first, commits)
    assert sent(wire) == ["first", "urgent"]


def test_a_check_does_not_wait_for_the_quota_of_trainings(
    launch: Launch, wire: FakeWire, project: Project
) -> None:
    wire.workers = [worker_make("all@box", slots=9, queues=("cpu", "short"))]
    services.quota_set(project=project, runs_at_once=1)
    launch("training")
    Run.objects.filter(pk=launch("check").pk).update(queue="short")  # a drill stands for a check
    assert sent(wire) == ["training"]
    launch("held")
    assert sent(wire) == ["training", "check"]


@pytest.mark.parametrize("number", [0, 1001, -1])
def test_a_quota_that_is_no_number_of_runs_is_refused(project: Project, number: int) -> None:
    with pytest.raises(DomainError) as refusal:
        services.quota_set(project=project, runs_at_once=number)
    assert (refusal.value.field, refusal.value.code) == ("runs_at_once", "bad_quota")


def test_a_run_that_lost_its_machine_goes_on_before_all_that_wait(
    launch: Launch, wire: FakeWire, commits: Commits
) -> None:
    first = launch("first", priority=Run.Priority.LOW)
    launch("urgent", priority=Run.Priority.HIGH)
    with commits():
        report(
            first, Opened(), Failed("lost", Fault.MACHINE, "its machine is gone", retryable=True)
        )
    assert sent(wire) == ["first", "first"]
    first.refresh_from_db()
    assert (first.attempt, first.goes_on) == (2, True)


def test_a_run_that_waits_for_a_slot_is_cancelled_at_once_and_never_sent(
    launch: Launch, wire: FakeWire, commits: Commits
) -> None:
    first, second = launch("first"), launch("second")
    with commits():
        services.run_cancel(run=second)
    second.refresh_from_db()
    assert second.state == "cancelled"
    assert RunAttempt.objects.get(run=second).outcome == "cancelled"
    end(first, commits)
    assert sent(wire) == ["first"]


def test_the_sweep_admits_what_a_killed_process_left_waiting(
    launch: Launch, wire: FakeWire, commits: Commits, project: Project
) -> None:
    services.run_launch(project=project, kind="drill", name="left", config={}, inputs={})
    assert sent(wire) == [], "its transaction's callbacks were never run"
    with commits():
        services.runs_sweep()
    assert sent(wire) == ["left"]


def test_a_run_with_a_slot_can_no_longer_be_moved_or_raised(launch: Launch, wire: FakeWire) -> None:
    run = launch("first")
    for change in (
        lambda: services.run_move(run=run, to="up"),
        lambda: services.run_prioritise(run=run, priority=2),
    ):
        with pytest.raises(Conflict) as refusal:
            change()
        assert refusal.value.code == "run_has_slot"


GPUS = (Gpu("H200"), Gpu("H200"))
DEEPSPEED = {"deepspeed": "0.19"}


@pytest.mark.parametrize(
    ("needs", "workers", "words"),
    [
        (
            {"layout": "zero3", "processes": 2},
            [("a@one", {}), ("b@two", {})],
            "It needs deepspeed: none of the 2 machines of class gpu has it.",
        ),
        (
            {"layout": "fsdp", "processes": 4},
            [("a@one", {"gpus": GPUS}), ("b@two", {"gpus": GPUS[:1]})],
            "It needs 4 GPUs: the largest machine of class gpu has 2.",
        ),
        (
            {"config": {"rollout_workers": 2}},
            [("a@one", {})],
            "It needs ray: the machine of class gpu does not have it.",
        ),
        (
            {"config": {"server": {"update_weights": True}}},
            [("a@one", {})],
            "It needs vllm: the machine of class gpu does not have it.",
        ),
        (
            {"config": {"rollout_engine": "vllm"}},
            [("a@one", {})],
            "It needs vllm: the machine of class gpu does not have it.",
        ),
        (
            {"layout": "zero2", "processes": 2},
            [
                ("a@one", {"gpus": GPUS}),
                ("b@two", {"gpus": GPUS[:1], "versions": {"deepspeed": "1"}}),
            ],
            "No single machine of class gpu has the GPUs and the packages that it needs: 2 GPUs, "
            "deepspeed.",
        ),
    ],
)
def test_what_no_machine_can_do_is_held_with_the_reason_and_lets_others_pass(
    launch: Launch,
    wire: FakeWire,
    commits: Commits,
    needs: dict[str, Any],
    workers: list[tuple[str, dict[str, Any]]],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A drill has no settings for Ray or a server; the queue reads those of any kind.
    monkeypatch.setattr("apps.training.services.launching.settings_for", lambda *_, **__: None)
    wire.workers = [worker_make(name, queues=("gpu",), **more) for name, more in workers]
    run = launch("large", queue="gpu", **needs)
    launch("small", queue="gpu")
    assert why_it_waits(run) == words
    assert sent(wire) == ["small"]
    packages = {"deepspeed": "1", "ray": "2", "vllm": "3"}
    able = worker_make("c@three", queues=("gpu",), gpus=GPUS * 2, versions=packages)
    wire.workers.append(able)
    with commits():
        services.runs_sweep()
    assert sent(wire) == ["small", "large"]
    assert wire.jobs[-1]["layout"] == needs.get("layout", "one")


# Workers that are drained.


def drain(wire: FakeWire, commits: Commits, name: str, **more: Any) -> bool:
    with commits():
        return services.worker_drain(name=name, **more)


def test_a_drained_worker_gets_no_run_until_it_takes_runs_again(
    launch: Launch, wire: FakeWire, commits: Commits, emil: User, project: Project
) -> None:
    wire.workers = [worker_make("a@box"), worker_make("b@box")]
    assert drain(wire, commits, "a@box", project=project, user=emil)
    assert not drain(wire, commits, "a@box", project=project, user=emil)
    assert wire.draining == {"a@box"}
    for name in ("first", "second"):
        launch(name)
    assert sent(wire) == ["first"]
    with commits():
        assert services.worker_resume(name="a@box", project=project, user=emil)
        assert not services.worker_resume(name="a@box", project=project, user=emil)
    assert sent(wire) == ["first", "second"]
    assert wire.draining == set()
    told = AuditEvent.objects.filter(actor=emil, project=project, subject="a@box")
    assert list(told.order_by("pk").values_list("action", flat=True)) == [
        "worker.drained",
        "worker.resumed",
    ]


def test_a_run_at_a_drained_worker_takes_no_slot_of_another(
    launch: Launch, wire: FakeWire, commits: Commits
) -> None:
    wire.workers = [worker_make("a@box"), worker_make("b@box")]
    first = launch("first")
    wire.workers[0] = worker_make("a@box", runs=(first.pk,))
    drain(wire, commits, "a@box")
    for name in ("second", "third"):
        launch(name)
    assert sent(wire) == ["first", "second"]


def test_where_every_worker_of_a_class_is_drained_waiting_runs_say_so(
    launch: Launch, wire: FakeWire, commits: Commits
) -> None:
    first = launch("first")
    drain(wire, commits, "train@box")
    second = launch("second")
    for run in (first, second):
        assert "worker of class cpu is draining" in why_it_waits(run)


def test_a_run_that_only_a_drained_worker_can_do_names_it(
    launch: Launch, wire: FakeWire, commits: Commits
) -> None:
    gpus = tuple(Gpu("H200") for _ in range(4))
    wire.workers = [
        worker_make("big@box", queues=("gpu",), gpus=gpus, versions={"torch": "2"}),
        worker_make("small@box", queues=("gpu",), gpus=gpus[:1], versions={"torch": "2"}),
    ]
    drain(wire, commits, "big@box")
    run = launch("wide", queue="gpu")
    Run.objects.filter(pk=run.pk).update(layout="data", processes=4, admitted_at=None)
    run.refresh_from_db()
    said = why_it_waits(run)
    assert "It needs 4 GPUs" in said
    assert "big@box could do it, and is draining" in said


def test_a_worker_that_nobody_hears_cannot_be_drained_by_a_slip(
    launch: Launch, wire: FakeWire
) -> None:
    with pytest.raises(DomainError) as refused:
        services.worker_drain(name="trian@box")
    assert (refused.value.code, refused.value.field) == ("unknown_worker", "worker")


def test_the_sweep_tells_again_what_redis_forgot(
    launch: Launch, wire: FakeWire, commits: Commits
) -> None:
    drain(wire, commits, "train@box")
    wire.draining = set()
    services.runs_sweep()
    assert wire.draining == {"train@box"}


def test_the_command_drains_tells_and_takes_back(
    launch: Launch, wire: FakeWire, commits: Commits, capsys: pytest.CaptureFixture[str]
) -> None:
    with commits():
        call_command("drain", "train@box")
    wire.workers = [worker_make("train@box", draining=True)]
    call_command("drain")
    assert "train@box: idle, drained" in capsys.readouterr().out
    with commits():
        call_command("drain", "train@box", "--off")
    call_command("drain")
    assert "No worker is drained" in capsys.readouterr().out
    with pytest.raises(CommandError):
        call_command("drain", "nobody@box")


def test_words_name_the_broker_when_it_is_away(launch: Launch, wire: FakeWire) -> None:
    wire.reachable = False
    run = launch("one")
    assert queue_words()[run.pk].startswith("Redis")


def test_spans_are_told_in_one_unit() -> None:
    assert [span(s) for s in (12.2, 61, 7200, 172_800)] == ["12 s", "1 min", "2 h", "2 d"]


@pytest.mark.django_db(transaction=True)
def test_launches_at_the_same_moment_never_give_more_slots_than_there_are(
    project: Project, wire: FakeWire, artifacts: Any
) -> None:
    """Threads of their own connections, all of which admit at once, then all runs end at once."""
    wire.workers = [worker_make("train@box", slots=3)]

    def together(acts: list[Callable[[], Any]]) -> None:
        gate, problems = threading.Barrier(len(acts)), []

        def do(act: Callable[[], Any]) -> None:
            try:
                gate.wait(30)
                act()
            except Exception as error:
                problems.append(error)
            finally:
                connection.close()

        threads = [threading.Thread(target=do, args=(act,)) for act in acts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert problems == []

    def one(number: int) -> Callable[[], Run]:
        return lambda: services.run_launch(
            project=project, kind="drill", name=str(number), config={}, inputs={}
        )

    together([one(number) for number in range(8)])
    holding = Run.objects.filter(admitted_at__isnull=False, ended_at=None)
    assert (holding.count(), len(wire.jobs)) == (3, 3)
    together([lambda run=run: services.run_cancel(run=run) for run in holding])
    services.runs_sweep()
    assert holding.count() == 3
    assert len({job["run"] for job in wire.jobs}) == len(wire.jobs) == 6


def test_a_run_that_failed_at_once_waits_longer_each_time_and_lets_others_pass(
    launch: Launch,
    wire: FakeWire,
    commits: Commits,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings.RUN_RETRY_SECONDS = 100
    settings.RUN_MAX_ATTEMPTS = 9
    run = launch("fails")
    broken = Failed("killed", "machine", "It was killed.", retryable=True)

    def fail(attempt: int, *, lasted: float = 2.0) -> None:
        monkeypatch.setattr(reports, "AT", time.time() - lasted)
        with commits():
            report(run, Opened(), broken, attempt=attempt)
        run.refresh_from_db()

    def wait(seconds: float) -> None:
        """As if the last attempt had ended so long ago."""
        longer = timedelta(seconds=seconds)
        RunAttempt.objects.filter(run=run, ended_at__isnull=False).update(
            opened_at=F("opened_at") - longer, ended_at=F("ended_at") - longer
        )
        with commits():
            services.runs_admit()
        run.refresh_from_db()

    fail(1)
    assert run.admitted_at is None
    assert why_it_waits(run) == "Its last attempt failed at once: it is tried again in 2 min."
    another = launch("another")
    assert another.admitted_at is not None, "it passes"
    end(another, commits)
    wait(20)
    assert run.admitted_at is None
    wait(81)
    assert run.admitted_at is not None
    fail(2)
    assert why_it_waits(run).endswith("in 3 min.")
    RunAttempt.objects.filter(run=run, number=3).update(resumed_from_step=40)
    assert not why_it_waits(run).startswith("Its last attempt"), "it went further than before"
    RunAttempt.objects.filter(run=run, number=3).update(resumed_from_step=None)
    wait(201)
    fail(3, lasted=3_600.0)
    assert run.admitted_at is not None, "an hour of work is continued at once"

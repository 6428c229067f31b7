"""Groups of seeds: launched together or not at all, alike but for their seed, and read as one
result that hides no run."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from apps.accounts.models import AuditEvent, Project, User
from apps.common.errors import Conflict, DomainError, Missing
from apps.training import selectors, services
from apps.training.models import Run, RunAttempt
from apps.training.screens.seeds import seed_metric_views, sweep_of
from tests.training.conftest import FakeWire

DRILL = {"kind": "drill", "name": "warm-up", "config": {"steps": 5}, "inputs": {}}


@pytest.fixture
def launch(project: Project, wire: FakeWire) -> Callable[..., list[Run]]:
    def make(**changes: Any) -> list[Run]:
        return services.runs_launch(**({"project": project, "seeds": 3} | DRILL | changes))

    return make


def measure(run: Run, name: str, values: list[Any], *, state: str = "finished") -> None:
    """`run`, ended in `state` after one value a step."""
    RunAttempt.objects.get_or_create(run=run, number=max(run.attempt, 1))
    services.metrics_store(
        run=run, attempt=max(run.attempt, 1), series={name: list(enumerate(values, 1))}
    )
    Run.objects.filter(pk=run.pk).update(
        state=state,
        ended_at="2026-11-22T00:00Z",
        failure_kind="guard_x" if state == "failed" else "",
    )
    run.refresh_from_db()


def test_three_seeds_are_three_runs_of_one_group_named_by_their_seed(
    launch: Callable[..., list[Run]], wire: FakeWire, commits: Callable[..., Any], emil: User
) -> None:
    with commits():
        runs = launch(seed=7, user=emil)
    assert [run.seed for run in runs] == [7, 8, 9]
    assert [run.name for run in runs] == [f"warm-up, seed {seed}" for seed in (7, 8, 9)]
    assert len({run.group for run in runs}) == 1
    assert runs[0].group
    assert sorted(job["seed"] for job in wire.jobs) == [7, 8, 9]
    details = AuditEvent.objects.filter(action="run.launched").values_list("details", flat=True)
    assert {one["group"] for one in details} == {runs[0].group}


def test_one_seed_is_a_run_of_no_group(launch: Callable[..., list[Run]]) -> None:
    (run,) = launch(seeds=1, seed=4)
    assert (run.group, run.name, run.seed) == ("", "warm-up", 4)


def test_the_same_key_gives_the_same_runs(launch: Callable[..., list[Run]]) -> None:
    first = launch(idempotency_key="k" * 80)
    again = launch(idempotency_key="k" * 80)
    assert [run.pk for run in first] == [run.pk for run in again]
    assert Run.objects.count() == 3


def test_what_fails_for_one_seed_launches_none(
    launch: Callable[..., list[Run]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from apps.training.services import groups

    real, calls = groups.run_launch, []

    def breaks(**given: Any) -> Run:
        calls.append(given)
        if len(calls) == 3:
            raise Conflict("no")
        return real(**given)

    monkeypatch.setattr(groups, "run_launch", breaks)
    with pytest.raises(Conflict):
        launch()
    assert len(calls) == 3
    assert not Run.objects.exists()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"seeds": 0}, "bad_seeds"),
        ({"seeds": 21}, "bad_seeds"),
        ({"seeds": True}, "bad_seeds"),
        ({"seed": 2**63 - 1}, "bad_seed"),
        ({"name": " "}, "bad_name"),
        ({"group": "nobodys"}, "not_found"),
        ({"group": "a\x00"}, "not_found"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_stored(
    launch: Callable[..., list[Run]], changes: dict[str, Any], code: str
) -> None:
    with pytest.raises(DomainError) as refusal:
        launch(**changes)
    assert refusal.value.code == code
    assert not Run.objects.exists()


def test_only_runs_that_are_alike_join_a_group(launch: Callable[..., list[Run]]) -> None:
    group = launch()[0].group
    with pytest.raises(Conflict, match="the configuration"):
        launch(group=group, seed=10, config={"steps": 6})
    with pytest.raises(Conflict, match="seed 2 already"):
        launch(group=group, seed=2)
    (fourth,) = launch(group=group, seed=3, seeds=1)
    assert (fourth.group, fourth.name) == (group, "warm-up, seed 3")


def test_more_seeds_go_on_after_the_highest(
    launch: Callable[..., list[Run]], project: Project
) -> None:
    group = launch(seed=7)[0].group
    added = services.seeds_add(project=project, group=group, seeds=2)
    assert [run.seed for run in added] == [10, 11]
    assert [run.name for run in added] == ["warm-up, seed 10", "warm-up, seed 11"]
    assert {run.group for run in added} == {group}


def test_a_group_of_another_project_does_not_exist(launch: Callable[..., list[Run]]) -> None:
    group = launch()[0].group
    other = Project.objects.create(slug="other", name="Other")
    with pytest.raises(Missing):
        selectors.group_runs(project=other, group=group)
    with pytest.raises(Missing):
        services.seeds_add(project=other, group=group, seeds=1)
    with pytest.raises(Missing):
        selectors.group_runs(project=other, group="")


@pytest.mark.django_db(transaction=True)
def test_two_clicks_at_once_launch_one_group(project: Project, wire: FakeWire) -> None:
    found: list[list[str]] = []
    ready = threading.Barrier(2)

    def click() -> None:
        ready.wait()
        runs = services.runs_launch(project=project, seeds=3, idempotency_key="twice", **DRILL)
        found.append([run.pk for run in runs])
        connection.close()

    threads = [threading.Thread(target=click) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] == found[1]
    assert Run.objects.count() == 3


# --- what they come to ---


def test_the_mean_is_over_finished_seeds_and_every_run_keeps_its_last_figure(
    launch: Callable[..., list[Run]],
) -> None:
    """By hand: final figures 2, 4 and 6: mean 4, s = 2, t(2) = 4.3027, so ± 4.968."""
    one, two, three = launch()
    four = launch(seeds=1, seed=3, group=one.group)[0]
    for run, last in ((one, 2.0), (two, 4.0), (three, 6.0)):
        measure(run, "drill/value", [0.0, last])
    measure(four, "drill/value", [100.0], state="failed")
    (figure,) = selectors.group_metrics([one, two, three, four])
    assert figure.final.value == 4
    assert figure.final.n == 3
    assert figure.final.high == pytest.approx(4 + 4.968, abs=1e-3)
    assert figure.last[four.pk] == (1, 100.0)
    assert [(step, at.n) for step, at in figure.steps] == [(1, 4), (2, 3)]
    assert figure.steps[0][1].value == 25


def test_what_is_no_number_is_left_out_and_told(launch: Callable[..., list[Run]]) -> None:
    one, two, _ = launch()
    measure(one, "eval/score", [1.0, "nan"])
    measure(two, "eval/score", [3.0, None])
    (figure,) = selectors.group_metrics([one, two])
    assert figure.broken == [one.pk]
    assert figure.last == {one.pk: (1, 1.0), two.pk: (1, 3.0)}
    assert figure.final.value == 2


def test_headlines_come_first_and_other_metrics_not_at_all(
    launch: Callable[..., list[Run]],
) -> None:
    (run, *_) = launch()
    measure(run, "eval/a", [1.0])
    measure(run, "drill/value", [1.0])
    measure(run, "loss", [1.0])
    assert [one.name for one in selectors.group_metrics([run])] == ["drill/value", "eval/a"]


def test_groups_are_counted_at_once(launch: Callable[..., list[Run]], project: Project) -> None:
    group = launch()[0].group
    launch(seeds=1)
    assert selectors.group_sizes(project, [group, ""]) == {group: 3}


# --- sweeps ---

SWEEP = {"steps": [4, 5], "fault": ["none", "bug"]}


def test_a_sweep_is_a_run_for_each_combination_and_seed(
    launch: Callable[..., list[Run]], project: Project
) -> None:
    runs = launch(seeds=2, sweep=SWEEP, idempotency_key="k")
    assert [(run.config["steps"], run.config["fault"], run.seed) for run in runs] == [
        (steps, fault, seed) for steps in (4, 5) for fault in ("none", "bug") for seed in (0, 1)
    ]
    assert runs[0].name == "warm-up, steps 4, fault none, seed 0"
    assert {run.group for run in runs} == {runs[0].group} != {""}
    assert [run.pk for run in launch(seeds=2, sweep=SWEEP, idempotency_key="k")] == [
        run.pk for run in runs
    ]
    added = services.seeds_add(
        project=project, group=runs[0].group, seeds=1, idempotency_key="more"
    )
    assert [(run.config["steps"], run.config["fault"], run.seed) for run in added] == [
        (4, "none", 2),
        (4, "bug", 2),
        (5, "none", 2),
        (5, "bug", 2),
    ]
    assert Run.objects.count() == 12


@pytest.mark.parametrize(
    ("changes", "code", "field", "words"),
    [
        ({"sweep": {"steps": [4]}}, "bad_sweep", "sweep.steps", "2 to 20"),
        ({"sweep": {"steps": [4, 4]}}, "bad_sweep", "sweep.steps", "twice"),
        ({"sweep": {"steps": [4, [5]]}}, "bad_sweep", "sweep.steps", "number"),
        ({"sweep": {"nonsense": [1, 2]}}, "bad_sweep", "sweep.nonsense", "cannot be swept"),
        ({"sweep": {"steps": [4, 0]}}, "bad_config", "sweep.steps", "With steps 0"),
        ({"sweep": {"steps": [4, "x"]}}, "bad_config", "sweep.steps", "With steps x"),
        (
            {"sweep": {"steps": list(range(1, 21)), "checkpoint_every": [1, 2, 3, 4]}},
            "bad_sweep",
            "sweep",
            "240 runs",
        ),
        (
            {"sweep": {"steps": [1, 2], "fault": ["none", "bug"], "fault_at": [1, 2]}},
            "bad_sweep",
            "sweep",
            "2 settings",
        ),
        ({"sweep": {"steps": [1, 2]}, "group": "g"}, "group_differs", "group", "own"),
    ],
)
def test_a_sweep_with_one_bad_value_launches_nothing(
    launch: Callable[..., list[Run]], changes: dict[str, Any], code: str, field: str, words: str
) -> None:
    with pytest.raises(DomainError, match=words) as refusal:
        launch(**changes)
    assert (refusal.value.code, refusal.value.field) == (code, field)
    assert not Run.objects.exists()


def test_a_setting_without_a_default_need_not_be_given_beside_its_sweep(
    project: Project, wire: FakeWire, snapshot_make: Callable[..., Any]
) -> None:
    runs = services.runs_launch(
        project=project,
        kind="sft",
        name="rates",
        config={"toy": True},
        inputs={"data": snapshot_make("demonstrations")},
        sweep={"learning_rate": [1e-5, 1e-4]},
    )
    assert [run.config["learning_rate"] for run in runs] == [1e-5, 1e-4]


def test_a_group_is_stopped_as_a_whole(
    launch: Callable[..., list[Run]], project: Project, emil: User
) -> None:
    runs = launch(sweep={"steps": [4, 5]}, seeds=1)
    Run.objects.filter(pk=runs[1].pk).update(state="running")
    done = launch(seeds=2)
    measure(done[0], "drill/value", [1.0])
    assert services.group_stop(project=project, group=runs[0].group, user=emil) == 2
    states = dict(Run.objects.values_list("pk", "state"))
    assert [states[run.pk] for run in runs] == ["cancelled", "stopping"]
    assert services.group_stop(project=project, group=done[0].group, user=emil) == 1
    done[0].refresh_from_db()
    assert done[0].state == "finished"


def test_a_sweep_is_read_by_setting_with_an_interval_over_seeds(
    launch: Callable[..., list[Run]],
) -> None:
    runs = launch(sweep={"steps": [5, 100]}, seeds=2)
    for run, value in zip(runs, (1.0, 2.0, 5.0, 7.0), strict=True):
        measure(run, "drill/value", [0.0, value])
    metrics = selectors.group_metrics(runs)
    found = sweep_of(runs, metrics, seed_metric_views(runs, metrics))
    assert found is not None
    assert (found.settings, [row.values for row in found.rows]) == (["steps"], [["5"], ["100"]])
    assert [row.figures[0][0] for row in found.rows] == ["1.5", "6.0"]
    assert [row.figures[0][2] for row in found.rows] == ["2 of 2", "2 of 2"]
    ((view, chart),) = found.charts
    assert view.name == "drill/value"
    assert chart.curve.rows
    assert sweep_of(launch(), [], []) is None

"""What pages and API read: one line over all attempts, thinned without hiding a spike."""

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.accounts.models import Project
from apps.common.errors import Missing
from apps.snapshots.models import Snapshot
from apps.training import selectors, services
from apps.training.display import progress
from apps.training.models import Run, RunAttempt
from tests.training.reports import measured, report, saved
from workers.contract import Failed, Finished, Log, Metrics, Opened, Sample

KILLED = Failed("killed", "machine", "It was killed.", retryable=True)


def attempts(run: Run, *resumed_from: int | None) -> None:
    """Attempts 1, 2, … of `run`, each resumed from that step."""
    RunAttempt.objects.filter(run=run).delete()
    for number, step in enumerate(resumed_from, 1):
        RunAttempt.objects.create(run=run, number=number, resumed_from_step=step)
        Run.objects.filter(pk=run.pk).update(attempt=number, state="queued", ended_at=None)
        yield_to = range((step or 0) + 1, (step or 0) + 9)  # eight steps each
        report(run, Opened(), measured(yield_to[0], yield_to[-1]), attempt=number)


def steps(run: Run) -> list[int]:
    return [step for step, _ in selectors.metric_series(run=run).get("loss", [])]


@pytest.mark.parametrize(
    ("resumed_from", "expected"),
    [
        ([None], list(range(1, 9))),
        ([None, 5], list(range(1, 14))),
        ([None, 5, 10], list(range(1, 19))),
        ([None, 8], list(range(1, 17))),
        ([None, None], list(range(1, 9))),  # started over
        ([None, 5, None], list(range(1, 9))),
        ([None, 5, 3], list(range(1, 12))),  # the later checkpoint was damaged
    ],
)
def test_points_run_over_the_attempts_without_gap_or_duplicate(
    run: Run, resumed_from: list[int | None], expected: list[int]
) -> None:
    attempts(run, *resumed_from)
    assert steps(run) == expected


def test_the_points_of_a_step_come_from_the_attempt_that_counts(run: Run) -> None:
    report(run, Opened(), Metrics(steps=[1, 2, 3], values={"loss": [1.0, 1.0, 1.0]}))
    RunAttempt.objects.create(run=run, number=2, resumed_from_step=1)
    Run.objects.filter(pk=run.pk).update(attempt=2)
    again = Metrics(steps=[2, 3], values={"loss": [2.0, 2.0]})
    report(run, Opened(), again, attempt=2)
    late = Metrics(steps=[4], values={"loss": [9.0]})
    report(run, late, first=3, attempt=1)  # of the superseded attempt, and late
    assert selectors.metric_series(run=run) == {"loss": [(1, 1.0), (2, 2.0), (3, 2.0)]}


def test_only_the_names_asked_for_are_read(run: Run) -> None:
    report(run, Opened(), measured(1, 3, "loss"), measured(1, 3, "kl"))
    assert set(selectors.metric_series(run=run)) == {"kl", "loss"}
    assert set(selectors.metric_series(run=run, names=["kl", "none"])) == {"kl"}


def points(count: int, seed: int = 1) -> list[selectors.metrics.Point]:
    chance = random.Random(seed)
    return [(step, chance.gauss(0, 1)) for step in range(count)]


@pytest.mark.parametrize("count", [0, 1, 5, 99, 100])
def test_what_fits_is_not_thinned(count: int) -> None:
    assert selectors.thin(points(count), 100) == points(count)


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5, 50, 101, 2000])
@pytest.mark.parametrize("count", [101, 1000, 12_345])
def test_thinned_points_are_few_true_and_in_order(count: int, most: int) -> None:
    whole = points(count)
    thinned = selectors.thin(whole, most)
    assert 0 < len(thinned) <= most
    assert set(thinned) <= set(whole)
    assert thinned == sorted(thinned)
    assert thinned[0] == whole[0]
    if 2 <= most < count:
        assert thinned[-1] == whole[-1]


def test_a_spike_of_one_step_survives_in_both_directions() -> None:
    whole = points(10_000)
    whole[4321], whole[7654] = (4321, 99.0), (7654, -99.0)
    thinned = selectors.thin(whole, 200)
    assert {(4321, 99.0), (7654, -99.0)} <= set(thinned)


def test_a_nan_survives_among_many_numbers() -> None:
    whole: list[Any] = points(10_000)
    whole[1234] = (1234, "nan")
    assert (1234, "nan") in selectors.thin(whole, 200)


def test_events_are_handed_out_from_a_cursor(run: Run) -> None:
    report(run, Opened(), *(Log(lines=[str(n)]) for n in range(5)))
    first, cursor = selectors.run_events_after(run=run, limit=4)
    rest, end = selectors.run_events_after(run=run, cursor=cursor, limit=4)
    assert [e.seq for e in first + rest] == [1, 2, 3, 4, 5, 6]
    assert selectors.run_events_after(run=run, cursor=end) == ([], end)


def test_the_log_tail_is_the_last_lines_of_all_attempts_in_order(run: Run) -> None:
    report(run, Opened(), Log(lines=["a", "b"]), Log(lines=["c"], level="error"), KILLED)
    report(run, Opened(), Log(lines=["d"]), attempt=2)
    tail = selectors.log_tail(run=run, lines=3)
    assert [(line["attempt"], line["text"]) for line in tail] == [(1, "b"), (1, "c"), (2, "d")]
    assert tail[1]["level"] == "error"
    assert [line["text"] for line in selectors.log_tail(run=run)] == ["a", "b", "c", "d"]


def sample(step: int, bucket: str) -> Sample:
    return Sample(step=step, bucket=bucket, prompt=[], response=f"{bucket} {step}")


def test_samples_are_the_latest_of_a_bucket_and_only_those_that_count(run: Run) -> None:
    report(run, Opened(), sample(1, "high"), sample(2, "low"), sample(9, "high"))
    RunAttempt.objects.create(run=run, number=2, resumed_from_step=5)
    Run.objects.filter(pk=run.pk).update(attempt=2)
    report(run, Opened(), sample(6, "high"), attempt=2)
    said = [s.response for s in selectors.samples(run=run)]
    assert said == ["high 6", "low 2", "high 1"], "step 9 belongs to a past that did not happen"
    assert [s.response for s in selectors.samples(run=run, bucket="high", limit=1)] == ["high 6"]


def test_checkpoints_beyond_a_resumed_step_do_not_count(run: Run) -> None:
    report(run, Opened(), saved(5, "last"), saved(10, "best", "last"))
    RunAttempt.objects.create(run=run, number=2, resumed_from_step=5)
    assert [c.step for c in selectors.checkpoints(run)] == [5]


def test_a_run_is_found_in_its_own_project_only(run: Run, project: Project) -> None:
    elsewhere = Project.objects.create(slug="elsewhere", name="Elsewhere")
    assert selectors.run_get(project=project, run_id=run.pk) == run
    with pytest.raises(Missing, match="no such run"):
        selectors.run_get(project=elsewhere, run_id=run.pk)
    assert list(selectors.run_list(project=project)) == [run]
    assert list(selectors.run_list(project=elsewhere)) == []
    assert list(selectors.run_list(project=project, states=["failed"])) == []
    assert list(selectors.run_list(project=project, kinds=["drill"], states=["queued"])) == [run]


def test_lineage_leads_from_a_run_to_its_snapshots_and_back(
    run: Run, project: Project, snapshot_make: Callable[..., Snapshot]
) -> None:
    data = snapshot_make("preferences")

    def drill(name: str, **inputs: Any) -> Run:
        return services.run_launch(
            project=project, kind="drill", name=name, config={}, inputs=inputs
        )

    first = drill("first", data=data)
    second = drill("second", base=first)
    third = drill("third", base=second, data=data)
    report(first, Opened(), saved(4, "final"), Finished(step=4))

    base, rows = selectors.lineage_up(third)
    assert (base.kind, base.id, base.role, base.state) == ("run", second.pk, "base", "queued")
    assert (rows.kind, rows.id, rows.detail) == ("snapshot", data.pk, "preferences")
    (grandparent,) = base.inputs
    assert (grandparent.name, grandparent.step) == ("first", 4)
    assert [ancestor.id for ancestor in grandparent.inputs] == [data.pk]

    (child,) = selectors.lineage_down(first)
    assert (child.name, child.role, child.state) == ("second", "base", "queued")
    assert [descendant.name for descendant in child.outputs] == ["third"]
    assert selectors.lineage_down(third) == []
    assert selectors.lineage_up(run) == []


@pytest.mark.parametrize(
    ("config", "summary", "seconds", "said"),
    [
        ({}, {"stopped_early": True}, 5, "step 3 of 9, finished early: stopped and kept"),
        ({"max_seconds": 50.0}, {}, 61, "step 3 of 9, finished early: max_seconds (50) reached"),
        ({"max_seconds": 50.0, "patience": 4}, {}, 61, "(patience) or max_seconds (50) reached"),
        ({"max_seconds": 50.0}, {}, 5, "step 3 of 9, finished early"),
        ({"patience": 4}, {"stopped_by": "patience"}, 5, "no better for 4 evaluations (patience)"),
        ({}, {}, 5, "step 3 of 9, finished early"),
    ],
)
def test_a_run_that_finished_early_says_what_ended_it(
    config: dict[str, Any], summary: dict[str, Any], seconds: int, said: str
) -> None:
    start = timezone.now()
    run = Run(
        kind="ppo",
        state="finished",
        step=3,
        total_steps=9,
        config=config,
        summary=summary,
        started_at=start,
        ended_at=start + timedelta(seconds=seconds),
    )
    assert progress(run).words.endswith(said)

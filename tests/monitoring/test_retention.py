"""Old runs keep their extremes; what anybody still relies on keeps every point."""

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from django.utils import timezone
from pytest_django.fixtures import Settings

from apps.accounts.models import Project, User
from apps.monitoring.models import Incident, Watch
from apps.monitoring.services.retention import points_thin
from apps.snapshots.models import Snapshot
from apps.training import selectors
from apps.training.metric_blocks import columns_of
from apps.training.models import Alert, Checkpoint, MetricBlock, Run, RunAttempt, RunEvent
from apps.training.services import metrics_store
from apps.training.services import points as thinning
from tests.web.world import event_add, run_make

NOW = timezone.now()
STEPS, MOST = 3000, 100


@pytest.fixture(autouse=True)
def _policy(settings: Settings) -> None:
    settings.METRICS_KEEP_DAYS, settings.METRICS_KEEP_POINTS = 90, MOST


def noise(seed: int = 1) -> list[Any]:
    chance = random.Random(seed)
    return [(step, chance.gauss(0, 1)) for step in range(1, STEPS + 1)]


@pytest.fixture
def old_run(project: Project) -> Callable[..., Run]:
    def make(days: float = 100, curve: list[Any] | None = None, **fields: Any) -> Run:
        values = {"state": "finished", "ended_at": NOW - timedelta(days=days)} | fields
        run = run_make(project, **values)
        metrics_store(run=run, attempt=1, series={"loss": curve or noise()})
        return run

    return make


def points(run: Run) -> list[Any]:
    return selectors.metric_series(run=run, max_points=10**9).get("loss", [])


def is_whole(run: Run) -> bool:
    run.refresh_from_db()
    return len(points(run)) == STEPS and run.thinned_at is None


def test_an_old_run_keeps_the_extremes_of_each_stretch(old_run: Callable[..., Run]) -> None:
    curve = noise()
    curve[1234] = (1235, 99.0)
    curve[2345] = (2346, -99.0)
    curve[2346] = (2347, "nan")
    curve[17] = (18, None)
    run = old_run(curve=curve)
    done = points_thin(now=NOW)
    kept = points(run)
    run.refresh_from_db()
    assert (done.runs, done.points_before, done.points_after) == (1, STEPS, len(kept))
    assert run.thinned_at == NOW
    assert len(kept) <= MOST
    assert set(kept) <= set(curve)
    assert {curve[0], curve[-1], (1235, 99.0), (2346, -99.0), (2347, "nan")} <= set(kept)
    width = STEPS // (MOST // 5)
    for start in range(0, STEPS, width):
        stretch = curve[start : start + width]
        numbers = [point for point in stretch if isinstance(point[1], float)]
        assert {stretch[0], stretch[-1]} <= set(kept)
        assert {min(numbers, key=lambda p: p[1]), max(numbers, key=lambda p: p[1])} <= set(kept)


def test_thinning_again_changes_nothing(old_run: Callable[..., Run]) -> None:
    run = old_run()
    points_thin(now=NOW)
    kept, rows = points(run), list(MetricBlock.objects.values_list("pk", flat=True))
    assert points_thin(now=NOW + timedelta(days=1)).runs == 0
    assert (points(run), list(MetricBlock.objects.values_list("pk", flat=True))) == (kept, rows)


def test_what_is_superseded_and_said_goes_and_what_happened_stays(
    old_run: Callable[..., Run],
) -> None:
    run = old_run()
    RunAttempt.objects.create(run=run, number=2, resumed_from_step=1000)
    Run.objects.filter(pk=run.pk).update(attempt=2)
    again = [(step, 5.0) for step in range(1001, 1501)]
    metrics_store(run=run, attempt=2, series={"loss": again})
    before = points(run)
    long_ago = NOW - timedelta(days=120)
    for n, kind in enumerate(("Log", "Progress", "Evidence", "Histogram", "Failed"), 10):
        event_add(run, n, kind, {})
    RunEvent.objects.update(at=long_ago)
    done = points_thin(now=NOW)
    kept = points(run)
    assert set(kept) <= set(before), "none of a superseded step"
    assert (kept[0], kept[-1]) == (before[0], (1500, 5.0))
    assert done.events == 2
    left = set(RunEvent.objects.values_list("type", flat=True))
    assert left == {"Evidence", "Histogram", "Failed"}
    # Resumed once more, from an earlier step: what is kept beyond it stops counting.
    RunAttempt.objects.create(run=run, number=3, resumed_from_step=500)
    assert max(step for step, _ in points(run)) <= 500


def test_a_run_that_is_resumed_later_is_thinned_again_once_it_is_old(
    old_run: Callable[..., Run],
) -> None:
    run = old_run()
    points_thin(now=NOW)
    later = NOW + timedelta(days=400)
    Run.objects.filter(pk=run.pk).update(ended_at=later - timedelta(days=100))
    more = [(step + STEPS, value) for step, value in noise(2)]
    metrics_store(run=run, attempt=1, series={"loss": more})
    assert points_thin(now=later).runs == 1
    assert len(points(run)) <= MOST


def test_live_and_young_runs_stay_whole(old_run: Callable[..., Run]) -> None:
    live = old_run(state="running", ended_at=None, started_at=NOW - timedelta(days=200))
    young = old_run(days=89)
    assert points_thin(now=NOW).runs == 0
    assert is_whole(live)
    assert is_whole(young)


def test_zero_days_keep_everything(old_run: Callable[..., Run], settings: Settings) -> None:
    settings.METRICS_KEEP_DAYS = 0
    run = old_run(days=10_000)
    assert points_thin(now=NOW).runs == 0
    assert is_whole(run)


def checkpoint_of(run: Run, status: str = "candidate") -> Checkpoint:
    return Checkpoint.objects.create(
        project=run.project,
        run=run,
        attempt=1,
        step=1,
        uri="x",
        sha256="0" * 64,
        status=status,
    )


def approved(run: Run, project: Project, other: Run) -> None:
    checkpoint_of(run, "approved")


def watched(run: Run, project: Project, other: Run, **more: Any) -> None:
    prompts = Snapshot.objects.create(
        project=project,
        name="p",
        kind="prompts",
        state="frozen",
        uri="x",
        sha256="0" * 64,
        frozen_at=NOW,
    )
    values = {"checkpoint": checkpoint_of(other), "name": "w", "kind": "policy"} | more
    Watch.objects.create(project=project, prompts=prompts, next_at=NOW, **values)


def in_service(run: Run, project: Project, other: Run) -> None:
    watched(run, project, other, checkpoint=checkpoint_of(run))


def scoring_in_service(run: Run, project: Project, other: Run) -> None:
    watched(run, project, other, reward=checkpoint_of(run))


def a_baseline(run: Run, project: Project, other: Run) -> None:
    watched(run, project, other, baseline_run=run)


def in_an_open_incident(run: Run, project: Project, other: Run) -> None:
    Incident.objects.create(
        project=project,
        key="k",
        run=run,
        link="reward",
        rule="r",
        title="t",
        severity="warning",
        opened_at=NOW,
        heard_at=NOW,
    )


def compared_with(run: Run, project: Project, other: Run) -> None:
    Run.objects.filter(pk=run.pk).update(kind="ppo")


@pytest.mark.parametrize(
    "reason",
    [approved, in_service, scoring_in_service, a_baseline, in_an_open_incident, compared_with],
)
def test_a_run_that_is_relied_on_stays_whole(
    old_run: Callable[..., Run], project: Project, reason: Callable[..., None]
) -> None:
    run, other = old_run(), run_make(project)
    reason(run, project, other)
    assert points_thin(now=NOW).runs == 0
    assert is_whole(run)


def test_a_run_that_no_longer_is_is_thinned(old_run: Callable[..., Run], project: Project) -> None:
    retired, alarmed = old_run(), old_run(kind="ppo")
    checkpoint_of(retired, "retired")
    Alert.objects.create(
        run=alarmed,
        attempt=1,
        seq=99,
        step=1,
        rule="r",
        message="m",
        severity="critical",
        raised_at=NOW,
    )
    in_an_open_incident(retired, project, alarmed)
    Incident.objects.update(state="resolved", resolved_at=NOW)
    assert points_thin(now=NOW).runs == 2


def test_events_go_in_small_transactions_until_none_is_left(
    old_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thinning, "EVENTS_AT_ONCE", 3)
    run = old_run()
    for n in range(10, 20):
        event_add(run, n, "Log", {"lines": ["x"]})
    event_add(run, 20, "Log", {"lines": ["said just now, by an import"]})
    RunEvent.objects.filter(seq__lt=20).update(at=NOW - timedelta(days=99))
    assert points_thin(now=NOW).events == 10
    assert RunEvent.objects.filter(run=run).count() == 1


@pytest.mark.parametrize("most", [50, 99, 1000])
@pytest.mark.parametrize("n", [40, 51, 997, 5000])
def test_thinned_columns_are_few_true_and_hold_the_whole_curves_extremes(n: int, most: int) -> None:
    values = np.random.default_rng(n).normal(size=n)
    values[n // 3] = np.nan
    (column,) = columns_of(list(range(n)), {"x": values.tolist()}).values()
    kept = thinning.thinned(column, most)
    assert len(kept) <= max(most, min(n, most))
    assert set(kept.steps.tolist()) <= set(range(n))
    assert np.nanmin(kept.values) == np.nanmin(values)
    assert np.nanmax(kept.values) == np.nanmax(values)
    assert np.isnan(kept.values).any()
    again = thinning.thinned(kept, most)
    assert again is kept


def test_the_charts_say_since_when_a_run_is_thinned(
    old_run: Callable[..., Run], signed_in: Callable[..., Any], emil: User
) -> None:
    run = old_run()
    where = f"/p/{run.project.slug}/runs/{run.pk}/"
    page = signed_in(emil).get(where, {"tab": "charts"}).content.decode()
    assert "kept as extremes" not in page
    etag = signed_in(emil).get(where + "metrics.json").headers["ETag"]
    points_thin(now=NOW)
    page = signed_in(emil).get(where, {"tab": "charts"}).content.decode()
    assert f"Since {NOW:%-d %B %Y}" in page
    assert signed_in(emil).get(where + "metrics.json").headers["ETag"] != etag
    assert "Log removed" in signed_in(emil).get(where, {"tab": "logs"}).content.decode()

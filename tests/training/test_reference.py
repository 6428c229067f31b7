"""Which past runs a run is compared with, and what it takes from them."""

from collections.abc import Callable
from typing import Any

import pytest

from apps.accounts.models import Project
from apps.snapshots.models import Snapshot
from apps.training.models import Alert, Run, RunAttempt, RunInput
from apps.training.selectors.reference import baseline_of, healthy_like
from tests.training.reports import report
from workers.contract import Finished, Metrics, Opened

pytestmark = pytest.mark.usefixtures("wire", "artifacts")
KL = "objective/kl"


@pytest.fixture
def trained(project: Project, snapshot_make: Callable[..., Snapshot]) -> Callable[..., Run]:
    prompts = snapshot_make("prompts")

    def make(kl: float = 0.1, inputs: Snapshot | None = None, **config: Any) -> Run:
        run = Run.objects.create(project=project, name="p", kind="ppo", attempt=1, config=config)
        RunAttempt.objects.create(run=run, number=1)
        RunInput.objects.create(run=run, role="prompts", snapshot=inputs or prompts)
        points = Metrics(list(range(60)), {KL: [kl * step for step in range(60)]})
        report(run, Opened(), points, Finished(step=60))
        run.refresh_from_db()
        return run

    return make


def test_runs_that_differ_in_seed_or_step_size_are_its_reference(
    trained: Callable[..., Run],
) -> None:
    run, fast = trained(), trained(learning_rate=1e-3)
    longer = trained(max_new_tokens=500)
    assert healthy_like(run) == [fast]
    assert healthy_like(longer) == []


def test_runs_with_a_warning_or_other_prompts_are_none(
    trained: Callable[..., Run], snapshot_make: Callable[..., Snapshot]
) -> None:
    run, ill, other = trained(), trained(), trained(inputs=snapshot_make("prompts"))
    alert = {"attempt": 1, "seq": 99, "step": 3, "rule": "ratio", "message": "!"}
    Alert.objects.create(run=ill, severity="warning", raised_at=ill.created_at, **alert)
    told = trained()
    Alert.objects.create(run=told, severity="info", raised_at=told.created_at, **alert)
    assert healthy_like(run) == [told]
    assert other not in healthy_like(run)


def test_a_baseline_says_what_they_were_like_at_the_same_step(trained: Callable[..., Run]) -> None:
    run = trained()
    assert baseline_of(run) is None
    for kl in (0.08, 0.1, 0.1, 0.12):
        trained(kl=kl)
    usual = baseline_of(run).at(KL, 52)
    assert usual is not None
    assert usual.mean == pytest.approx(5.2), "steps 50 to 54, four runs of 0.1 nats a step"
    assert usual.runs == 4
    assert usual.z(50.0) > 4
    assert abs(usual.z(5.5)) < 1


def test_a_new_run_takes_it_along(
    trained: Callable[..., Run], snapshot_make: Callable[..., Snapshot]
) -> None:
    from apps.training.services.attempts import run_dispatch

    for _ in range(4):
        trained()
    run = trained()
    attempt = run_dispatch(run=run, cause="resume")
    assert attempt is not None
    assert len(attempt.spec["baseline"]["means"][KL]["3"]) == 4

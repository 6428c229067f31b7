"""What a run would take: by finished runs like it, or honestly unknown."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.accounts.models import Project
from apps.common.errors import DomainError
from apps.training.models import Run, RunInput
from apps.training.screens.estimate import NONE, estimate_basis, estimate_words
from apps.training.selectors.estimates import Estimate, run_estimate
from apps.training.services.launching import launch_estimate
from tests.training.test_launching import model
from tests.web.world import run_make

PPO = {"learning_rate": 1e-4, "steps": 50, "batch_size": 32}


def past(project: Project, seconds: float, **config: Any) -> Run:
    """A PPO run that finished after so long, as many steps as it was given."""
    given = PPO | config
    ended = timezone.now()
    return run_make(
        project,
        kind="ppo",
        state="finished",
        config=given,
        step=given["steps"],
        total_steps=given["steps"],
        started_at=ended - timedelta(seconds=seconds),
        ended_at=ended,
    )


def asked(project: Project, *, queue: str = "cpu", **config: Any) -> Estimate:
    return run_estimate(project=project, kind="ppo", config=PPO | config, inputs={}, queue=queue)


def test_time_is_seconds_per_step_times_steps_and_the_median_of_several(project: Project) -> None:
    for seconds in (500, 600, 1000):
        past(project, seconds)
    found = asked(project, steps=100)
    assert (found.seconds, found.least, found.greatest) == pytest.approx((1200, 1000, 2000))
    assert (found.scaled_by, found.own, len(found.runs)) == ("steps", True, 3)
    assert estimate_words(found) == "About 20 min."
    assert estimate_words(found, runs=6).startswith("6 runs, about 2 h in all")
    assert "the last 3 runs of this project" in estimate_basis(found)
    assert asked(project).scaled_by == ""


def test_another_batch_size_is_scaled_by_rows_and_one_that_is_alike_counts_first(
    project: Project,
) -> None:
    past(project, 500, batch_size=16)
    found = asked(project)
    assert (found.seconds, found.scaled_by) == (pytest.approx(1000), "rows")


@pytest.mark.parametrize("other", [{"max_new_tokens": 7}, {"lora_rank": 3}, {"update_epochs": 1}])
def test_runs_that_differ_in_what_a_step_costs_say_nothing(
    project: Project, other: dict[str, Any]
) -> None:
    past(project, 500, **other)
    assert asked(project).seconds is None
    assert estimate_words(asked(project)) == NONE


def test_another_machine_class_model_or_outcome_says_nothing(project: Project) -> None:
    run = past(project, 500)
    assert asked(project, queue="gpu").seconds is None
    Run.objects.filter(pk=run.pk).update(state="failed", failure_kind="bug")
    assert asked(project).seconds is None
    Run.objects.filter(pk=run.pk).update(state="finished", failure_kind="", attempt=2)
    assert asked(project).seconds is None  # its wall time has a machine's absence in it


def test_a_model_of_another_size_is_another_run(project: Project, artifacts: Any) -> None:
    small, large = model(project, "sft"), model(project, "dpo")
    large.size_bytes = 10 * small.size_bytes
    large.save()
    RunInput.objects.create(run=past(project, 500), role="policy", checkpoint=small)

    def of(policy: Any) -> float | None:
        return run_estimate(
            project=project, kind="ppo", config=PPO, inputs={"policy": policy}, queue="cpu"
        ).seconds

    assert (of(small), of(large)) == (pytest.approx(500), None)


def test_runs_of_other_projects_count_where_the_project_has_none(
    project: Project, olga: Any
) -> None:
    past(Project.objects.exclude(pk=project.pk).get(), 500)
    found = asked(project, max_seconds=60.0)
    assert (found.seconds, found.own, found.limited) == (60.0, False, True)
    assert "of other projects of this site" in estimate_basis(found)


@pytest.mark.parametrize("kind", ["imported", "nothing"])
def test_a_kind_that_cannot_be_launched_cannot_be_estimated(project: Project, kind: str) -> None:
    with pytest.raises(DomainError, match=f"There is no kind of run '{kind}'"):
        launch_estimate(project=project, kind=kind, config={}, inputs={})

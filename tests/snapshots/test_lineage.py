"""From one vote to the models it touched, and back."""

import pytest

from apps.accounts.models import Project, User
from apps.labeling.models import Comparison, Vote
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import SnapshotRecipe
from apps.snapshots.selectors import lineage
from apps.snapshots.services import freezing
from apps.training.models import Checkpoint, Run, RunInput

pytestmark = pytest.mark.django_db


@pytest.fixture
def frozen(project: Project, crowd: list[Comparison], emil: User) -> Snapshot:
    recipe = SnapshotRecipe(
        least_votes=2, least_agreeing=2, splits={"train": 0.7, "dev": 0.3}, seed="seed-2"
    )
    return freezing.snapshot_freeze(project=project, name="pairs", recipe=recipe, user=emil)


def run_make(project: Project, name: str, **inputs) -> Run:
    run = Run.objects.create(project=project, name=name, kind="drill", state="queued")
    for role, value in inputs.items():
        kind = {Snapshot: "snapshot", Checkpoint: "checkpoint", Run: "upstream"}[type(value)]
        RunInput.objects.create(run=run, role=role, **{kind: value})
    return run


def test_a_vote_leads_to_every_model_that_stands_on_it(project: Project, frozen: Snapshot) -> None:
    reward = run_make(project, "reward", data=frozen)
    saved = Checkpoint.objects.create(
        project=project, run=reward, attempt=1, step=5, uri="x", sha256="0" * 64
    )
    policy = run_make(project, "ppo", reward=saved)
    fresh = run_make(project, "generate", policy=policy)
    run_make(project, "unrelated")
    row = frozen.rows.filter(split="train").first()
    found = lineage.vote_lineage(Vote.objects.get(pk=row.vote_ids[0]))
    assert [r.snapshot_id for r in found.trained_on] == [frozen.pk]
    assert [run.name for run in found.runs] == ["reward", "ppo", "generate"]
    assert found.checkpoints == [saved]
    back = lineage.origins(fresh)
    assert [run.name for run in back.runs] == ["ppo", "reward"]
    assert back.snapshots == [frozen]
    kept = frozen.rows.exclude(split="")
    assert back.n_votes == len({vote for row in kept for vote in row.vote_ids})


def test_a_vote_on_a_dropped_comparison_leads_to_no_model(
    project: Project, frozen: Snapshot
) -> None:
    run_make(project, "reward", data=frozen)
    outside = Vote.objects.exclude(
        pk__in=[vote for row in frozen.rows.all() for vote in row.vote_ids]
    ).first()
    found = lineage.vote_lineage(outside)
    assert (found.rows, found.runs, found.checkpoints) == ([], [], [])

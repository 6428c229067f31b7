"""Whether a reward model still knows what people say (SPEC D15)."""

import datetime as dt

import pytest
from django.utils import timezone

from apps.accounts.models import Project, Role, User
from apps.evaluation.selectors.ceiling import (
    flipped_since,
    freshness_finding,
    votes_then_and_since,
)
from apps.labeling.models import Comparison, Decision, LabelingSettings, Vote
from apps.labeling.services import comparisons_import, vote_revise, votes_import
from apps.snapshots.models import Snapshot, SnapshotRow
from apps.snapshots.recipe import SnapshotRecipe
from apps.training.models import Checkpoint, Run, RunInput
from measures.trust.findings import Verdict
from tests.evaluation.outputs import checkpoint_make, snapshot_make
from tests.labeling.pairs import annotators_make, rows_make, vote
from tests.people import person_make

# Votes bear the time of their transaction, so each needs one of its own.
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def crowd(project: Project) -> list[User]:
    LabelingSettings.objects.update_or_create(
        project=project, defaults={"overlap": 3, "least_votes": 3, "least_agreeing": 2}
    )
    return annotators_make(project, 3)


def voted(project: Project, crowd: list[User], n: int, start: int = 1) -> list[int]:
    """n pairs that all three voted A on; the ids of the votes."""
    comparisons_import(project=project, rows=rows_make(n, start))
    return [vote(project, person).vote.pk for _ in range(n) for person in crowd]


def frozen(project: Project, votes: list[int]) -> Snapshot:
    """A dataset of these votes, as a freeze would leave its rows."""
    made = snapshot_make(project, recipe=SnapshotRecipe().to_json(), state="draft")
    by_pair: dict[int, list[int]] = {}
    for pk, pair in Vote.objects.filter(pk__in=votes).values_list("pk", "comparison_id"):
        by_pair.setdefault(pair, []).append(pk)
    SnapshotRow.objects.bulk_create(
        SnapshotRow(
            snapshot=made, comparison_id=pair, split="train", winner="a", vote_ids=of, ordinal=k
        )
        for k, (pair, of) in enumerate(by_pair.items())
    )
    made.state = "frozen"
    made.save()
    return made


@pytest.fixture
def checkpoint(project: Project, crowd: list[User]) -> Checkpoint:
    """Trained on the thirty votes of ten pairs that there were."""
    return checkpoint_make(project, data=frozen(project, voted(project, crowd, 10)))


def counts(checkpoint: Checkpoint) -> tuple[int, int]:
    return votes_then_and_since(checkpoint, checkpoint.run.inputs.get(role="data").snapshot)


def test_a_model_of_today_without_newer_votes_is_fresh(checkpoint: Checkpoint):
    finding = freshness_finding(checkpoint)
    assert finding.verdict == Verdict.GREEN
    assert finding.facts["votes_at_training"] == 30
    assert finding.facts["votes_since"] == 0
    assert finding.facts["flipped_share"] == 0


def test_new_votes_over_a_fifth_advise_to_retrain(
    project: Project, checkpoint: Checkpoint, crowd: list[User]
):
    voted(project, crowd, 2, start=20)
    assert counts(checkpoint) == (30, 6)
    assert freshness_finding(checkpoint).verdict == Verdict.GREEN
    voted(project, crowd, 1, start=30)
    finding = freshness_finding(checkpoint)
    assert (finding.verdict, finding.facts["votes_since"]) == (Verdict.RED, 9)
    assert "Retrain it" in finding.says


def test_a_model_older_than_a_month_advises_to_retrain(checkpoint: Checkpoint):
    ended = timezone.now() - dt.timedelta(days=31, hours=1)
    Run.objects.filter(pk=checkpoint.run_id).update(ended_at=ended)
    checkpoint.run.refresh_from_db()
    finding = freshness_finding(checkpoint)
    assert finding.verdict == Verdict.RED
    assert "31 days ago on 30" in finding.says
    assert "; 0 came" in finding.says


def test_a_changed_vote_is_new_and_a_turned_pair_is_counted(
    project: Project, checkpoint: Checkpoint, crowd: list[User]
):
    pair = Comparison.objects.filter(project=project).first()
    for person in crowd[:2]:
        cast = Vote.objects.get(comparison=pair, annotator=person, is_current=True)
        vote_revise(vote=cast.pk, annotator=person, idempotency_key=f"k{cast.pk}", choice="b")
    assert counts(checkpoint) == (28, 2)
    Decision.objects.filter(comparison=pair).update(outcome="accepted", winner="b")
    data = checkpoint.run.inputs.get(role="data").snapshot
    assert flipped_since(data) == (1, 10)


def test_votes_imported_later_are_new_whatever_time_they_bear(
    project: Project, checkpoint: Checkpoint
):
    comparisons_import(project=project, rows=rows_make(1, 60))
    long_ago = {"comparison": "pair-60", "choice": "a", "cast_at": "2020-01-01T00:00:00Z"}
    people = ("zoe", "yan")
    votes_import(project=project, rows=[long_ago | {"annotator": name} for name in people])
    assert counts(checkpoint) == (30, 2)


def test_hard_pairs_that_it_was_trained_on_are_no_news(
    project: Project, checkpoint: Checkpoint, crowd: list[User]
):
    late = voted(project, crowd, 4, start=50)
    assert counts(checkpoint) == (30, 12)
    hard = frozen(project, late)
    RunInput.objects.create(run=checkpoint.run, role="hard", snapshot=hard)
    assert counts(checkpoint) == (42, 0)


def test_a_model_without_a_dataset_of_this_project_is_not_measured(project: Project):
    finding = freshness_finding(checkpoint_make(project))
    assert finding.verdict == Verdict.UNMEASURED
    assert "names no dataset" in finding.says


def test_votes_of_another_project_count_nothing(checkpoint: Checkpoint):
    other = Project.objects.create(slug="other", name="Other")
    LabelingSettings.objects.update_or_create(project=other, defaults={"overlap": 3})
    comparisons_import(project=other, rows=rows_make(3))
    ben = person_make("Ben", other, Role.ANNOTATOR)
    vote(other, ben)
    assert counts(checkpoint) == (30, 0)

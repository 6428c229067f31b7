"""How right a reward model could be, for the kind of label it is measured against (SPEC D3)."""

import pytest

from apps.accounts.models import Project, User
from apps.agreement.services.reports import report_refresh
from apps.evaluation.selectors.ceiling import DECIDED, SINGLE, human_ceiling
from apps.labeling.models import Comparison
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import SnapshotRecipe
from apps.snapshots.services.freezing import snapshot_freeze
from apps.training.models import Checkpoint
from tests.evaluation.outputs import checkpoint_make
from tests.snapshots.conftest import crowd_make, revote

RECIPE = SnapshotRecipe(splits={"train": 0.5, "public_test": 0.5}, heldout_annotators=0.0)


@pytest.fixture(autouse=True)
def artifacts(tmp_path, settings) -> None:
    settings.ARTIFACTS_URL = str(tmp_path / "artifacts")


@pytest.fixture
def crowd(project: Project) -> list[Comparison]:
    """72 pairs of five votes; every third pair is decided three to two."""
    pairs = crowd_make(project)
    for pair in pairs[::3]:
        revote(pair, ["b", "b", "b", "a", "a"])
    return pairs


def model_of(project: Project, emil: User) -> tuple[Checkpoint, Snapshot]:
    data = snapshot_freeze(project=project, name="pairs", recipe=RECIPE, user=emil)
    return checkpoint_make(project, data=data), data


def test_single_votes_and_decided_pairs_have_ceilings_of_their_own(
    project: Project, crowd: list[Comparison], emil: User
):
    checkpoint, data = model_of(project, emil)
    report_refresh(project=project)
    ceiling = human_ceiling(checkpoint)
    # Two of five votes against three agree in 4 of 10 pairs of votes, five of five in all.
    agreement = (1 / 3) * 0.4 + (2 / 3) * 1.0
    assert ceiling.single.low == pytest.approx(agreement)
    assert ceiling.single.n == len(crowd)
    assert ceiling.single.low < ceiling.single.high < 1
    assert ceiling.decided.n == data.counts["rows"]["public_test"]
    assert ceiling.single.low < ceiling.decided.low < ceiling.decided.high < 1
    assert f"of the {ceiling.decided.n} unseen pairs alike" in ceiling.decided.says
    assert ceiling.of_split("heldout_annotators").label == SINGLE
    assert {ceiling.of_split(s).label for s in ("public_test", "heldout_groups", "dev")} == {
        DECIDED
    }


def test_where_people_never_disagree_the_ceiling_is_everything(project: Project, emil: User):
    crowd_make(project)
    checkpoint, _ = model_of(project, emil)
    report_refresh(project=project)
    ceiling = human_ceiling(checkpoint)
    assert ceiling.single.low == ceiling.single.high == 1
    assert ceiling.decided.low == pytest.approx(1, abs=1e-4)


def test_before_votes_were_compared_there_is_no_ceiling_and_it_says_why(
    project: Project, crowd: list[Comparison], emil: User
):
    checkpoint, _ = model_of(project, emil)
    ceiling = human_ceiling(checkpoint)
    assert (ceiling.single.low, ceiling.decided.low) == (None, None)
    assert "not been compared" in ceiling.single.says


def test_a_model_without_a_dataset_of_this_project_has_only_the_one_against_single_votes(
    project: Project, crowd: list[Comparison]
):
    report_refresh(project=project)
    ceiling = human_ceiling(checkpoint_make(project))
    assert ceiling.single.low is not None
    assert ceiling.decided.low is None
    assert "names no dataset" in ceiling.decided.says


def test_a_crowd_of_coins_has_no_ceiling(project: Project, emil: User):
    pairs = crowd_make(project)
    for pair in pairs:
        revote(pair, ["b", "b", "b", "a", "a"])
    checkpoint, _ = model_of(project, emil)
    report_refresh(project=project)
    ceiling = human_ceiling(checkpoint)
    assert ceiling.single.undefined.startswith("Agreement is 40.0%")
    assert "coins" in ceiling.decided.says

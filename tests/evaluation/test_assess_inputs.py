"""What an assessment may not read, because it would say yes to everything."""

from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from apps.accounts.models import Project, User
from apps.common.errors import DomainError
from apps.evaluation.services.assessing import assessment_start
from apps.training.models import Checkpoint, Run
from apps.training.selectors.pages import checkpoint_choices
from tests.evaluation.assessed import dataset_make, model_make


@pytest.fixture(autouse=True)
def artifacts(tmp_path: Path, settings: Settings) -> None:
    settings.ARTIFACTS_URL = str(tmp_path / "artifacts")


@pytest.fixture
def model(project: Project, emil: User) -> Checkpoint:
    return model_make(project, by=emil)


def test_a_model_is_not_its_own_judge(model, emil):
    for judge in (model, model.run):
        with pytest.raises(DomainError) as refused:
            assessment_start(checkpoint=model, inputs={"judge": judge}, config={}, user=emil)
        assert refused.value.field == "inputs.judge"
    assert not Run.objects.filter(kind="assess").exists()


def test_the_dataset_itself_is_not_elsewhere(project, model, emil):
    own = model.run.inputs.get(role="data").snapshot
    with pytest.raises(DomainError) as refused:
        assessment_start(checkpoint=model, inputs={"other": own}, config={}, user=emil)
    assert refused.value.field == "inputs.other"
    other = dataset_make(project, "other pairs")
    assert assessment_start(checkpoint=model, inputs={"other": other}, config={}, user=emil).pk


def test_who_chooses_a_reward_model_reads_what_was_decided_about_it(project, model):
    def label() -> str:
        return dict(checkpoint_choices(project, {"reward"}))[f"checkpoint:{model.pk}"]

    assert "not approved" in label()
    Checkpoint.objects.filter(pk=model.pk).update(status=Checkpoint.Status.APPROVED)
    assert "approved" in label()
    assert "not approved" not in label()

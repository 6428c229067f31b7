"""What an assessment may not read, because it would say yes to everything."""

from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from apps.accounts.models import Project, User
from apps.common.errors import DomainError, Missing, Unprocessable
from apps.evaluation.services.reviewing import assessment_start
from apps.training.models import Checkpoint, Run
from apps.training.selectors.pages import checkpoint_choices, input_resolve
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


def test_no_other_model_is_assessed_than_the_one_asked_for(project, model, emil):
    another = model_make(project, by=emil)
    with pytest.raises(DomainError) as refused:
        assessment_start(checkpoint=model, inputs={"reward": another}, config={}, user=emil)
    assert refused.value.field == "inputs.reward"
    assert assessment_start(checkpoint=model, inputs={"reward": model}, config={}, user=emil).pk


@pytest.mark.parametrize(
    "address",
    [
        "reward-models/%00/",
        "reward-models/%00/assess/",
        "reward-models/%00/ranking/",
        "reward-models/%00/adversarial/",
        "runs/%00/",
        "models/%00/",
    ],
)
def test_an_address_with_a_nul_leads_nowhere(model, emil, signed_in, address):
    assert signed_in(emil).get(f"/p/arguments/{address}").status_code == 404


def test_a_nul_in_what_is_sent_breaks_nothing(project, model, emil, signed_in):
    page = signed_in(emil).get(f"/p/arguments/reward-models/compare/?a=%00&b={model.pk}")
    assert page.status_code == 400
    with pytest.raises(Missing):
        input_resolve(project, "snapshot:\x00")
    with pytest.raises(Unprocessable, match="preset"):
        assessment_start(checkpoint=model, inputs={}, config={"preset": "\x00"}, user=emil)
    run = assessment_start(
        checkpoint=model,
        inputs={},
        config={},
        name="one\x00two",
        user=emil,
        idempotency_key="\x00",
    )
    run.refresh_from_db()
    assert run.name == "one\ufffdtwo"

"""What programs read of reward models, and what they may decide."""

from pathlib import Path

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from apps.accounts.models import Project, User
from apps.accounts.services import token_create
from apps.evaluation.models import ModelReview
from apps.training.models import Checkpoint, Run
from measures.trust.lines import LINES
from tests.evaluation.assessed import assessment_make, model_make, with_evidence

ROOT = "/api/v1/projects/arguments/reward-models"


@pytest.fixture(autouse=True)
def artifacts(tmp_path: Path, settings: Settings) -> None:
    settings.ARTIFACTS_URL = str(tmp_path / "artifacts")


@pytest.fixture
def model(project: Project, emil: User) -> Checkpoint:
    made = model_make(project, by=emil)
    assessment_make(made, with_evidence())
    return made


@pytest.fixture
def client(ada: User, signed_in) -> Client:
    return signed_in(ada)


def test_the_list_and_one_model_say_the_same_as_the_page(client, model):
    listed = client.get(ROOT).json()
    one = client.get(f"{ROOT}/{model.pk}").json()
    assert listed["count"] == 1
    assert {n: one[n] for n in listed["items"][0]} == listed["items"][0]
    assert (one["red"], one["green"] + one["red"] + one["unmeasured"]) == (3, len(LINES))
    assert one["accuracy"]["value"] == 0.731
    assert [row["line"] for row in one["findings"]] == list(LINES)
    missing = next(row for row in one["findings"] if row["line"] == "disagreement")
    assert missing["verdict"] == "unmeasured"


def test_a_decision_needs_what_was_seen_and_leaves_a_review(client, model):
    one = client.get(f"{ROOT}/{model.pk}").json()
    body = {
        "status": "approved",
        "reason": "for the rehearsal only, on debates",
        "seen_status": "candidate",
        "page_sha256": "0" * 64,
    }

    def decide(**more: str):
        return client.post(
            f"{ROOT}/{model.pk}/status", body | more, content_type="application/json"
        )

    stale = decide()
    assert (stale.status_code, stale.json()["code"]) == (409, "page_changed")
    bare = decide(page_sha256=one["page_sha256"], reason="")
    assert (bare.status_code, bare.json()["field"]) == (400, "reason")
    assert decide(page_sha256=one["page_sha256"], status="candidate").status_code == 400
    done = decide(page_sha256=one["page_sha256"])
    assert (done.status_code, done.json()["by"]) == (201, "Ada")
    assert client.get(f"{ROOT}/{model.pk}").json()["status"] == "approved"
    assert ModelReview.objects.get().state_sha256 == done.json()["state_sha256"]


def test_an_assessment_starts_on_what_the_model_learned_from_and_once_per_key(client, model):
    body = {"idempotency_key": "monday"}
    first, second = (
        client.post(f"{ROOT}/{model.pk}/assess", body, content_type="application/json")
        for _ in range(2)
    )
    assert first.status_code == 201
    assert first.json()["id"] == second.json()["id"]
    run = Run.objects.get(pk=first.json()["id"])
    assert run.kind == "assess"
    data = run.inputs.get(role="data").snapshot
    assert data == model.run.inputs.get(role="data").snapshot


def test_a_wrong_input_names_its_field(client, model):
    body = {"inputs": {"policy": f"checkpoint:{model.pk}"}}
    answer = client.post(f"{ROOT}/{model.pk}/assess", body, content_type="application/json")
    assert (answer.status_code, answer.json()["field"]) == (400, "inputs.policy")


def test_models_of_other_projects_are_unknown(client, olga):
    theirs = model_make(Project.objects.get(slug="elsewhere"))
    assert client.get(f"{ROOT}/{theirs.pk}").status_code == 404
    assert client.get(ROOT).json()["count"] == 0


def test_a_token_that_trains_lets_no_reward_model_through(ada, model):
    client = Client()
    body = {"status": "approved", "reason": "for the rehearsal only", "seen_status": "candidate"}
    for scope, status in (("train", 403), ("approve", 201)):
        _, token = token_create(user=ada, name=scope, scopes=["read", scope], days=1)
        bearer = {"Authorization": f"Bearer {token}"}
        seen = client.get(f"{ROOT}/{model.pk}", headers=bearer).json()["page_sha256"]
        answer = client.post(
            f"{ROOT}/{model.pk}/status",
            body | {"page_sha256": seen},
            content_type="application/json",
            headers=bearer,
        )
        assert answer.status_code == status
    assert ModelReview.objects.get().by == ada

"""Registering a model: launched like any run, offered for its purpose, shown with what was read."""

import json
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import Project, User
from apps.common.errors import DomainError
from apps.training.forms.launch import RunForm
from apps.training.models import Checkpoint, Run, RunInput
from apps.training.selectors.reference import sft_of
from apps.training.services.kinds import inputs_check
from tests.training.reports import report, saved
from tests.web.world import run_make
from workers.contract import Finished, Opened

KINDS = ("register_policy", "register_reward", "register_encoder")
SUMMARY = {"step": 0, "architecture": "LlamaForCausalLM", "dtype": "bfloat16", "licence": "mit"}


def registered(project: Project, kind: str) -> Checkpoint:
    run = run_make(project, kind=kind, name=f"my {kind}", attempt=1, state="running", ended_at=None)
    report(run, Opened(), saved(0, "last", "final"), Finished(step=0, summary=SUMMARY))
    return Checkpoint.objects.get(run=run)


@pytest.fixture
def models(project: Project) -> dict[str, Checkpoint]:
    return {kind: registered(project, kind) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_the_form_launches_what_it_was_told(
    client: Client, project: Project, emil: User, kind: str
) -> None:
    client.force_login(emil)
    for page in (f"/p/{project.slug}/models/", f"/p/{project.slug}/runs/new/sft/"):
        assert "runs/new/#register_policy" in client.get(page).content.decode()
    kinds = client.get(f"/p/{project.slug}/runs/new/").content.decode()
    assert f'id="{kind}"' in kinds
    address = f"/p/{project.slug}/runs/new/{kind}/"
    assert address in kinds
    sent = {"name": "mine", "seed": 0, "key": "k", "queue": "cpu", "c_model": "org/model"}
    assert client.post(address, sent).status_code == 302
    run = Run.objects.get()
    assert (run.kind, run.queue, run.config) == (kind, "cpu", {"model": "org/model"})

    wrong = client.post(address, sent | {"c_model": "/etc", "key": "l"})
    empty = client.post(address, sent | {"c_model": "", "key": "m"})
    for answer in (wrong, empty):
        assert answer.status_code == 422
        assert list(answer.context["form"].errors) == ["c_model"]
    assert Run.objects.count() == 1


@pytest.mark.parametrize(
    ("config", "code", "field"),
    [
        ({}, "bad_config", "model"),
        ({"model": "/etc"}, "model_not_allowed", "model"),
        ({"model": "org/model", "adapter": "../x"}, "model_not_allowed", "adapter"),
        ({"model": "org/model", "base_model": "x"}, "bad_config", "base_model"),
    ],
)
def test_the_api_refuses_by_field(
    client: Client, project: Project, emil: User, config: dict[str, Any], code: str, field: str
) -> None:
    client.force_login(emil)
    answer = client.post(
        f"/api/v1/projects/{project.slug}/runs",
        json.dumps({"kind": "register_policy", "name": "mine", "config": config}),
        content_type="application/json",
    )
    said = answer.json()
    assert (answer.status_code, said["code"], said["field"]) == (422, code, f"config.{field}")


def test_a_registered_model_plays_the_roles_of_its_purpose_alone(
    project: Project, models: dict[str, Checkpoint]
) -> None:
    takers = {
        ("sft", "base"): {"register_policy"},
        ("dpo", "sft"): {"register_policy"},
        ("ppo", "policy"): {"register_policy"},
        ("generate", "policy"): {"register_policy"},
        ("reward", "sft"): {"register_policy"},
        ("reward", "base"): set(KINDS),
        ("ppo", "reward"): {"register_reward"},
        ("evaluate", "judge"): {"register_reward"},
        ("assess", "reward"): {"register_reward"},
    }
    for (kind, role), wanted in takers.items():
        offered = json.dumps(RunForm(project=project, kind=kind).fields[f"input_{role}"].choices)
        for name, model in models.items():
            with pytest.raises(DomainError) as refused:  # what else is missing, at the latest
                inputs_check(project_id=project.pk, kind=kind, config={}, inputs={role: model})
            assert (refused.value.code == "wrong_input") == (name not in wanted), (kind, role, name)
            assert (f"checkpoint:{model.pk}" in offered) == (name in wanted), (kind, role, name)


def test_a_policy_goes_back_to_the_registered_model_that_it_began_as(
    project: Project, models: dict[str, Checkpoint]
) -> None:
    run = run_make(project, kind="dpo", name="dpo")
    RunInput.objects.create(run=run, role="sft", checkpoint=models["register_policy"])
    assert sft_of(run) == models["register_policy"]


def test_the_pages_of_run_and_model_show_what_was_read(
    client: Client, project: Project, emil: User, models: dict[str, Checkpoint]
) -> None:
    client.force_login(emil)
    for model in models.values():
        for page in (f"runs/{model.run_id}/", f"models/{model.pk}/"):
            text = client.get(f"/p/{project.slug}/{page}").content.decode()
            assert "LlamaForCausalLM" in text
            assert "bfloat16" in text
    reward = models["register_reward"]
    listed = client.get(f"/p/{project.slug}/reward-models/").content.decode()
    assert reward.pk in listed
    assert models["register_policy"].pk not in listed
    page = f"/p/{project.slug}/reward-models/{reward.pk}/"
    assert page in client.get(f"/p/{project.slug}/models/{reward.pk}/").content.decode()
    for address in (page, f"{page}assess/", f"/p/{project.slug}/overview/"):
        assert client.get(address).status_code == 200

"""Registering a model: launched like any run, offered for its purpose, shown with what was read."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import Project, User
from apps.common.errors import DomainError
from apps.monitoring.services.watches import watch_create
from apps.snapshots.models import Snapshot
from apps.training.forms.launch import RunForm
from apps.training.models import Checkpoint, Run, RunInput
from apps.training.selectors.reference import sft_of
from apps.training.services.kinds import Input, approval_check, inputs_check
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
        ("generate", "critic"): {"register_policy"},
        ("judge", "judge"): {"register_policy", "register_reward"},
        ("reward", "sft"): {"register_policy"},
        ("reward", "base"): set(KINDS),
        ("ppo", "reward"): {"register_reward", "process_reward"},
        ("check", "reward"): {"register_reward", "process_reward"},
        ("evaluate", "judge"): {"register_reward", "process_reward"},
        ("assess", "reward"): {"register_reward"},
    }
    models["process_reward"] = registered(project, "process_reward")  # scores too
    for (kind, role), wanted in takers.items():
        offered = json.dumps(RunForm(project=project, kind=kind).fields[f"input_{role}"].choices)
        for name, model in models.items():
            with pytest.raises(DomainError) as refused:  # what else is missing, at the latest
                inputs_check(project_id=project.pk, kind=kind, config={}, inputs={role: model})
            assert (refused.value.code == "wrong_input") == (name not in wanted), (kind, role, name)
            assert (f"checkpoint:{model.pk}" in offered) == (name in wanted), (kind, role, name)


def test_what_cannot_be_approved_asks_for_a_reason_and_for_no_approval(project: Project) -> None:
    inputs: dict[str, Input] = {"reward": registered(project, "process_reward")}
    approval_check(kind="grpo", inputs=inputs, override_reason="its steps were read")
    with pytest.raises(DomainError, match="not approved: read what it got right") as refused:
        approval_check(kind="grpo", inputs=inputs, override_reason="")
    assert (refused.value.code, refused.value.field) == ("reward_not_approved", "override_reason")


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


SERVED = {"url": "https://models.example/v1", "model": "/srv/any name 7b"}
TOLD = {"step": 0, "served_model": "/srv/any name 7b", "at": "models.example/v1/chat/completions"}


@pytest.fixture
def served(project: Project) -> Checkpoint:
    run = run_make(
        project,
        kind="served",
        name="their 7B",
        config=SERVED,
        attempt=1,
        state="running",
        ended_at=None,
    )
    report(run, Opened(), saved(0, "last", "final"), Finished(step=0, summary=TOLD))
    return Checkpoint.objects.get(run=run)


def test_the_form_launches_a_run_that_registers_a_server(
    client: Client, project: Project, emil: User
) -> None:
    client.force_login(emil)
    address = f"/p/{project.slug}/runs/new/served/"
    (only,) = RunForm(project=project, kind="served").fields["queue"].choices
    assert only[0] == "short", "it waits for no training, whatever is asked for"
    assert address in client.get(f"/p/{project.slug}/runs/new/").content.decode()
    sent = {"name": "theirs", "seed": 0, "key": "k", "queue": "short"}
    sent |= {f"c_{name}": value for name, value in SERVED.items()}
    assert client.post(address, sent).status_code == 302
    run = Run.objects.get()
    assert (run.kind, run.queue) == ("served", "short")
    assert SERVED.items() <= run.config.items()
    for wrong, field in (
        ({"c_url": "ftp://x"}, "c_url"),
        ({"c_model": ""}, "c_model"),
        ({"c_token_env": "SECRET_KEY"}, "c_token_env"),
        ({"c_tokenizer": "/etc"}, "c_tokenizer"),
        ({"c_n": "2"}, "c_tokenizer"),
    ):
        answer = client.post(address, sent | {"key": "l"} | wrong)
        assert answer.status_code == 422, wrong
        assert list(answer.context["form"].errors) == [field]
    assert Run.objects.count() == 1


def test_a_served_model_answers_and_trains_nothing(project: Project, served: Checkpoint) -> None:
    takers = {
        ("generate", "policy"): True,
        ("generate", "sft"): True,
        ("evaluate", "policy"): True,
        ("evaluate", "sft"): True,
        ("assess", "policy"): True,
        ("probe", "policy"): True,
        ("generate", "critic"): True,
        ("judge", "judge"): True,
        ("dpo", "sft"): False,
        ("ppo", "policy"): False,
        ("reward", "base"): False,
        ("check", "policy"): False,
        ("push", "model"): False,
    }
    for (kind, role), fits in takers.items():
        with pytest.raises(DomainError) as refused:  # what else is missing, at the latest
            inputs_check(project_id=project.pk, kind=kind, config={}, inputs={role: served})
        assert (refused.value.code != "wrong_input") == fits, (kind, role)


def test_a_served_input_has_its_server_and_a_probe_wants_no_tokenizer(
    project: Project, served: Checkpoint, snapshot_make: Callable[..., Snapshot]
) -> None:
    prompts = snapshot_make(kind="prompts")
    given = {"project_id": project.pk, "inputs": {"policy": served, "prompts": prompts}}
    inputs_check(kind="generate", config={"server": {}}, **given)
    inputs_check(kind="generate", config={"server": SERVED | {"serves": "sft"}}, **given)
    with pytest.raises(DomainError) as refused:
        inputs_check(kind="generate", config={"server": SERVED}, **given)
    assert (refused.value.code, refused.value.field) == ("served_already", "config.server")

    rule = {"reward": {"type": "token_count", "token": "a"}}
    inputs_check(kind="probe", config=rule, **given)
    reward = registered(project, "register_reward")
    watch = {"project": project, "checkpoint": served, "prompts": prompts, "reward": reward}
    assert watch_create(name="theirs", **watch).kind == "policy"


def test_the_pages_of_a_served_model_say_where_it_answers_and_offer_no_weights(
    client: Client, project: Project, emil: User, served: Checkpoint
) -> None:
    client.force_login(emil)
    page = client.get(f"/p/{project.slug}/models/{served.pk}/").content.decode()
    assert "models.example/v1/chat/completions" in page
    assert "It answers at its server" in page
    assert "/srv/any name 7b, served at models.example" in page, "its card"
    assert "vllm serve" not in page
    assert "/download/" not in page
    assert f"playground/?model={served.pk}" in page
    run = client.get(f"/p/{project.slug}/runs/{served.run_id}/").content.decode()
    assert "models.example/v1/chat/completions" in run
    for address in ("models/", "playground/", "overview/", "monitoring/"):
        assert client.get(f"/p/{project.slug}/{address}").status_code == 200
    assert client.get(f"/p/{project.slug}/models/{served.pk}/download/").status_code == 404


def test_a_generation_by_two_served_models_is_estimated_and_launched(
    client: Client,
    project: Project,
    emil: User,
    served: Checkpoint,
    snapshot_make: Callable[..., Snapshot],
) -> None:
    client.force_login(emil)
    prompts = snapshot_make(kind="prompts")
    address = f"/p/{project.slug}/runs/new/generate/"
    offered = client.get(address).content.decode()
    assert f"checkpoint:{served.pk}" in offered
    sent = {"name": "pairs", "seed": 0, "key": "k", "queue": "cpu", "c_opponent": "baseline"}
    sent |= {f"input_{role}": f"checkpoint:{served.pk}" for role in ("policy", "sft")}
    sent |= {"input_prompts": f"snapshot:{prompts.pk}"}
    assert client.post(f"{address}estimate/", sent).status_code == 200
    answer = client.post(address, sent)
    assert answer.status_code == 302, answer.context["form"].errors
    run = Run.objects.get(kind="generate")
    roles = RunInput.objects.filter(run=run).values_list("role", "checkpoint")
    assert set(roles) >= {("policy", served.pk), ("sft", served.pk)}
    page = client.get(f"/p/{project.slug}/models/{served.pk}/").content.decode()
    assert "Used by" in page
    assert run.name in page

"""What a run's configuration may not hold: too much, a path of the worker, a drill's faults."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import Project, User
from apps.training.forms.launch import RunForm
from apps.training.models import Run, RunInput
from apps.training.services import run_clone
from tests.training.conftest import FakeWire
from workers.config import as_trained, recipe_presets


@pytest.fixture
def post(client: Client, project: Project, emil: User, wire: FakeWire, artifacts: Path) -> Any:
    client.force_login(emil)

    def send(config: str | dict[str, Any], kind: str = "drill", **more: Any) -> Any:
        text = config if isinstance(config, str) else json.dumps(config)
        rest = json.dumps({"kind": kind, "name": "one"} | more)[:-1]
        body = f'{rest}, "config": {text}}}'
        address = f"/api/v1/projects/{project.slug}/runs"
        return client.post(address, body, content_type="application/json")

    return send


def nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


@pytest.mark.parametrize(
    ("config", "code"),
    [
        (nested(22), "too_deep"),
        (json.dumps({f"k{n}": n for n in range(100_000)}), "too_many_values"),
        (json.dumps({"a": [0] * 6_000}), "too_many_values"),
        (json.dumps({"note": "é" * 200_000}), "too_large"),
    ],
    ids=["deep", "many names", "a long list", "long"],
)
def test_a_configuration_has_a_size(post: Any, config: str, code: str) -> None:
    answer = post(config)
    assert (answer.status_code, answer.json()["code"]) == (422, code)
    assert answer.json()["field"] == "config"
    assert not Run.objects.exists()


def test_a_configuration_within_the_size_is_read(post: Any) -> None:
    answer = post(f'{{"extra": {nested(18)}, "many": {[1] * 2000}, "text": "{"x" * 100_000}"}}')
    assert (answer.status_code, answer.json()["code"]) == (422, "bad_config")
    assert {told.split(":")[0] for told in answer.json()["details"]} == {"extra", "many", "text"}


@pytest.mark.parametrize("depth", [900, 100_000])
def test_a_body_of_any_depth_is_answered(post: Any, depth: int) -> None:
    answer = post(nested(depth))
    assert answer.status_code in (400, 422)
    assert not Run.objects.exists()


def test_inputs_are_counted_before_they_are_looked_up(
    post: Any, django_assert_max_num_queries: Any
) -> None:
    with django_assert_max_num_queries(20):
        answer = post({}, inputs={f"role{n}": "run:none" for n in range(1_000)})
    assert (answer.status_code, answer.json()["field"]) == (422, "inputs")


DANGEROUS = {
    "witness": "/etc/anything",
    "hold_file": "/etc/passwd",
    "children": 2,
    "fault": "segv",
    "ignore_stop": True,
}


@pytest.mark.parametrize("name", DANGEROUS)
def test_a_drill_goes_wrong_on_machines_of_tests_alone(
    post: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert post({name: DANGEROUS[name]}).status_code == 201
    monkeypatch.delenv("DRILL_FOLDER")
    answer = post({name: DANGEROUS[name]})
    assert (answer.status_code, answer.json()["code"]) == (422, "only_in_tests")
    assert answer.json()["field"] == f"config.{name}"
    assert post({"steps": 3, "fault": "none", "children": 0}).status_code == 201


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("gpt2", 201),
        ("Qwen/Qwen3-0.6B", 201),
        ("/srv/models/mine", 201),
        ("/srv/models/../models/mine", 201),
        ("/srv/models", 422),
        ("/srv/models/../secret", 422),
        ("/srv/models-of-others/mine", 422),
        ("/etc", 422),
        ("/missing", 422),
        ("../etc", 422),
        ("./var/artifacts", 422),
        ("a/b/c", 422),
        ("~/models", 422),
        ("https://hub/x", 422),
        ("a/..", 422),
    ],
)
def test_a_base_model_is_a_hubs_or_lies_in_a_listed_folder(
    post: Any, snapshot_make: Any, name: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL_FOLDERS", "/opt/none, /srv/models")
    data = {"data": f"snapshot:{snapshot_make('demonstrations').pk}"}
    answer = post({"base_model": name, "learning_rate": 1e-5}, kind="sft", inputs=data)
    assert answer.status_code == status, answer.json()
    if status == 422:
        said = answer.json()
        assert (said["code"], said["field"]) == ("model_not_allowed", "config.base_model")
        assert name not in said["message"]


# Rules that join settings are answered by form and API before anything is stored.


URL = {"url": "http://127.0.0.1:9/v1", "model": "m"}
BROKEN: list[tuple[str, dict[str, Any], str]] = [
    ("sft", {"base_width": 100, "base_heads": 3}, "base_width"),
    ("reward", {"folds": 1}, "folds"),
    ("dpo", {"loss_type": "exo_pair", "label_smoothing": 0.0}, "label_smoothing"),
    ("dpo", {"loss_type": "ipo", "label_smoothing": 0.1}, "label_smoothing"),
    ("dpo", {"loss_type": "sppo_hard", "guards": {"no_such_rule": "stop"}}, "guards"),
    ("dpo", {"simpo_gamma": 0.5}, "simpo_gamma"),
    ("dpo", {"loss_type": "simpo", "precompute_reference": True}, "precompute_reference"),
    ("dpo", {"loss_type": "orpo", "sft_weight": 0.5}, "sft_weight"),
    ("kto", {"batch_size": 1}, "batch_size"),
    ("ppo", {"batch_size": 10, "minibatch_size": 4}, "batch_size"),
    ("ppo", {"minibatch_size": 16, "microbatch_size": 3}, "minibatch_size"),
    ("ppo", {"kl_coef": 0.0}, "kl_coef"),
    ("ppo", {"rollout_lag": 1}, "rollout_lag"),
    ("ppo", {"rollout_max_age": 3}, "rollout_max_age"),
    ("ppo", {"steps": 5, "critic_warmup_steps": 5}, "critic_warmup_steps"),
    ("ppo", {"watch_phrases": ["Thank you", "thank  you"]}, "watch_phrases"),
    ("ppo", {"refusal_phrases": ["!!"]}, "refusal_phrases"),
    ("ppo", {"reward": {"type": "sum", "parts": []}}, "reward"),
    ("ppo", {"reward": {"type": "token_count", "cap": 0}}, "reward"),
    ("ppo", {"reward": {"type": "http", "url": "ftp://x"}}, "reward"),
    ("grpo", {"batch_size": 10, "group_size": 4}, "batch_size"),
    ("grpo", {"kl_coef": 0.0, "force_zero_kl": False}, "kl_coef"),
    (
        "grpo",
        {"loss_type": "rloo", "importance_sampling_level": "sequence"},
        "importance_sampling_level",
    ),
    ("grpo", {"loss_type": "rloo", "entropy_coef": 0.01}, "entropy_coef"),
    ("grpo", {"batch_size": 16, "group_size": 4, "microbatch_size": 3}, "microbatch_size"),
    ("grpo", {"reward": {"type": "rules", "rules": []}}, "reward"),
    ("generate", {"filter": {"type": "model"}}, "filter"),
    ("generate", {"opponent": "revision", "principles": []}, "principles"),
    ("generate", {"principle_names": ["one"]}, "principle_names"),
    ("generate", {"server": URL | {"stop": [""]}}, "server"),
    ("evaluate", {"server": URL | {"failed_share": 0.1}}, "server"),
    ("evaluate", {"reward": {"type": "verifier", "check": "what"}}, "reward"),
    ("assess", {"server": {"url": "http://127.0.0.1:9/v1"}}, "server"),
    ("check", {"reward": {"type": "nothing"}}, "reward"),
    ("probe", {"server": URL | {"serves": "sft"}}, "server"),
    ("drill", {"step_seconds": -1.0}, "step_seconds"),
]
IDS = [f"{kind}-{name}-{n}" for n, (kind, _, name) in enumerate(BROKEN)]


def launch(client: Client, project: Project, emil: User, kind: str, config: dict[str, Any]) -> Any:
    client.force_login(emil)
    return client.post(
        f"/api/v1/projects/{project.slug}/runs",
        json.dumps({"kind": kind, "name": "one", "config": as_trained(kind, config)}),
        content_type="application/json",
    )


@pytest.mark.parametrize(("kind", "config", "name"), BROKEN, ids=IDS)
def test_the_api_names_the_field(
    client: Client, project: Project, emil: User, kind: str, config: dict[str, Any], name: str
) -> None:
    answer = launch(client, project, emil, kind, config)
    assert (answer.status_code, answer.json()["code"]) == (422, "bad_config"), answer.json()
    assert answer.json()["field"] == f"config.{name}"
    assert not Run.objects.exists()


@pytest.mark.parametrize(("kind", "config", "name"), BROKEN, ids=IDS)
def test_the_form_marks_the_field(
    project: Project, kind: str, config: dict[str, Any], name: str
) -> None:
    blank = RunForm(project=project, kind=kind, preset="")
    sent = {field: blank[field].value() for field in blank.fields if not field.startswith("g_")}
    sent = {field: value for field, value in sent.items() if value not in (None, False)}
    fields = {one.name: one for one in blank.options.values()}
    for key, value in config.items():
        plain = fields[key].type not in {"object", "list"}
        if key == "guards":
            sent["pasted"] = json.dumps({"guards": value})
        else:
            sent[f"c_{key}"] = value if plain else json.dumps(value)
    form = RunForm(sent | {"name": "one", "seed": 0}, project=project, kind=kind)
    assert not form.is_valid()
    assert ("pasted" if name == "guards" else f"c_{name}") in form.errors


def test_two_fields_of_a_rule_are_both_named(client: Client, project: Project, emil: User) -> None:
    answer = launch(client, project, emil, "ppo", {"batch_size": 10, "minibatch_size": 4})
    assert answer.status_code == 422
    words = set(answer.json()["message"].replace(":", "").split())
    assert {"batch_size", "minibatch_size"} <= words


TRAINED = ("sft", "reward", "dpo", "kto", "ppo", "grpo")


@pytest.mark.parametrize("kind", TRAINED)
def test_a_new_run_says_its_learning_rate_or_has_it_from_a_preset(
    post: Any, project: Project, kind: str
) -> None:
    answer = post({}, kind=kind)
    assert (answer.status_code, answer.json()["field"]) == (422, "config.learning_rate")
    assert "lora" in answer.json()["message"]  # a preset that has one
    blank = RunForm(project=project, kind=kind)
    assert blank["c_learning_rate"].value() in (None, "")
    form = RunForm({"name": "one", "seed": 0}, project=project, kind=kind)
    assert "c_learning_rate" in form.errors
    for config in ({"preset": "lora"}, {"learning_rate": 1e-5}):
        assert post(config, kind=kind).json()["field"] != "config.learning_rate"
    filled = RunForm(project=project, kind=kind, preset="lora")
    assert filled["c_learning_rate"].value() == recipe_presets(kind)["lora"]["learning_rate"]


def test_a_copy_of_a_run_that_named_no_learning_rate_has_the_one_it_was_trained_with(
    project: Project, wire: FakeWire, snapshot_make: Any
) -> None:
    old = Run.objects.create(project=project, name="old", kind="sft", config={"toy": True})
    RunInput.objects.create(run=old, role="data", snapshot=snapshot_make("demonstrations"))
    assert RunForm(project=project, kind="sft", source=old)["c_learning_rate"].value() == 1e-5
    copy = run_clone(run=old)
    assert copy.config == {"toy": True, "learning_rate": 1e-5}

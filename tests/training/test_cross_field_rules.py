"""Rules that join settings are answered by form and API before anything is stored."""

import json
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import Project, User
from apps.training.forms.launch import RunForm
from apps.training.models import Run

URL = {"url": "http://127.0.0.1:9/v1", "model": "m"}
BROKEN: list[tuple[str, dict[str, Any], str]] = [
    ("sft", {"base_width": 100, "base_heads": 3}, "base_width"),
    ("reward", {"folds": 1}, "folds"),
    ("dpo", {"loss_type": "exo_pair", "label_smoothing": 0.0}, "label_smoothing"),
    ("dpo", {"loss_type": "ipo", "label_smoothing": 0.1}, "label_smoothing"),
    ("dpo", {"loss_type": "sppo_hard", "guards": {"no_such_rule": "stop"}}, "guards"),
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
    ("grpo", {"batch_size": 16, "group_size": 4, "microbatch_size": 3}, "microbatch_size"),
    ("grpo", {"reward": {"type": "rules", "rules": []}}, "reward"),
    ("generate", {"filter": {"type": "model"}}, "filter"),
    ("generate", {"opponent": "revision", "principles": []}, "principles"),
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
        json.dumps({"kind": kind, "name": "one", "config": config}),
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

"""A policy is never evaluated on prompts that it trains on: refused before anything is stored."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import Project, User
from apps.common.errors import DomainError
from apps.snapshots.models import Snapshot
from apps.snapshots.services.importing import snapshot_import
from apps.training import services
from apps.training.models import Checkpoint, Run, RunInput
from tests.training.conftest import FakeWire
from tests.training.test_launching import model
from workers.config import as_trained

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("artifacts", "wire")]
REWARD = {"reward": {"type": "token_count", "token": "a"}}
KINDS = ("ppo", "grpo", "evaluate")


def bring(project: Project, name: str, kind: str = "prompts", **asked: list[str]) -> Snapshot:
    """A dataset with these prompts in these splits."""
    more = {"response": "Because."} if kind == "demonstrations" else {}
    rows = [
        {"prompt": f"Why {text}?", "split": split} | more
        for split, texts in asked.items()
        for text in texts
    ]
    return snapshot_import(project=project, kind=kind, name=name, rows=rows)


@pytest.fixture
def policies(project: Project) -> dict[str, Checkpoint]:
    return {"sft": model(project, "sft"), "policy": model(project, "dpo")}


@pytest.fixture
def one_sided(project: Project) -> Snapshot:
    """All of it is trained on, and counted so."""
    one = {"prompt": "Why?", "group": "one"}
    return snapshot_import(project=project, kind="prompts", name="One-sided", rows=[one])


def launching(project: Project, kind: str, inputs: dict[str, Any]) -> Callable[[], Run]:
    config = as_trained(kind, REWARD)
    return partial(
        services.run_launch, project=project, kind=kind, name="one", config=config, inputs=inputs
    )


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_without_a_held_out_split_are_refused_by_api_and_form(
    project: Project,
    emil: User,
    client: Client,
    policies: dict[str, Checkpoint],
    one_sided: Snapshot,
    kind: str,
) -> None:
    client.force_login(emil)
    words = refused_by_api_and_form(
        client, project, kind, policies | {"prompts": one_sided}, "no_held_out_prompts"
    )
    assert "One-sided" in words
    inputs = policies | {"prompts": bring(project, "Halves", train=["a"], dev=["b"])}
    assert launching(project, kind, inputs)().pk


def refused_by_api_and_form(
    client: Client, project: Project, kind: str, inputs: dict[str, Any], code: str
) -> str:
    """The words of the refusal; nothing was stored."""
    before = Run.objects.count()
    refs = {
        role: f"{'snapshot' if isinstance(one, Snapshot) else 'checkpoint'}:{one.pk}"
        for role, one in inputs.items()
    }
    body = {"kind": kind, "name": "one", "config": as_trained(kind, REWARD), "inputs": refs}
    address = f"/api/v1/projects/{project.slug}/runs"
    answer = client.post(address, json.dumps(body), content_type="application/json")
    error = answer.json()
    assert (answer.status_code, error["code"]) == (422, code)
    assert error["field"] == "inputs.prompts"
    page = client.get(f"/p/{project.slug}/runs/new/{kind}/")
    sent = {
        bound.html_name: str(bound.value())
        for bound in page.context["form"]
        if bound.value() is not None and bound.value() is not False
    }
    sent |= {f"input_{role}": ref for role, ref in refs.items()}
    sent["pasted"] = json.dumps(as_trained(kind, REWARD))
    refused = client.post(f"/p/{project.slug}/runs/new/{kind}/", sent)
    assert refused.status_code == 422
    assert refused.context["form"].errors == {"input_prompts": [error["message"]]}
    assert Run.objects.count() == before
    return error["message"]


def test_generation_and_assessments_take_prompts_of_one_side(
    project: Project, policies: dict[str, Checkpoint], one_sided: Snapshot
) -> None:
    inputs = {"prompts": one_sided, "policy": policies["policy"]}
    run = services.run_launch(
        project=project, kind="generate", name="one", config={}, inputs=inputs
    )
    assert run.pk


@pytest.mark.parametrize("kind", ["ppo", "grpo"])
def test_a_prompt_that_is_trained_on_and_held_out_elsewhere_is_refused_by_name(
    project: Project, policies: dict[str, Checkpoint], kind: str
) -> None:
    asked = bring(project, "Asked", train=["a", "b", "c"], dev=["d"])
    shown = bring(project, "Shown", "demonstrations", train=["x", "d"], test=["B", "c", "y"])
    with pytest.raises(DomainError, match="'Asked' trains on 2 prompts that 'Shown'") as refused:
        launching(project, kind, policies | {"prompts": asked, "demonstrations": shown})()
    assert (refused.value.code, refused.value.field) == ("prompts_overlap", "inputs.prompts")
    apart = bring(project, "Apart", "demonstrations", train=["a"], test=["y"])
    assert launching(project, kind, policies | {"prompts": asked, "demonstrations": apart})().pk


@pytest.mark.parametrize("kind", KINDS)
def test_a_held_out_prompt_that_the_policy_learned_from_is_refused_by_name(
    project: Project, emil: User, client: Client, policies: dict[str, Checkpoint], kind: str
) -> None:
    """Planted: the policy comes from an SFT model that was shown one of the evaluation prompts."""
    shown = bring(project, "Shown", "demonstrations", train=["b", "x"], dev=["y"])
    first = model(project, "sft")
    RunInput.objects.create(run=first.run, role="data", snapshot=shown)
    RunInput.objects.create(run=policies["policy"].run, role="sft", checkpoint=first)
    asked = bring(project, "Asked", train=["a"], dev=["B", "c"])
    client.force_login(emil)
    words = refused_by_api_and_form(
        client, project, kind, policies | {"prompts": asked}, "prompts_overlap"
    )
    assert "'Asked' holds out 1 prompt that the policy learned from in 'Shown'" in words
    others = bring(project, "Others", train=["b"], dev=["c"])
    assert launching(project, kind, policies | {"prompts": others})().pk


def test_files_that_are_gone_refuse_nothing_here(
    project: Project, policies: dict[str, Checkpoint], wire: FakeWire, artifacts: Path
) -> None:
    asked = bring(project, "Asked", train=["a"], dev=["b"])
    for file in (artifacts / asked.uri).glob("*.jsonl"):
        file.unlink()
    assert launching(project, "ppo", policies | {"prompts": asked})().pk

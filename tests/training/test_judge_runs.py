"""Runs that judge pairs: what they may read, what they burn, and how their page shows them."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.common.errors import DomainError, Unprocessable
from apps.snapshots.models import Snapshot, SplitAccess
from apps.training.forms.launch import RunForm
from apps.training.models import Artifact, Checkpoint, Run
from apps.training.services import run_launch
from apps.training.services.held_out import held_out_judges
from apps.training.services.kinds import KEEP_LITTLE, SHORT, inputs_check
from tests.training.reports import report, saved
from tests.web.world import run_make
from workers.contract import Finished, Opened
from workers.contract.events import ArtifactSaved, Generated, SplitRead

pytestmark = pytest.mark.usefixtures("wire", "artifacts")
SUMMARY = {
    "step": 1,
    "pairs": 40,
    "unreadable": 2,
    "too_long": 1,
    "order_free": False,
    "reads": "text",
    "says": "their-9b",
    "fingerprint": "fp_a,fp_b",
    "attacks": {"flattery": {"n": 10, "moved": 3}},
    "seconds": 12.5,
    "server": {"role": "judge", "at": "models.example/v1", "model": "judge", "says": "their-9b"},
    "unanswered": 0,
}


def model(project: Project, kind: str, **fields: Any) -> Checkpoint:
    run = run_make(project, kind=kind, attempt=1, state="running", ended_at=None, **fields)
    report(run, Opened(), saved(0, "last", "final"), Finished(step=0))
    return Checkpoint.objects.get(run=run)


@pytest.fixture
def pairs(snapshot_make: Callable[..., Snapshot]) -> Snapshot:
    return snapshot_make("pairs")


def launch(project: Project, pairs: Snapshot, judge: Checkpoint, **config: Any) -> Run:
    given = {"pairs": pairs, "judge": judge}
    return run_launch(project=project, kind="judge", name="judge", config=config, inputs=given)


@pytest.mark.parametrize("kind", ["sft", "ppo", "served", "reward", "register_reward"])
def test_policies_served_models_and_reward_models_may_judge(
    project: Project, pairs: Snapshot, kind: str
) -> None:
    run = launch(project, pairs, model(project, kind), attacked=20)
    assert (run.kind, run.queue) == ("judge", "cpu")
    assert (run.kind in SHORT, run.kind in KEEP_LITTLE) == (False, True)


def test_a_run_needs_pairs_without_labels_and_a_judge(
    project: Project, pairs: Snapshot, snapshot_make: Callable[..., Snapshot]
) -> None:
    given = {"pairs": pairs, "judge": model(project, "sft")}
    for role in given:
        rest = {name: one for name, one in given.items() if name != role}
        with pytest.raises(DomainError) as refused:
            inputs_check(project_id=project.pk, kind="judge", config={}, inputs=rest)
        assert (refused.value.code, refused.value.field) == ("missing_input", f"inputs.{role}")
    for role, wrong in (
        ("pairs", snapshot_make("preferences")),
        ("judge", model(project, "register_encoder")),
    ):
        with pytest.raises(DomainError) as refused:
            inputs_check(
                project_id=project.pk, kind="judge", config={}, inputs=given | {role: wrong}
            )
        assert (refused.value.code, refused.value.field) == ("wrong_input", f"inputs.{role}")


def test_pairs_without_labels_train_nothing(project: Project, pairs: Snapshot) -> None:
    for kind, role in (("reward", "data"), ("dpo", "data"), ("generate", "prompts")):
        with pytest.raises(DomainError) as refused:
            inputs_check(project_id=project.pk, kind=kind, config={}, inputs={role: pairs})
        assert refused.value.code == "wrong_input"


def test_a_probability_of_a_served_model_is_refused_before_a_machine_is_asked(
    project: Project, pairs: Snapshot
) -> None:
    with pytest.raises(DomainError) as refused:
        launch(project, pairs, model(project, "served"), reads="probability")
    assert (refused.value.code, refused.value.field) == ("no_weights", "config.reads")
    assert launch(project, pairs, model(project, "sft"), reads="probability").pk


def test_settings_are_checked_at_launch(project: Project, pairs: Snapshot) -> None:
    with pytest.raises(Unprocessable) as refused:
        launch(project, pairs, model(project, "sft"), prompt="Which of {first} and {second}?")
    assert (refused.value.code, refused.value.field) == ("bad_config", "config.prompt")


def test_a_reward_model_that_judges_pairs_is_held_out_from_nothing(
    project: Project, pairs: Snapshot
) -> None:
    reward = model(project, "reward")
    launch(project, pairs, reward)
    assert held_out_judges(project.pk) == set()


def test_a_critic_may_be_any_model_that_answers(
    project: Project, snapshot_make: Callable[..., Snapshot]
) -> None:
    given = {"prompts": snapshot_make("prompts"), "policy": model(project, "sft")}
    for kind, fits in (("ppo", True), ("served", True), ("reward", False)):
        critic = model(project, kind)
        check: dict[str, Any] = {"kind": "generate", "config": {"opponent": "revision"}}
        check |= {"project_id": project.pk, "inputs": given | {"critic": critic}}
        if fits:
            inputs_check(**check)
            continue
        with pytest.raises(DomainError) as refused:
            inputs_check(**check)
        assert refused.value.field == "inputs.critic"
    form = RunForm(project=project, kind="generate")
    assert not form.fields["input_critic"].widget.attrs.get("required")


def test_its_page_shows_what_it_counted_and_its_file_and_offers_no_clone(
    project: Project, pairs: Snapshot, client: Client, emil: User
) -> None:
    run = launch(project, pairs, model(project, "sft"))
    uri = "runs/x/attempt-1/artifacts/verdicts.jsonl"
    report(
        run,
        Opened(),
        SplitRead("pairs", "pairs", 40),
        ArtifactSaved("verdicts.jsonl", uri, "a" * 64, 900, "application/x-ndjson"),
        Generated(uri, "a" * 64, 40, "verdicts"),
        Finished(step=1, summary=SUMMARY),
    )
    (row,) = SplitAccess.objects.filter(run=run.pk)
    assert (row.split, row.n_items, row.purpose) == ("pairs", 40, "judge")
    file = Artifact.objects.get(run=run, purpose="verdicts")
    assert (file.name, file.count) == ("verdicts.jsonl", 40)
    client.force_login(emil)
    address = f"/p/{project.slug}/runs/{run.pk}/"
    for tab in ("overview", "charts", "samples", "alerts", "config", "logs", "lineage", "repeat"):
        page = client.get(address, {"tab": tab})
        assert page.status_code == 200
        assert "/runs/new/judge/" not in page.content.decode(), tab
    text = client.get(address).content.decode()
    for words in ("verdicts.jsonl", "fp_a,fp_b", "Flattery: moved", "Verdicts of a judge"):
        assert words in text, words
    assert f"/runs/{run.pk}/" in client.get(f"/p/{project.slug}/runs/").content.decode()
    assert client.get(f"/p/{project.slug}/runs/new/judge/").status_code == 404
    assert "/runs/new/judge/" not in client.get(f"/p/{project.slug}/runs/new/").content.decode()


def test_a_failed_one_offers_no_clone_that_no_form_takes(
    project: Project, client: Client, emil: User
) -> None:
    run = run_make(project, kind="judge", state="failed", ended_at=timezone.now())
    client.force_login(emil)
    text = client.get(f"/p/{project.slug}/runs/{run.pk}/").content.decode()
    assert "/runs/new/judge/" not in text

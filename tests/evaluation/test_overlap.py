"""Which prompts of an evaluation its policy was trained on, over any number of runs in between."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from pytest_django.fixtures import Settings

from apps.accounts.models import Project, User
from apps.evaluation.models import PromptOverlap
from apps.evaluation.selectors.evidence import evidence_of
from apps.evaluation.selectors.overlap import overlap_find, overlap_of, overlap_words
from apps.evaluation.services.overlap import overlaps_check
from apps.snapshots.models import Snapshot
from apps.snapshots.services.importing import snapshot_import
from apps.snapshots.storage import artifact_store
from apps.training.models import Checkpoint, Run, RunInput
from tests.evaluation.promoted import run_made, saved, suite_made

ASKED = "In which year did the first crew of three people walk on the surface of the moon?"
LONG = " ".join(f"word{k}" for k in range(40))
NEARLY = LONG.replace("word20", "other")
CLEAN = "What is the sum of forty-one and seventeen, written as a number?"


@pytest.fixture(autouse=True)
def artifacts(tmp_path: Path, settings: Settings) -> None:
    settings.ARTIFACTS_URL = str(tmp_path / "artifacts")


@pytest.fixture
def suite(project: Project) -> Snapshot:
    rows = [{"prompt": text, "split": "dev"} for text in (ASKED, LONG, CLEAN)]
    for row in rows:
        row["check"] = {"category": "answers", "test": "answers"}  # type: ignore[assignment]
    return snapshot_import(project=project, kind="prompts", name="suite", rows=rows)


@pytest.fixture
def demonstrations(project: Project) -> Callable[..., Snapshot]:
    def make(*prompts: str) -> Snapshot:
        texts = [*prompts, *(f"Say something of thing {k * k + 7}." for k in range(4))]
        rows = [{"prompt": text, "response": "Yes.", "split": "train"} for text in texts]
        rows.append({"prompt": "What else is held out here?", "response": "No.", "split": "dev"})
        name = f"demonstrations {Snapshot.objects.count()}"
        return snapshot_import(project=project, kind="demonstrations", name=name, rows=rows)

    return make


def trained(project: Project, name: str, kind: str, **inputs: Any) -> Checkpoint:
    run = run_made(project, kind, name)
    for role, given in inputs.items():
        named = "snapshot" if isinstance(given, Snapshot) else "checkpoint"
        RunInput.objects.create(run=run, role=role, **{named: given})
    return saved(run)


def evaluated(policy: Checkpoint, suite: Snapshot) -> Run:
    run = suite_made(policy)
    RunInput.objects.create(run=run, role="prompts", snapshot=suite)
    return run


def test_a_prompt_two_ancestors_up_and_a_near_duplicate_are_found(
    project: Project, suite: Snapshot, demonstrations: Callable[..., Snapshot]
) -> None:
    first, second, third = demonstrations(ASKED), demonstrations(), demonstrations(NEARLY)
    oldest = trained(project, "first SFT", "sft", data=first)
    older = trained(project, "second SFT", "sft", data=second, base=oldest)
    policy = trained(project, "DPO", "dpo", data=third, sft=older)
    run = evaluated(policy, suite)
    assert overlaps_check() == 1
    run.refresh_from_db()
    found = overlap_of(run)
    assert found is not None
    assert (found.prompts, found.exact, found.near) == (3, 1, 1)
    by_name = {one.name: (one.rows, one.exact, one.near) for one in found.datasets}
    assert by_name == {first.name: (5, 1, 0), second.name: (4, 0, 0), third.name: (5, 0, 1)}
    assert {one.prompt for one in found.matches} == {ASKED, LONG}
    (same,) = [one for one in found.matches if one.prompt == ASKED]
    assert (same.dataset, same.similarity) == (first.name, 1.0)
    assert overlaps_check() == 0, "each evaluation is compared once"


def test_nothing_found_says_what_was_compared(
    project: Project, suite: Snapshot, demonstrations: Callable[..., Snapshot]
) -> None:
    base = trained(project, "base", "register_policy")
    older = trained(project, "SFT", "sft", data=demonstrations(), base=base)
    run = evaluated(trained(project, "PPO", "ppo", prompts=demonstrations(), sft=older), suite)
    found = overlap_find(run)
    assert found is not None
    assert found.found == 0
    assert overlap_words(found) == (
        "None of its 3 prompts is among the 8 training rows of 2 datasets. What base learned "
        "before is not known."
    )


def test_what_the_reward_model_learned_from_is_compared_too(
    project: Project, suite: Snapshot, demonstrations: Callable[..., Snapshot]
) -> None:
    pair = {"response_a": "Yes.", "response_b": "No.", "gold": "a", "split": "train"}
    rows = [pair | {"prompt": text} for text in (ASKED, "Quite another thing?")]
    rows.append(pair | {"prompt": "And what is held out?", "split": "dev"})
    pairs = snapshot_import(project=project, kind="preferences", name="pairs", rows=rows)
    reward = trained(project, "reward", "reward", data=pairs)
    policy = trained(project, "PPO", "ppo", prompts=demonstrations(), reward=reward)
    found = overlap_find(evaluated(policy, suite))
    assert found is not None
    assert (found.exact, found.near) == (1, 0)


def test_held_out_rows_of_a_training_dataset_are_no_overlap(
    project: Project, suite: Snapshot
) -> None:
    rows = [{"prompt": "Train on this, please?", "split": "train"}]
    rows.append({"prompt": ASKED, "split": "dev"})
    prompts = snapshot_import(project=project, kind="prompts", name="prompts", rows=rows)
    found = overlap_find(evaluated(trained(project, "PPO", "ppo", prompts=prompts), suite))
    assert found is not None
    assert (found.found, found.rows) == (0, 1)


def test_a_dataset_whose_file_is_gone_is_not_said_to_be_clean(
    project: Project, suite: Snapshot, demonstrations: Callable[..., Snapshot]
) -> None:
    gone = demonstrations(ASKED)
    policy = trained(project, "SFT", "sft", data=gone)
    artifact_store().delete_tree(gone.uri)
    found = overlap_find(evaluated(policy, suite))
    assert overlap_words(found) == (
        "Its prompts were compared with no training data: none of it is known here. "
        f"Not compared, since the files are gone: {gone.name}."
    )


def test_page_api_and_gate_print_the_count(
    project: Project,
    emil: User,
    client: Client,
    suite: Snapshot,
    demonstrations: Callable[..., Snapshot],
) -> None:
    policy = trained(project, "SFT", "sft", data=demonstrations(ASKED))
    run = evaluated(policy, suite)
    client.force_login(emil)
    path = f"/api/v1/projects/{project.slug}/runs/{run.pk}/prompt-overlap"
    assert client.get(path).json()["checked_at"] is None
    overlaps_check()
    told = client.get(path).json()
    assert (told["exact"], told["near"], told["prompts"], told["rows"]) == (1, 0, 3, 5)
    plain = run_made(project, "evaluate", "without checks")
    for role, given in (("policy", {"checkpoint": policy}), ("prompts", {"snapshot": suite})):
        RunInput.objects.create(run=plain, role=role, **given)
    overlaps_check()
    page = client.get(reverse("evaluation:run_checks", args=[project.slug, plain.pk]))
    assert "1 of its 3 prompts is among the 5 training rows" in page.content.decode()
    (line,) = [one for one in evidence_of(policy) if one.name == "regression"]
    assert line.facts["prompts_trained_on"] == 1
    assert told["says"] in line.says
    assert PromptOverlap.objects.count() == 2

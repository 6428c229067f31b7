"""Checklists are read from what a run left; a card says where each of its figures is from."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from apps.accounts.models import Project, User
from apps.evaluation.selectors.checklists import checklists
from apps.snapshots.storage import artifact_store
from apps.training.formats import readme_text
from apps.training.models import Alert, Artifact, Checkpoint, Run, RunAttempt, Sample
from apps.training.selectors.cards import model_card
from tests.evaluation.promoted import ask, evaluation_lost, model, run_made, saved, serve
from tests.web.world import metrics_add

__all__ = ["ask", "model", "serve"]  # fixtures


def states(run: Run) -> dict[str, str]:
    run = Run.objects.get(pk=run.pk)
    return {item.name: item.state for one in checklists(run) for item in one.items}


def preflight_left(run: Run, **levels: str) -> None:
    """As the trainer leaves it: a report, and its levels in the summary."""
    figures = {"reward": {"mean_random": 0.11, "mean_expert": 0.4, "n": 100}}
    findings = [
        {"check": name, "level": level, "figures": figures.get(name, {})}
        for name, level in levels.items()
    ]
    content = json.dumps({"version": 1, "findings": findings}).encode()
    uri = f"runs/{run.pk}/attempt-1/preflight.json"
    Artifact.objects.create(
        run=run,
        attempt=1,
        seq=Artifact.objects.filter(run=run).count() + 1,
        name="preflight.json",
        uri=uri,
        sha256=artifact_store().write_bytes(uri, content),
        size_bytes=len(content),
    )
    Run.objects.filter(pk=run.pk).update(summary={"preflight": {"level": "ok", "checks": levels}})


IN_ORDER = dict.fromkeys(
    ("data", "template", "lengths", "reward", "reward_shape", "eval_overlap", "memory"), "ok"
)


def sample(run: Run, bucket: str, seq: int) -> None:
    Sample.objects.create(
        run=run, attempt=1, seq=seq, step=400, bucket=bucket, prompt=[], response="An answer."
    )


def test_the_three_lists_have_six_seven_and_six_items(model: Checkpoint) -> None:
    found = checklists(model.run)
    assert [(one.name, len(one.items)) for one in found] == [
        ("before", 6),
        ("during", 7),
        ("after", 6),
    ]


def test_before_training_is_read_from_the_preflight(
    model: Checkpoint, tmp_path: Path, settings: Settings
) -> None:
    settings.ARTIFACTS_URL = str(tmp_path)
    preflight_left(model.run, **IN_ORDER)
    found = states(model.run)
    names = ("rows", "random", "expert", "histogram", "protocol", "memory")
    assert {name: found[name] for name in names} == dict.fromkeys(names, "done")
    preflight_left(
        model.run, **IN_ORDER | {"reward": "block", "reward_shape": "warn", "memory": "unknown"}
    )
    found = states(model.run)
    assert (found["expert"], found["histogram"], found["memory"]) == (
        "not_done",
        "not_done",
        "unknown",
    )
    assert found["random"] == "done", "random answers were scored, whatever came out"
    RunAttempt.objects.filter(run=model.run).update(spec={})
    assert states(model.run)["protocol"] == "unknown"


def test_a_run_without_a_preflight_says_not_known_and_never_done(project: Project) -> None:
    run = run_made(project, "ppo", "bare")
    found = states(run)
    assert {found[name] for name in ("rows", "random", "expert", "histogram", "memory")} == {
        "unknown"
    }


def test_what_a_kind_does_not_have_does_not_apply(project: Project) -> None:
    found = states(run_made(project, "dpo", "preferences"))
    assert {found[name] for name in ("random", "expert", "histogram", "samples", "failed")} == {
        "not_applicable"
    }
    assert checklists(run_made(project, "evaluate", "look")) == []


def test_during_training_an_alert_counts_until_somebody_acknowledges_it(
    model: Checkpoint, ada: User
) -> None:
    run = model.run
    assert states(run)["clip_fraction"] == "unknown", "nothing was measured"
    metrics_add(run, 5, [1, 2, 3], policy__clipfrac_avg=[0.1, 0.1, 0.1])
    assert states(run)["clip_fraction"] == "done"
    alert = Alert.objects.create(
        run=run,
        attempt=1,
        seq=9,
        step=3,
        rule="clipped_often",  # as the rule was called before
        severity="warning",
        message="clipped",
        raised_at=timezone.now(),
    )
    assert states(run)["clip_fraction"] == "not_done"
    Alert.objects.filter(pk=alert.pk).update(acknowledged_at=timezone.now(), acknowledged_by=ada)
    assert states(run)["clip_fraction"] == "done"


def test_a_run_out_of_memory_has_not_had_enough(project: Project) -> None:
    run = run_made(
        project, "ppo", "large", state="failed", failure_kind="out_of_memory", fault="machine"
    )
    found = states(run)
    assert (found["resources"], found["failed"]) == ("not_done", "not_done")
    saved(run, 90, tags=["failed"])
    assert states(run)["failed"] == "done"


def test_the_deliverables_are_what_is_there(model: Checkpoint) -> None:
    names = ("best", "last", "samples", "seeds", "report")
    found = states(model.run)
    assert {name: found[name] for name in names} == {
        "best": "done",
        "last": "done",
        "samples": "not_done",
        "seeds": "done",
        "report": "done",
    }
    for seq, bucket in enumerate(("high", "low", "random")):
        sample(model.run, bucket, seq)
    assert states(model.run)["samples"] == "done"
    evaluation_lost(model)
    Run.objects.filter(group=model.run.group, seed=1).delete()
    Checkpoint.objects.filter(pk=model.pk).update(tags=["final"])
    found = states(model.run)
    assert (found["report"], found["seeds"], found["best"], found["last"]) == (
        "not_done",
        "not_done",
        "not_done",
        "done",
    )


def test_the_tab_and_the_api_show_them_with_the_decision(
    model: Checkpoint,
    serve: Callable[..., Any],
    emil: User,
    signed_in: Callable[[User], Client],
) -> None:
    serve(model)
    client = signed_in(emil)
    run = f"/p/arguments/runs/{model.run_id}/"
    assert f"{run}checklists/" in client.get(f"{run}?tab=checklists").content.decode()
    page = client.get(f"{run}checklists/").content.decode()
    for words in ("Before training", "During training", "After training", "approved by Ada"):
        assert words in page, words
    told = client.get(f"/api/v1/projects/arguments/runs/{model.run_id}/checklists").json()
    assert [one["name"] for one in told] == ["before", "during", "after"]
    items = {item["name"]: item for one in told for item in one["items"]}
    assert items["best"]["state"] == "done"
    assert items["best"]["url"] == f"/p/arguments/models/{model.pk}/"


# --- the card ---


def test_every_figure_of_a_card_names_its_source(
    model: Checkpoint, serve: Callable[..., Any], settings: Settings
) -> None:
    settings.SITE_URL = "https://concord.example.org"
    change = serve(model, reason="better answers")
    card = readme_text(model_card(model))
    evaluation = Run.objects.exclude(summary__has_key="regression").get(kind="evaluate")
    site = "https://concord.example.org/p/arguments"
    for words in (
        "62.0 % (95 %: 57.0 % to 67.0 %) of 512 prompts",
        f"]({site}/runs/{evaluation.pk}/)",
        "e" * 64,
        "a" * 64,  # the reward model's page as it was approved
        change.request.evidence_sha256,
        f"]({site}/promotions/{change.request_id}/)",
        "promoted by Ada, asked by Emil",
        "better answers",
    ):
        assert words in card, words
    figures = card.partition("## How it was judged")[2].partition("\n## ")[0]
    assert all(line.endswith(")") for line in figures.splitlines() if line.startswith("- ")), (
        "a line without its source"
    )
    assert card == readme_text(model_card(Checkpoint.objects.get(pk=model.pk)))


def test_a_card_is_what_the_hub_reads(model: Checkpoint) -> None:
    hub = pytest.importorskip("huggingface_hub")
    card = hub.ModelCard(readme_text(model_card(model)))
    assert (card.data.license, card.data.library_name) == ("mit", "transformers")
    assert card.data.pipeline_tag == "text-generation"
    (result,) = card.data.eval_results
    assert (result.metric_type, result.metric_value) == ("win_rate", 0.62)
    assert result.dataset_name == "questions of assistant"
    assert result.dataset_revision == "5" * 64
    evaluated = Run.objects.exclude(summary__has_key="regression").get(kind="evaluate")
    assert result.source_url.endswith(f"/runs/{evaluated.pk}/")


def test_a_card_holds_no_figure_that_was_not_measured(model: Checkpoint) -> None:
    evaluation_lost(model)
    card = readme_text(model_card(model))
    assert "model-index" not in card
    assert "not measured: This checkpoint has not been evaluated" in card


def test_a_reward_models_card_says_who_decided(model: Checkpoint) -> None:
    reward = model.run.inputs.get(role="reward").checkpoint
    card = readme_text(model_card(reward))
    assert "by Ada" in card.partition("## What people decided")[2]
    assert "a" * 64 in card

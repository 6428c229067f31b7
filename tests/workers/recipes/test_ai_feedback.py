"""A dataset that a model labelled trains a reward model, DPO and PPO, and no vote is cast."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from apps.accounts.models import Project, User
from apps.labeling.models import Vote
from apps.snapshots.models import Snapshot
from apps.snapshots.services.ai_feedback import ai_feedback_freeze
from tests.workers.recipes.conftest import PLANTED_PPO, preference_rows
from tests.workers.recipes.language import Workshop, user, word_tokenizer
from workers.config import settings_for
from workers.data.batches import PairEncoder
from workers.data.snapshot import Preference, read_preferences, refuse_soft_labels
from workers.trainers.reward_data import EncodedPair, PairData
from workers.trainers.reward_reports import split_reports

PAIRS = {
    "batch_size": 16,
    "max_length": 32,
    "eval_every": 10,
    "save_every": 100,
    "learning_rate": 3e-3,
    "bootstrap_replicates": 100,
}
DPO = {"sample_max_new_tokens": 4, "sample_prompts": 2, "learning_rate": 1e-3}
Frozen = Callable[..., Snapshot]


@pytest.fixture
def frozen(
    db: None, project: Project, emil: User, tmp_path: Path, settings: Settings, workshop: Workshop
) -> Frozen:
    """The planted preferences as a model's labels, frozen and put where trainers read."""
    settings.ARTIFACTS_URL = str(tmp_path / "artifacts")

    def make(name: str, **more: float) -> Snapshot:
        rows = [
            {
                **{name: row[name] for name in ("prompt", "chosen", "rejected", "group")},
                "principle": "good",
                "weight": 0.5,
                **more,
            }
            for row in [*preference_rows(0), *preference_rows(1)]
        ]
        made = ai_feedback_freeze(
            project=project,
            name=name,
            rows=rows,
            about={},
            user=emil,
            labelled_by="ai:constitution",
        )
        folder = workshop.root / "snapshots" / name
        shutil.copytree(tmp_path / "artifacts" / made.uri, folder)
        (folder / "manifest.json").unlink(missing_ok=True)
        workshop._put(name, folder, "snapshot")
        return made

    return make


def test_reward_model_dpo_and_ppo_learn_from_ai_feedback_without_a_vote(
    workshop: Workshop, frozen: Frozen
) -> None:
    made = frozen("ai_pairs")
    assert set(made.counts["rows"]) == {"train", "dev"}
    reward = workshop.run_here(
        workshop.spec("ai_reward", "reward", PAIRS | {"epochs": 4}, sft="base", data="ai_pairs")
    )
    splits = reward.summary["splits"]
    assert splits["dev"]["accuracy"]["value"] > 0.9
    assert splits["dev"]["by_people"] == 0
    assert "people" not in splits["dev"]
    dpo = workshop.run_here(
        workshop.spec(
            "ai_dpo",
            "dpo",
            {k: v for k, v in PAIRS.items() if k != "bootstrap_replicates"}
            | DPO
            | {"max_steps": 6},
            sft="base",
            data="ai_pairs",
        )
    )
    assert dpo.all("Finished")
    saved = reward.all("CheckpointSaved")[-1]
    workshop.refs["ai_model"] = replace(
        workshop.refs["base"], id="ai_model", uri=saved["uri"], sha256=saved["sha256"]
    )
    config = PLANTED_PPO | {"steps": 2, "reward": {"type": "model"}, "eval_every": 2}
    ppo = workshop.run_here(
        workshop.spec("ai_ppo", "ppo", config, sft="base", prompts="ai_pairs", reward="ai_model")
    )
    assert ppo.summary["step"] == 2
    assert not Vote.objects.exists()


def test_soft_labels_of_a_judge_are_winners_for_dpo_and_targets_for_a_reward_model(
    workshop: Workshop, frozen: Frozen
) -> None:
    frozen("ai_soft", label_probability=0.8)
    rows = read_preferences(workshop.root / "snapshots" / "ai_soft")
    assert {(row.soft, row.confidence, row.labelled_by) for row in rows} == {
        (True, 0.8, "ai:constitution")
    }
    refuse_soft_labels(rows, "none of them is a tie")
    spec = workshop.spec(
        "ai_soft", "reward", PAIRS | {"labels": "soft", "max_steps": 2}, sft="base", data="ai_soft"
    )
    assert workshop.run_here(spec).all("Finished")


# The report of a split that both labelled.


def pairs(labellers: list[str]) -> list[EncodedPair]:
    encoder = PairEncoder(word_tokenizer(), max_length=32)
    rows = [
        Preference(user("the cat"), "good", "bad", cluster=f"c{k}", labelled_by=who)
        for k, who in enumerate(labellers)
    ]
    return [
        EncodedPair(row, encoder(row.prompt, row.chosen), encoder(row.prompt, row.rejected))
        for row in rows
    ]


def test_pairs_that_people_compared_are_reported_apart_where_a_model_labelled_others() -> None:
    splits = {
        "dev": (["people", "ai:j", "people", "ai:j"], [1.0, -1.0, -1.0, -1.0]),
        "smoke": (["ai:j", "ai:j"], [1.0, -1.0]),
        "public_test": (["people"], [1.0]),
    }
    scores = {name: SimpleNamespace(margins=margins) for name, (_, margins) in splits.items()}
    data = PairData([], {name: pairs(who) for name, (who, _) in splits.items()})
    result: Any = SimpleNamespace(scores=scores)
    settings = settings_for("reward", {"bootstrap_replicates": 100})
    told = {
        name: report.plain()
        for name, report in split_reports([result], data, None, settings, seed=0).items()
    }
    assert told["dev"]["accuracy"]["value"] == 0.25
    assert (told["dev"]["by_people"], told["dev"]["people"]["rows"]) == (2, 2)
    assert told["dev"]["people"]["accuracy"]["value"] == 0.5
    assert (told["smoke"]["by_people"], told["public_test"]["by_people"]) == (0, 1)
    assert "people" not in told["smoke"] | told["public_test"]

"""Datasets that a model labelled: what is refused, what rows say, what a mixture keeps apart."""

import io
import json
import zipfile
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import Project, User
from apps.common.errors import DomainError
from apps.labeling.models import Comparison
from apps.snapshots.assembling.ai_feedback import is_peoples
from apps.snapshots.exports import snapshot_export
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import SnapshotRecipe
from apps.snapshots.services import freezing
from apps.snapshots.services.ai_feedback import ai_feedback_freeze
from apps.snapshots.services.importing import snapshot_import
from apps.snapshots.services.readiness import gather
from tests.snapshots.test_mixing import mixed, rows_of
from tests.training.conftest import wire  # noqa: F401 — a fixture

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("wire")]
WORDS = ["amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron", "inlet", "jetty"]


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def labelled(n: int = 40, **more: Any) -> list[dict[str, Any]]:
    """Rows about prompts that have little in common."""
    return [
        {
            "prompt": [
                {"role": "user", "content": f"{WORDS[k % 10]} {WORDS[k // 10]} {k} {k * k}?"}
            ],
            "chosen": said(f"better {k}"),
            "rejected": said(f"worse {k}"),
            "weight": 0.5,
            "principle": ("honest", "short")[k % 2],
        }
        | more
        for k in range(n)
    ]


def frozen(project: Project, user: User, rows: list[dict[str, Any]], **more: Any) -> Snapshot:
    given = {"name": "Rewritten", "about": {"run": "r1"}, "labelled_by": "ai:constitution"} | more
    return ai_feedback_freeze(project=project, user=user, rows=rows, **given)


def test_every_row_says_who_labelled_it_and_by_which_principle(
    project: Project, emil: User
) -> None:
    made = frozen(project, emil, labelled())
    train, dev = rows_of(made), rows_of(made, "dev")
    assert set(made.counts["rows"]) == {"train", "dev"}
    assert len(train) + len(dev) == 40
    assert {row["labelled_by"] for row in train + dev} == {"ai:constitution"}
    assert {(row["weight"], row["votes"], row["confidence"]) for row in train} == {(0.5, 0, 1.0)}
    assert not any("label_probability" in row for row in train)
    assert made.counts["labelled"] == "AI feedback"
    assert made.counts["labelled_by"] == {"ai:constitution": len(train)}
    assert made.counts["by_principle"] == Counter(row["principle"] for row in train)
    assert made.recipe == {
        "imported": True,
        "ai_feedback": {"run": "r1", "labelled_by": "ai:constitution"},
    }
    assert made.counts["warnings"][0].startswith("No person labelled these pairs")
    assert made.is_imported
    assert not made.is_decided
    assert freezing.snapshot_verify(snapshot=made).ok


def test_what_it_holds_out_a_person_s_dataset_of_the_same_groups_holds_out_too(
    project: Project, emil: User
) -> None:
    ours = frozen(project, emil, labelled())
    theirs = snapshot_import(
        project=project,
        kind="preferences",
        name="Voted elsewhere",
        rows=[
            {
                "prompt": row["prompt"],
                "response_a": row["chosen"],
                "response_b": row["rejected"],
                "gold": "b",
            }
            for row in labelled()
        ],
        user=emil,
    )
    held = {
        json.dumps(row["prompt"])
        for name in ("dev", "public_test")
        for row in rows_of(theirs, name)
    }
    assert {json.dumps(row["prompt"]) for row in rows_of(ours, "dev")} == held


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"label_probability": 0.5}, "label_probability"),
        ({"label_probability": 1.1}, "label_probability"),
        ({"weight": 0}, "weight"),
        ({"weight": 1.5}, "weight"),
        ({"weight": float("nan")}, "weight"),
        ({"chosen": said("same"), "rejected": said("same")}, "rejected"),
        ({"rejected": None}, "rejected"),
        ({"sources": ["one"]}, "sources"),
        ({"principle": 7}, "principle"),
        ({"votes": 3}, "votes"),
        ({"prompt": []}, "prompt"),
    ],
)
def test_one_bad_row_refuses_all_and_is_named(
    project: Project, emil: User, change: dict[str, Any], field: str
) -> None:
    rows = labelled(6)
    rows[3] |= change
    with pytest.raises(DomainError) as refused:
        frozen(project, emil, rows)
    assert (refused.value.row, refused.value.field) == (4, field)
    assert not Snapshot.objects.exists()


@pytest.mark.parametrize("name", ["constitution", "ai:", "ai:" + "x" * 200])
def test_a_labeller_that_is_no_model_is_refused(project: Project, emil: User, name: str) -> None:
    with pytest.raises(DomainError) as refused:
        frozen(project, emil, labelled(4), labelled_by=name)
    assert refused.value.field == "labelled_by"


def test_repeats_are_dropped_and_soft_labels_stand_in_their_column(
    project: Project, emil: User
) -> None:
    rows = labelled(12, label_probability=0.8)
    made = frozen(project, emil, [*rows, *rows[:3]])
    assert made.counts["dropped"] == {"repeats an earlier row": 3}
    assert {row["label_probability"] for row in rows_of(made)} == {0.8}


def test_prompts_that_another_dataset_holds_out_are_not_trained_on(
    project: Project, emil: User
) -> None:
    rows = labelled()
    first = frozen(project, emil, rows)
    asked = [row["prompt"] for row in rows_of(first)][:3]
    suite = [{"prompt": one, "split": "test"} for one in asked]
    snapshot_import(
        project=project,
        kind="prompts",
        name="Suite",
        rows=[*suite, {"prompt": "Of something else?", "split": "train"}],
        user=emil,
    )
    made = frozen(project, emil, rows)
    assert made.counts["dropped"] == {"its prompt is held out in Suite": 3}
    assert made.counts["rows"]["train"] == first.counts["rows"]["train"] - 3


def test_a_mixture_says_whose_each_row_is_and_measures_on_people_only(
    project: Project, emil: User, crowd: list[Comparison]
) -> None:
    recipe = SnapshotRecipe(splits={"train": 0.6, "dev": 0.4})
    voted = freezing.snapshot_freeze(project=project, name="Voted", recipe=recipe, user=emil)
    ours = frozen(project, emil, labelled(label_probability=0.9))
    made = mixed(project, emil, (voted, 1), (ours, 1))
    train, dev = rows_of(made), rows_of(made, "dev")
    by = Counter(row["labelled_by"] for row in train)
    assert by.keys() == {"people", "ai:constitution"}
    assert made.counts["labelled_by"] == by
    assert sum(made.counts["by_principle"].values()) == by["ai:constitution"]
    assert all(map(is_peoples, dev))
    assert len(dev) == voted.counts["rows"]["dev"]
    left_out = "of Rewritten: labelled by AI, and measured on people's"
    assert made.counts["dropped"][left_out] == ours.counts["rows"]["dev"]
    assert {row["weight"] for row in train if row["labelled_by"] != "people"} == {0.5}


def test_a_mixture_without_people_says_that_nobody_labelled_what_it_measures_on(
    project: Project, emil: User
) -> None:
    one = frozen(project, emil, labelled()[:20])
    two = frozen(project, emil, labelled()[20:], labelled_by="ai:judge", name="Judged")
    made = mixed(project, emil, (one, 1), (two, 1), repeat=True)
    assert set(made.counts["labelled_by"]) == {"ai:constitution", "ai:judge"}
    assert "No person labelled a row of dev" in made.counts["warnings"][0]


def test_exports_and_cards_say_which_labels_are_people_s(
    project: Project, emil: User, crowd: list[Comparison]
) -> None:
    def card(snapshot: Snapshot, shape: str = "") -> tuple[str, dict[str, Any]]:
        content = snapshot_export(snapshot=snapshot, form="zip", shape=shape, user=emil).content
        with content as file:
            data = file.read()
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = {name.split("/")[-1]: name for name in archive.namelist()}
            told = archive.read(names["README.md"]).decode()
            return told, json.loads(archive.read(names["card.json"]))

    voted = freezing.snapshot_freeze(project=project, name="V", recipe=SnapshotRecipe(), user=emil)
    told, about = card(voted)
    assert about["labels"] == "given by people"
    assert "| Labels | given by people |" in told
    assert '"human-feedback"' in told
    assert "ai-feedback" not in told
    ours = frozen(project, emil, labelled())
    for shape in ("", "standard", "implicit", "kto", "soft"):
        told, about = card(ours, shape)
        assert "by ai:constitution, which is AI" in about["labels"]
        assert about["labels"] in told
        assert "`labelled_by`" in told
        assert '"ai-feedback"' in told
        assert "human-feedback" not in told
        assert "No person labelled these pairs" in told


def test_the_page_says_in_words_that_no_person_labelled_them(
    project: Project, emil: User, signed_in: Callable[[User], Client]
) -> None:
    made = frozen(project, emil, labelled())
    page = signed_in(emil).get(f"/p/{project.slug}/datasets/{made.pk}/").content.decode()
    assert "No person labelled these pairs" in page
    assert "By principle" in page
    assert "honest" in page
    assert "ai:constitution" in page


def test_advice_on_data_does_not_count_what_a_model_labelled(project: Project, emil: User) -> None:
    frozen(project, emil, labelled())
    assert gather(project).facts["pairs"] == 0

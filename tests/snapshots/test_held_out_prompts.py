"""Which rows from elsewhere are held out: as they say, or by the hash of their group."""

import json
from typing import Any

import pytest

from apps.accounts.models import Project
from apps.common.errors import DomainError
from apps.labeling.models import Prompt
from apps.labeling.services import comparisons_import
from apps.snapshots.models import Snapshot
from apps.snapshots.selectors.prompts import held_out_prompts, public_rows, training_prompts
from apps.snapshots.services.importing import snapshot_import
from apps.snapshots.storage import artifact_store
from measures.splits import split_of

pytestmark = pytest.mark.django_db


def bring(project: Project, rows: list[dict[str, Any]], kind: str = "prompts") -> Snapshot:
    return snapshot_import(project=project, kind=kind, name="brought", rows=rows)


def asked(snapshot: Snapshot, split: str) -> set[str]:
    rows = artifact_store().lines(f"{snapshot.uri}/{split}.jsonl")
    return {row["prompt"][-1]["content"] for row in rows}


def texts(n: int, word: str = "Name") -> list[dict[str, Any]]:
    return [{"prompt": f"{word} thing number {i} of {i * i + 7}"} for i in range(n)]


def test_rows_that_hold_nothing_out_are_split_by_the_hash_of_their_prompt(project: Project) -> None:
    made = bring(project, texts(400))
    rows = made.counts["rows"]
    assert set(rows) == {"train", "dev", "public_test"}
    assert 290 <= rows["train"] <= 350
    assert made.counts["split_by"] == "hash"
    assert not asked(made, "train") & (asked(made, "dev") | asked(made, "public_test"))
    again = bring(project, [*texts(50, "Say")[:20], *reversed(texts(400))])
    assert asked(made, "dev") <= asked(again, "dev"), "other rows move none"
    training = bring(project, [row | {"split": "train"} for row in texts(40)])
    assert sum(training.counts["rows"].values()) > training.counts["rows"]["train"]


def test_a_prompt_lies_where_datasets_of_votes_put_it(project: Project) -> None:
    made = bring(project, texts(200))
    sides = {"response_a": "yes", "response_b": "no"}
    comparisons_import(project=project, rows=[row | sides for row in texts(200)])
    shares = {"train": 0.8, "smoke": 0.01, "dev": 0.09, "public_test": 0.1}
    train = {
        prompt.messages[0]["content"]
        for prompt in Prompt.objects.all()
        if split_of(prompt.group_key, shares, "concord") == "train"
    }
    assert train == asked(made, "train")


def test_a_group_and_near_duplicates_stay_on_one_side(project: Project) -> None:
    long = " ".join(f"word{i}" for i in range(40))
    rows = [{"prompt": f"{long} {i}"} for i in range(30)]
    rows += [{"prompt": f"Other question {i}", "group": "one"} for i in range(30)]
    made = bring(project, rows)
    assert made.counts["groups"] == {"train": 1, "dev": 1} or len(made.counts["groups"]) == 2
    assert sorted(made.counts["rows"].values()) == [30, 30]
    assert "Only 1 group is held out" in made.counts["warnings"][0]


def test_one_group_alone_cannot_be_split_and_says_so(project: Project) -> None:
    made = bring(project, [row | {"group": "one"} for row in texts(9)])
    assert made.counts["rows"] == {"train": 9}
    assert "none is held out" in made.counts["warnings"][0]


def test_two_groups_are_one_on_each_side_whatever_their_hashes(project: Project) -> None:
    for n in range(12):
        made = bring(project, [{"prompt": f"a{n}"}, {"prompt": f"b{n}"}])
        assert made.counts["rows"]["train"] == 1
        assert len(held_out_prompts(made)) == 1


def test_splits_that_rows_name_are_kept(project: Project) -> None:
    names = ("train", "test", "validation", "train", "dev", "heldout_groups")
    rows = [row | {"split": name} for row, name in zip(texts(6), names, strict=True)]
    made = bring(project, rows)
    assert made.counts["rows"] == {"train": 2, "dev": 2, "public_test": 1, "heldout_groups": 1}
    assert made.counts["split_by"] == "rows"
    assert len(training_prompts(made)) == 2
    assert len(list(public_rows(made))) == 6
    card = json.loads(artifact_store().read_bytes(f"{made.uri}/card.json"))
    assert card["counts"]["split_by"] == "rows"


@pytest.mark.parametrize(
    ("rows", "row", "words"),
    [
        ([{"prompt": "Why is that?", "split": "train"}, {"prompt": "b"}], None, ""),
        ([{"prompt": "a", "split": "dev"}, {"prompt": "b"}], 2, "is empty"),
        (
            [
                {"prompt": "Why is that so?", "split": "train"},
                {"prompt": "why is  that SO?", "split": "dev"},
            ],
            2,
            "but row 1",
        ),
        (
            [
                {"prompt": " ".join("abcdefghijklmnopqrstuvwxyz0123456789"), "split": "test"},
                {"prompt": " ".join("abcdefghijklmnopqrstuvwxyz012345678"), "split": "train"},
            ],
            2,
            "nearly the same prompt",
        ),
        (
            [
                {"prompt": "a", "group": "g", "split": "test"},
                {"prompt": "b", "group": "g", "split": "train"},
            ],
            2,
            "same group",
        ),
    ],
)
def test_a_prompt_named_on_both_sides_is_refused_by_row(
    project: Project, rows: list[dict[str, Any]], row: int | None, words: str
) -> None:
    if row is None:
        assert bring(project, rows).counts["split_by"] == "hash"
        return
    with pytest.raises(DomainError, match=words) as refused:
        bring(project, rows)
    assert (refused.value.code, refused.value.field) == ("bad_row", "split")
    assert refused.value.row == row
    assert not Snapshot.objects.exists()

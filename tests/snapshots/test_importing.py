"""Demonstrations and prompts that people bring."""

import json
from pathlib import Path

import pytest
from django.conf import settings

from apps.accounts.models import Project
from apps.common.errors import DomainError
from apps.snapshots.models import Snapshot
from apps.snapshots.selectors import snapshots
from apps.snapshots.services import freezing
from apps.snapshots.storage import read_rows

pytestmark = pytest.mark.django_db


def bring(project: Project, kind: str, rows: list) -> Snapshot:
    return freezing.snapshot_import(project=project, kind=kind, name="brought", rows=rows)


def lines(snapshot: Snapshot) -> list[dict]:
    return list(read_rows(Path(settings.ARTIFACTS_URL) / snapshot.uri / "train.jsonl"))


def test_demonstrations_become_conversations(project: Project) -> None:
    asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    snapshot = bring(
        project,
        "demonstrations",
        [
            {"prompt": "What?", "response": "That.", "source": "us", "licence": "MIT"},
            {"messages": [*asked, {"role": "assistant", "content": "Because."}]},
        ],
    )
    assert [row["messages"][-1] for row in lines(snapshot)] == [
        {"role": "assistant", "content": "That."},
        {"role": "assistant", "content": "Because."},
    ]
    assert lines(snapshot)[1]["messages"][:-1] == asked
    card = json.loads((Path(settings.ARTIFACTS_URL) / snapshot.uri / "card.json").read_text())
    assert card["licences"] == ["MIT"]
    assert snapshot.state == "frozen"


def test_repeated_prompts_are_kept_once_and_counted(project: Project) -> None:
    snapshot = bring(project, "prompts", [{"prompt": "a"}, {"prompt": "b"}, {"prompt": "a"}])
    assert [row["prompt"][0]["content"] for row in lines(snapshot)] == ["a", "b"]
    assert snapshot.counts["dropped"] == {"repeats an earlier row": 1}


def test_a_prompt_keeps_the_answer_that_verifiers_read_and_rows_without_one_stay_as_they_were(
    project: Project,
) -> None:
    answers = ["42", 4.5, ["a", "b"], "", None]
    rows = [{"prompt": str(i), "answer": answer} for i, answer in enumerate(answers)]
    found = lines(bring(project, "prompts", [*rows, rows[0], {"prompt": "last"}]))
    assert [row.get("answer", "none") for row in found] == [
        "42",
        "4.5",
        '["a", "b"]',
        *["none"] * 3,
    ]
    with pytest.raises(DomainError, match="differs from that of an earlier row") as refused:
        bring(project, "prompts", [{"prompt": "x", "answer": a} for a in ("1", "2")])
    assert refused.value.field == "answer"


@pytest.mark.parametrize(
    ("kind", "row", "field"),
    [
        ("prompts", {"prompt": "x", "answer": {"n": 1}}, "answer"),
        ("prompts", {"prompt": ""}, "prompt"),
        ("prompts", {}, "prompt"),
        ("prompts", {"prompt": [{"role": "assistant", "content": "x"}]}, "prompt"),
        ("prompts", {"prompt": "x", "licence": 3}, "licence"),
        ("demonstrations", {"prompt": "x"}, "response"),
        ("demonstrations", {"prompt": "x", "response": 4}, "response"),
        ("demonstrations", {"messages": [{"role": "user", "content": "x"}]}, "messages"),
        ("demonstrations", "x", None),
    ],
)
def test_a_bad_row_is_named_and_nothing_is_kept(
    project: Project, kind: str, row: object, field: str | None
) -> None:
    good = {"prompt": "fine", "response": "good"}
    with pytest.raises(DomainError) as refused:
        bring(project, kind, [good, row])
    assert (refused.value.row, refused.value.field) == (2, field)
    assert not Snapshot.objects.exists()


def test_the_overlap_is_the_share_of_rl_prompts_already_imitated(project: Project) -> None:
    sft = bring(
        project, "demonstrations", [{"prompt": p, "response": "yes"} for p in ("One?", "two?", "z")]
    )
    rl = bring(project, "prompts", [{"prompt": p} for p in ("one?", "Two?", "three?", "four?")])
    overlap = snapshots.prompt_overlap(sft=sft, rl=rl)
    assert (overlap.n_both, overlap.n_rl, overlap.containment) == (2, 4, 0.5)


@pytest.mark.parametrize("name", ["", "  ", "n" * 121, "a\x00b"])
def test_a_name_that_cannot_be_stored_is_refused(project: Project, name: str) -> None:
    with pytest.raises(DomainError) as refused:
        freezing.snapshot_import(project=project, kind="prompts", name=name, rows=[{"prompt": "a"}])
    assert refused.value.field == "name"

"""What other programs read."""

import csv
import io
import json
import zipfile
from operator import itemgetter
from pathlib import Path

import datasets
import pyarrow.parquet as pq
import pytest
from django.conf import settings
from trl.data_utils import is_conversational

from apps.accounts.models import Project, User
from apps.common.errors import Conflict, DomainError, Missing
from apps.common.spreadsheet import safe_cell
from apps.labeling.models import Comparison, Response
from apps.snapshots import exports
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import SnapshotRecipe
from apps.snapshots.selectors.prompts import prompt_overlap
from apps.snapshots.services import freezing
from apps.snapshots.services.importing import snapshot_import
from apps.snapshots.storage import read_rows

pytestmark = pytest.mark.django_db


@pytest.fixture
def frozen(project: Project, crowd: list[Comparison], emil: User) -> Snapshot:
    # One argument that a spreadsheet would run.
    first = crowd[0].response_b
    text = '=HYPERLINK("http://example.org","see") ' + first.messages[0]["content"]
    Response.objects.filter(pk=first.pk).update(brief=[{"role": "assistant", "content": text}])
    recipe = SnapshotRecipe(
        least_votes=2,
        least_agreeing=2,
        heldout_groups=("debate-03",),
        splits={"train": 0.6, "dev": 0.2, "public_test": 0.2},
        seed="seed-2",
    )
    return freezing.snapshot_freeze(project=project, name="pairs", recipe=recipe, user=emil)


def content(snapshot: Snapshot, **chosen) -> bytes:
    export = exports.snapshot_export(snapshot=snapshot, **chosen)
    if hasattr(export.content, "read"):
        with export.content:
            return export.content.read()
    return b"".join(export.content)


def test_datasets_reads_the_folder_as_it_is(frozen: Snapshot, tmp_path: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(content(frozen, form="zip"))) as archive:
        archive.extractall(tmp_path)
    (folder,) = tmp_path.iterdir()
    loaded = datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))
    assert {name: len(rows) for name, rows in loaded.items()} == frozen.counts["rows"]
    row = loaded["train"][0]
    assert {"prompt", "chosen", "rejected"} <= set(row)
    assert is_conversational(row)
    assert row["chosen"][0]["role"] == "assistant"


def test_parquet_and_json_lines_hold_the_same_rows(frozen: Snapshot, tmp_path: Path) -> None:
    for split, n in frozen.counts["rows"].items():
        lines = [json.loads(x) for x in content(frozen, split=split).splitlines()]
        path = tmp_path / f"{split}.parquet"
        path.write_bytes(content(frozen, split=split, form="parquet"))
        assert pq.read_table(path).to_pylist() == lines
        assert len(lines) == n


def test_a_spreadsheet_gets_text_where_an_answer_looks_like_a_formula(frozen: Snapshot) -> None:
    splits = exports.snapshot_splits(frozen)
    cells = [
        row
        for split in splits
        for row in csv.DictReader(
            io.StringIO(content(frozen, split=split, form="csv").decode(), newline="")
        )
    ]
    texts = [row[side] for row in cells for side in ("prompt", "chosen", "rejected")]
    assert any(text.startswith("'=HYPERLINK(") for text in texts)
    assert not any(text.startswith(("=", "+", "-", "@")) for text in texts)
    assert {float(row["weight"]) for row in cells} == {1.0}


@pytest.mark.parametrize(
    "text", ["=1+1", "+1", "-1 is less", "@SUM(A1)", "\t=1", "\n=1", " =1", "＝1", "\ufeff=1"]
)
def test_a_cell_that_would_be_run_is_text(text: str) -> None:
    assert safe_cell(text) == f"'{text}"


@pytest.mark.parametrize("value", ["plain", "a=b", "", None, -1.5, 3, "'quoted"])
def test_other_cells_stay_as_they_are(value: object) -> None:
    assert safe_cell(value) == ("" if value is None else str(value))


def test_two_exports_of_one_snapshot_are_the_same_bytes(frozen: Snapshot) -> None:
    assert content(frozen, form="zip") == content(frozen, form="zip")


def test_what_cannot_be_exported_says_why(frozen: Snapshot, project: Project) -> None:
    with pytest.raises(Missing, match=r"'private'; .* train"):
        content(frozen, split="private")
    with pytest.raises(DomainError, match="one of jsonl"):
        content(frozen, split="train", form="xlsx")
    draft = Snapshot.objects.create(project=project, name="x", kind="preferences")
    with pytest.raises(Conflict, match="Only a frozen"):
        content(draft, form="zip")


def test_the_card_says_what_the_texts_may_be_used_for(frozen: Snapshot) -> None:
    with zipfile.ZipFile(io.BytesIO(content(frozen, form="zip"))) as archive:
        name = next(n for n in archive.namelist() if n.endswith("card.json"))
        card = json.loads(archive.read(name))
    assert card["licences"] == ["CC-BY-4.0"]
    assert card["recipe"] == frozen.recipe
    assert card["counts"]["rows"] == frozen.counts["rows"]
    assert card["warnings"] == frozen.counts["warnings"]


# Demonstrations and prompts that people bring.


def bring(project: Project, kind: str, rows: list) -> Snapshot:
    return snapshot_import(project=project, kind=kind, name="brought", rows=rows)


def lines(snapshot: Snapshot) -> list[dict]:
    """Of all files, in the order of the rows' ids."""
    files = (Path(settings.ARTIFACTS_URL) / snapshot.uri).glob("*.jsonl")
    return sorted((row for file in files for row in read_rows(file)), key=itemgetter("external_id"))


def test_demonstrations_become_conversations(project: Project) -> None:
    asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    snapshot = bring(
        project,
        "demonstrations",
        [
            {"id": 1, "prompt": "What?", "response": "That.", "source": "us", "licence": "MIT"},
            {"id": 2, "messages": [*asked, {"role": "assistant", "content": "Because."}]},
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
    rows = [{"id": 1, "prompt": "a"}, {"id": 2, "prompt": "b"}, {"id": 3, "prompt": "a"}]
    snapshot = bring(project, "prompts", rows)
    assert [row["prompt"][0]["content"] for row in lines(snapshot)] == ["a", "b"]
    assert list(snapshot.counts["dropped"].values()) == [1]


def test_a_prompt_keeps_the_answer_that_verifiers_read_and_rows_without_one_stay_as_they_were(
    project: Project,
) -> None:
    answers = ["42", 4.5, ["a", "b"], "", None]
    rows = [{"id": i, "prompt": str(i), "answer": answer} for i, answer in enumerate(answers)]
    found = lines(bring(project, "prompts", [*rows, rows[0], {"id": 9, "prompt": "last"}]))
    assert [row.get("answer", "none") for row in found] == [
        "42",
        "4.5",
        '["a", "b"]',
        *["none"] * 3,
    ]
    with pytest.raises(DomainError) as refused:
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
        ("prompts", {"prompt": "x", "response": "y"}, "response"),
        ("prompts", {"prompt": "x", "split": "trian"}, "split"),
    ],
)
def test_a_bad_row_is_named_and_nothing_is_kept(
    project: Project, kind: str, row: object, field: str | None
) -> None:
    good = {"prompt": "fine"} | ({"response": "good"} if kind == "demonstrations" else {})
    with pytest.raises(DomainError) as refused:
        bring(project, kind, [good, row])
    assert (refused.value.row, refused.value.field) == (2, field)
    assert not Snapshot.objects.exists()


def test_the_overlap_is_the_share_of_rl_prompts_already_imitated(project: Project) -> None:
    sft = bring(
        project, "demonstrations", [{"prompt": p, "response": "yes"} for p in ("One?", "two?", "z")]
    )
    rl = bring(project, "prompts", [{"prompt": p} for p in ("one?", "Two?", "three?", "four?")])
    overlap = prompt_overlap(sft=sft, rl=rl)
    assert (overlap.n_both, overlap.n_rl, overlap.containment) == (2, 4, 0.5)


@pytest.mark.parametrize("name", ["", "  ", "n" * 121, "a\x00b"])
def test_a_name_that_cannot_be_stored_is_refused(project: Project, name: str) -> None:
    with pytest.raises(DomainError) as refused:
        snapshot_import(project=project, kind="prompts", name=name, rows=[{"prompt": "a"}])
    assert refused.value.field == "name"


def test_a_scrubbed_export_has_no_address_and_says_how_many_there_were(frozen: Snapshot) -> None:
    texts = [f"Write to grace{n}@hopper.io." for n in range(2)]
    rows = [{"prompt": [{"role": "user", "content": one}], "votes": 3} for one in texts]
    removed: dict[str, int] = {}
    shaped = exports._shaped
    try:
        exports._shaped = lambda *_: rows  # type: ignore[assignment]
        shape = exports.formats.FROZEN_SHAPE
        found = list(exports._scrubbed(removed, frozen, "train", shape))
    finally:
        exports._shaped = shaped
    assert [row["prompt"][0]["content"] for row in found] == ["Write to [e-mail address]."] * 2
    assert removed == {"train": 2}
    sent = exports.snapshot_export(snapshot=frozen, form="zip", scrub=True)
    with sent.content, zipfile.ZipFile(sent.content) as archive:
        [card] = [name for name in archive.namelist() if name.endswith("card.json")]
        said = json.loads(archive.read(card))
        readme = archive.read(card.replace("card.json", "README.md")).decode()
    assert set(said["personal_data_removed"]) == set(said["form_rows"])
    assert "Taken out as personal data" in readme
    assert "Licence of what they wrote" in readme
    assert said["pool"]["people"] > 0

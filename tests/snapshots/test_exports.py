"""What other programs read."""

import csv
import io
import json
import zipfile
from pathlib import Path

import datasets
import pyarrow.parquet as pq
import pytest
from trl.data_utils import is_conversational

from apps.accounts.models import Project, User
from apps.common.errors import Conflict, DomainError, Missing
from apps.common.spreadsheet import safe_cell
from apps.labeling.models import Comparison, Response
from apps.snapshots import exports
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import SnapshotRecipe
from apps.snapshots.services import freezing

pytestmark = pytest.mark.django_db


@pytest.fixture
def frozen(project: Project, crowd: list[Comparison], emil: User) -> Snapshot:
    # One argument that a spreadsheet would run.
    first = crowd[0].response_b
    text = '=HYPERLINK("http://example.org","see") ' + first.messages[0]["content"]
    Response.objects.filter(pk=first.pk).update(messages=[{"role": "assistant", "content": text}])
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
    with pytest.raises(Missing, match="no split 'private'; it has train"):
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

"""Datasets of agents' runs: frozen, exported, and read by `datasets`, TRL and our own recipes."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import datasets
import pyarrow.parquet as pq
import pytest

from apps.accounts.models import Project, User
from apps.labeling.models import Comparison, Prompt, Response
from apps.snapshots.formats import shapes_for
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import SnapshotRecipe
from apps.snapshots.services import freezing
from tests.snapshots.test_exports import content
from workers.data.snapshot import Turns, read_preferences, tools_of

pytestmark = pytest.mark.django_db

TOOLS = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}]


def run_of(text: str, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    call = {"type": "function", "id": "c", "function": {"name": "search", "arguments": arguments}}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "found it", "tool_call_id": "c", "name": "search"},
        {"role": "assistant", "content": text},
    ]


@pytest.fixture
def frozen(project: Project, crowd: list[Comparison], emil: User) -> Snapshot:
    """Of some debates the longer argument came with a search; arguments of different types."""
    Prompt.objects.filter(project=project, group_key__lt="debate-06").update(tools=TOOLS)
    for n, comparison in enumerate(crowd[:30:2]):
        answer = comparison.response_b
        given = {"query": n} if n % 2 else {"query": f"word {n}", "most": [n]}
        messages = run_of(answer.messages[-1]["content"], given)
        Response.objects.filter(pk=answer.pk).update(brief=messages)
    recipe = SnapshotRecipe(
        least_votes=2, least_agreeing=2, splits={"train": 0.7, "dev": 0.3}, seed="seed-2"
    )
    return freezing.snapshot_freeze(project=project, name="runs", recipe=recipe, user=emil)


def rows_of(snapshot: Snapshot, split: str, shape: str = "conversational") -> list[dict[str, Any]]:
    return [json.loads(x) for x in content(snapshot, split=split, shape=shape).splitlines()]


@pytest.mark.parametrize(
    "shape", [shape.key for shape in shapes_for("preferences") if not shape.binary]
)
def test_every_form_is_read_by_datasets_as_it_is(
    frozen: Snapshot, shape: str, tmp_path: Path
) -> None:
    sent = content(frozen, shape=shape, form="zip")
    with zipfile.ZipFile(io.BytesIO(sent)) as archive:
        archive.extractall(tmp_path / "zip")
    (folder,) = (tmp_path / "zip").iterdir()
    loaded = datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))
    for split in ("train", "dev"):
        lines = rows_of(frozen, split, shape)
        assert len(loaded[split]) == len(lines)
        for name in {"prompt", "chosen", "rejected", "completion"} & set(lines[0]):
            assert loaded[split][name][:] == [row[name] for row in lines]
        path = tmp_path / f"{split}.parquet"
        path.write_bytes(content(frozen, split=split, shape=shape, form="parquet"))
        assert pq.read_table(path).num_rows == len(lines)
        again = datasets.load_dataset(
            "parquet", data_files=str(path), split="train", cache_dir=str(tmp_path / split)
        )
        for name in {"chosen", "rejected", "completion"} & set(lines[0]):
            assert again[name][:] == [row[name] for row in lines]


def test_calls_keep_their_arguments_as_objects_and_tools_stand_in_every_row(
    frozen: Snapshot,
) -> None:
    rows = [row for split in ("train", "dev") for row in rows_of(frozen, split)]
    calls = [
        call["function"]["arguments"]
        for row in rows
        for side in ("chosen", "rejected")
        for message in row[side]
        for call in message.get("tool_calls", ())
    ]
    assert {type(given["query"]) for given in calls} == {int, str}
    offered = {json.dumps(json.loads(row["tools"])) for row in rows}
    assert offered == {"[]", json.dumps(TOOLS)}


def test_the_recipes_read_whole_runs(frozen: Snapshot, tmp_path: Path) -> None:
    for split in ("train", "dev"):
        lines = content(frozen, split=split)
        (tmp_path / f"{split}.jsonl").write_bytes(lines)
    found = [*read_preferences(tmp_path), *read_preferences(tmp_path, "dev")]
    runs = [row.chosen for row in found if isinstance(row.chosen, Turns)]
    assert runs
    assert all("search({" in run and "Tool: found it" in run for run in runs)
    assert any(tools_of(row.prompt) == TOOLS for row in found)
    assert any(tools_of(row.prompt) is None for row in found)


def test_plain_strings_write_calls_and_results_out(frozen: Snapshot) -> None:
    texts = [row["chosen"] for row in rows_of(frozen, "train", "standard")]
    assert any(
        text.startswith('search({"') and "\n\nTool: found it\n\nAssistant: " in text
        for text in texts
    )


def test_a_spreadsheet_has_them_too(frozen: Snapshot) -> None:
    text = content(frozen, split="train", form="csv").decode()
    assert "tool: found it" in text
    assert 'search({""' in text


def test_datasets_of_plain_text_are_written_as_they_always_were(
    project: Project, crowd: list[Comparison], emil: User
) -> None:
    recipe = SnapshotRecipe(
        least_votes=2, least_agreeing=2, splits={"train": 0.7, "dev": 0.3}, seed="seed-2"
    )
    plain = freezing.snapshot_freeze(project=project, name="pairs", recipe=recipe, user=emil)
    row = rows_of(plain, "train")[0]
    assert "tools" not in row
    schema = pq.read_schema(io.BytesIO(content(plain, split="train", form="parquet")))
    assert (
        str(schema.field("prompt").type) == "list<element: struct<role: string, content: string>>"
    )
    with zipfile.ZipFile(io.BytesIO(content(plain, form="zip"))) as archive:
        (card,) = [name for name in archive.namelist() if name.endswith("README.md")]
        assert b"dataset_info" not in archive.read(card)

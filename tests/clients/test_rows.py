"""Rows on their way into a file, what is not installed, and progress bars."""

import json
import sys
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from datasets import Dataset, DatasetDict

from concord import progress
from concord.projects import Run
from concord.rows import write_rows


def written(source: Any, folder: Path, **options: Any) -> list[dict[str, Any]]:
    file = folder / "rows.jsonl"
    n = write_rows(source, file, **options)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(rows) == n
    return rows


def test_rows_of_every_source_are_written_as_they_are(tmp_path: Path) -> None:
    rows = [{"prompt": f"é {n}", "turns": [{"role": "user", "content": "x"}]} for n in range(3)]
    assert written(rows, tmp_path) == rows
    assert written((row for row in rows), tmp_path) == rows
    assert written(Dataset.from_list(rows), tmp_path) == rows
    assert written(
        [{"a": np.float32(1.5), "b": np.arange(2), "c": date(2026, 1, 2)}], tmp_path
    ) == [{"a": 1.5, "b": [0, 1], "c": "2026-01-02"}]


def test_splits_are_taken_and_named(tmp_path: Path) -> None:
    both = DatasetDict(
        train_prefs=Dataset.from_list([{"prompt": "1"}, {"prompt": "2"}]),
        test_prefs=Dataset.from_list([{"prompt": "3"}]),
        train_sft=Dataset.from_list([{"prompt": "4"}]),
    )
    taken = written(both, tmp_path, splits={"train_prefs": "train", "test_prefs": "dev"})
    assert [(row["prompt"], row["split"]) for row in taken] == [
        ("1", "train"),
        ("2", "train"),
        ("3", "dev"),
    ]
    assert {row["split"] for row in written(both, tmp_path)} == set(both)
    with pytest.raises(ValueError, match="splits: there is no split 'test'; there are train_prefs"):
        written(both, tmp_path, splits={"test": "dev"})
    with pytest.raises(ValueError, match="splits: these rows have none"):
        written([{"prompt": "1"}], tmp_path, splits={"train": "train"})


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "rows: there are none"),
        ([{"a": 1}, "text"], "rows: row 2 is of type str"),
        ([{"a": 1, "image": b"png"}], "row 1, column 'image': a value of type bytes"),
        ([{"a": 1}, {"a": float("nan")}], "row 2, column 'a': "),
    ],
)
def test_what_cannot_be_sent_is_named_by_row_and_column(
    tmp_path: Path, rows: list[Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        written(rows, tmp_path)


def test_a_name_is_loaded_by_datasets_on_this_machine(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "train.jsonl").write_text('{"prompt": "1"}\n{"prompt": "2"}\n')
    assert written(str(folder), tmp_path) == [
        {"prompt": "1", "split": "train"},
        {"prompt": "2", "split": "train"},
    ]


def test_what_is_not_installed_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("datasets", "pandas"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pip install 'concord\[hf\]', or give the rows"):
        write_rows("owner/name", tmp_path / "rows.jsonl")
    run: Any = SimpleNamespace(_caller=None)
    with pytest.raises(ImportError, match=r"pip install 'concord\[data\]', or use `curves"):
        Run.metrics(run)


def test_bars_are_drawn_where_somebody_looks_and_nobody_else_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with progress.bytes_bar("rows.jsonl", True, None) as told:
        assert told is None  # standard error is no terminal here
    monkeypatch.setattr(progress, "is_watched", lambda: True)
    with progress.bytes_bar("rows.jsonl", True, None) as told:
        assert told is not None
        told(512, 2048)
        told(2048, 2048)
    assert "rows.jsonl: 100%" in capsys.readouterr().err
    run: Any = SimpleNamespace(
        name="mine", phase="training", state="running", step=3, total_steps=6
    )
    with progress.steps_bar(True, None) as told:
        told(run)
    assert "mine: training:  50%" in capsys.readouterr().err
    dataset: Any = SimpleNamespace(name="May", step="Writing the files", state="draft")
    with progress.making_bar(True, None) as told:
        told(dataset)
    assert "May: Writing the files" in capsys.readouterr().err
    with progress.making_bar(False, None) as told:
        assert told is None
    seen: list[tuple[int, int]] = []
    with progress.bytes_bar("x", True, lambda *of: seen.append(of)) as told:
        told(1, 2)
    with progress.bytes_bar("x", False, None) as told:
        assert told is None
    assert (seen, capsys.readouterr().err) == ([(1, 2)], "")

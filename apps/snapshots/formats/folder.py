"""The file tree of a snapshot: JSON Lines, Parquet, a card for programs and one for people.

    train.jsonl, <split>.jsonl     one object a line, UTF-8, no escapes
    parquet/<split>.parquet        the same rows
    card.json                      recipe, counts, warnings, licences
    README.md                      a Hugging Face dataset card that names the splits

Nothing in it depends on the clock, the machine or the snapshot's id, so equal data have equal
hashes.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from apps.common.row_files import JSON_LIST, json_line, rows_table
from apps.snapshots.assembling.rows import Row
from apps.snapshots.display import card_facts
from apps.snapshots.formats.card import Folder, card_text
from apps.snapshots.formats.shapes import MESSAGES

FORMAT = 1  # of the tree; raised when a reader of the old one would misread the new one
NO_TOOLS = "[]"
_TEXTS = ("prompt", "chosen", "rejected", "response_a", "response_b", "messages", "completion")
_TYPES: dict[str, pa.DataType] = {
    **dict.fromkeys(_TEXTS, MESSAGES),
    "completions": pa.list_(pa.string()),
    "labels": pa.list_(pa.bool_()),
    "roles": pa.list_(pa.string()),
    "label": pa.bool_(),
    "weight": pa.float64(),
    "confidence": pa.float64(),
    "label_probability": pa.float64(),
    "strength": pa.float64(),
    "inclusion_probability": pa.float64(),
    "votes": pa.int64(),
    "cluster_ids": pa.list_(pa.string()),
    "sources": pa.list_(pa.string()),
    "annotators": pa.list_(pa.string()),
    "annotator_votes": pa.list_(pa.string()),
}


def write_folder(folder: Path, files: Mapping[str, Sequence[Row]], card: Mapping[str, Any]) -> None:
    """Write the tree into the empty `folder`."""
    (folder / "parquet").mkdir(parents=True)
    # One type for all files, or `datasets` could not read them as one dataset.
    if any("tools" in row for rows in files.values() for row in rows):
        files = {
            split: [row | {"tools": row.get("tools", NO_TOOLS)} for row in rows]
            for split, rows in files.items()
        }
    rich = any(_is_rich(row) for rows in files.values() for row in rows)
    schema = pa.schema([])
    for split, rows in files.items():
        with (folder / f"{split}.jsonl").open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(json_line(row) for row in rows)
        made = table(rows, rich=rich)
        schema = made.schema if rows else schema
        pq.write_table(made, folder / "parquet" / f"{split}.parquet")
    (folder / "card.json").write_text(
        json.dumps(dict(card), indent=1, sort_keys=True, ensure_ascii=False) + "\n",
        encoding="utf-8",
    )
    (folder / "README.md").write_text(_readme(files, card, schema), encoding="utf-8")


def _is_rich(row: Row) -> bool:
    """Whether a message of the row holds more than its role and its text."""
    return any(len(message) > 2 for name in _TEXTS for message in row.get(name) or ())


def table(rows: Sequence[Row], *, rich: bool = False) -> pa.Table:
    """Columns in the order of the rows' keys; text where no other type is named. rich: messages as
    JSON."""
    names = list(rows[0]) if rows else []
    types = _TYPES | (dict.fromkeys(_TEXTS, JSON_LIST) if rich else {})
    schema = pa.schema([(name, types.get(name, pa.string())) for name in names])
    return rows_table(rows, schema)


def _readme(files: Mapping[str, Sequence[Row]], card: Mapping[str, Any], schema: pa.Schema) -> str:
    first = next((rows[0] for rows in files.values() if rows), {})
    return card_text(
        Folder(
            title=card["title"],
            kind=card["kind"],
            form="Frozen by Concord, in TRL's conversational form. `card.json` holds the recipe, "
            "what was left out and why.",
            splits={name: len(rows) for name, rows in files.items()},
            columns=list(first),
            schema=schema,
            licences=card["licences"],
            languages=card.get("languages", []),
            warnings=card["warnings"],
            facts=card_facts(card),
            labelled_by=card.get("labelled_by", {}),
        )
    )

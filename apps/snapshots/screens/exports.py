"""The export page: a card per form."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apps.snapshots.formats import FROZEN_SHAPE, Shape, shapes_for
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import PRIVATE_SPLITS


@dataclass(frozen=True, slots=True)
class SplitFile:
    name: str
    rows: int


@dataclass(frozen=True, slots=True)
class FormCard:
    """`files` are the splits that have rows in this form; `total` over all of them."""

    key: str
    title: str
    purpose: str
    frozen: bool
    files: list[SplitFile]
    total: int
    columns: str


def forms(snapshot: Snapshot, rows: Mapping[str, Mapping[str, int]]) -> list[FormCard]:
    return [_card(shape, rows.get(shape.key, {})) for shape in shapes_for(snapshot.kind)]


def _card(shape: Shape, rows: Mapping[str, int]) -> FormCard:
    files = [SplitFile(name, n) for name, n in rows.items() if n]
    return FormCard(
        key=shape.key,
        title=shape.title,
        purpose=shape.purpose,
        frozen=shape is FROZEN_SHAPE,
        files=files,
        total=sum(file.rows for file in files),
        columns=", ".join(shape.adds),
    )


def private_rows(counts: Mapping[str, Any]) -> list[SplitFile]:
    """What is kept back, by name."""
    rows = counts.get("rows", {})
    return [SplitFile(name, rows[name]) for name in rows if name in PRIVATE_SPLITS]

"""A dataset as one zip: a folder that `datasets.load_dataset` reads as it is."""

import json
import shutil
import zipfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import IO, Any

import pyarrow as pa

from apps.common.errors import Missing
from apps.labeling.models import Comparison
from apps.snapshots.assembling.rows import Row
from apps.snapshots.display import recipe_facts
from apps.snapshots.formats import Shape, writing
from apps.snapshots.formats.card import Folder, card_text
from apps.snapshots.models import Snapshot
from apps.snapshots.store import artifact_store
from workers.artifacts import MANIFEST

_FIRST_DAY = (1980, 1, 1, 0, 0, 0)  # of zip: equal content, equal bytes


def frozen_zipped(snapshot: Snapshot, files: Sequence[dict[str, Any]], stem: str) -> IO[bytes]:
    """The frozen tree, byte for byte, with its manifest; `ArtifactError` when it is not that."""
    store = artifact_store()
    hashes = {entry["name"]: entry["sha256"] for entry in files} | {MANIFEST: snapshot.sha256}
    with ExitStack() as closing:
        file = closing.enter_context(writing.scratch())
        with zipfile.ZipFile(file, "w") as archive:
            for name, sha256 in hashes.items():
                content = store.read_bytes(f"{snapshot.uri}/{name}", sha256=sha256)
                archive.writestr(_entry(f"{stem}/{name}"), content)
        file.seek(0)
        closing.pop_all()  # whoever sends it closes it
    return file


def folder_zipped(
    snapshot: Snapshot,
    shape: Shape,
    stem: str,
    *,
    splits: Sequence[str],
    read: Callable[[Snapshot, str, Shape], Iterable[Row]],
    schema: Callable[[Snapshot, str, Shape], pa.Schema],
) -> IO[bytes]:
    """Another form of it: JSON Lines and Parquet of every split that has rows, with a card."""
    with ExitStack() as closing:
        file = closing.enter_context(writing.scratch())
        rows: dict[str, int] = {}
        columns: list[str] = []
        with zipfile.ZipFile(file, "w") as archive:
            for split in splits:
                found = writing.first_and_all(read(snapshot, split, shape))
                if found is None:
                    continue
                fields = schema(snapshot, split, shape)
                columns = columns or fields.names
                rows[split] = _split_write(archive, stem, split, found, fields)
            if not rows:
                raise Missing(
                    f"No split has a row in this form ({shape.title}).", code="empty_export"
                )
            card = frozen_card(snapshot)
            folder = folder_of(snapshot, shape, card, rows, columns)
            archive.writestr(_entry(f"{stem}/README.md"), card_text(folder))
            about = card | {"form": shape.key, "form_rows": rows, "made_from": _origin(snapshot)}
            archive.writestr(
                _entry(f"{stem}/card.json"),
                json.dumps(about, indent=1, sort_keys=True, ensure_ascii=False) + "\n",
            )
        file.seek(0)
        closing.pop_all()
    return file


def _split_write(
    archive: zipfile.ZipFile, stem: str, split: str, rows: Iterable[Row], schema: pa.Schema
) -> int:
    with writing.scratch() as table:
        with archive.open(_entry(f"{stem}/{split}.jsonl"), "w") as lines:
            n = writing.both_write(rows, schema, lines=lines, table=table)
        table.seek(0)
        with archive.open(_entry(f"{stem}/parquet/{split}.parquet"), "w") as target:
            shutil.copyfileobj(table, target)
    return n


def _entry(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _FIRST_DAY)
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def frozen_card(snapshot: Snapshot) -> dict[str, Any]:
    """card.json as frozen."""
    return json.loads(artifact_store().read_bytes(f"{snapshot.uri}/card.json"))


def folder_of(
    snapshot: Snapshot,
    shape: Shape,
    card: dict[str, Any],
    rows: dict[str, int],
    columns: Sequence[str],
) -> Folder:
    """What the card of this form says."""
    origin = _origin(snapshot)
    return Folder(
        title=f"{snapshot.name}: {shape.title}",
        kind=snapshot.kind,
        form=f"{shape.purpose} Computed from the frozen dataset {origin['snapshot']}, whose "
        f"manifest has the SHA-256 {origin['sha256']}; `card.json` holds its recipe, what was left "
        "out and why.",
        splits=rows,
        columns=columns,
        licences=card.get("licences", []),
        languages=card.get("languages") or languages_of(snapshot),
        warnings=card.get("warnings", []),
        facts=recipe_facts(card.get("recipe", {})),
    )


def languages_of(snapshot: Snapshot) -> list[str]:
    """Of the prompts behind its rows, for datasets whose card does not say; none where imports did
    not."""
    pairs = snapshot.rows.exclude(split="").values("comparison")
    found = Comparison.objects.filter(pk__in=pairs).values_list("prompt__language", flat=True)
    return sorted(set(found.distinct()) - {""})


def _origin(snapshot: Snapshot) -> dict[str, str]:
    return {"snapshot": snapshot.pk, "sha256": snapshot.sha256}

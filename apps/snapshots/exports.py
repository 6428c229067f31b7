"""Giving a frozen snapshot to other programs: its own files, a table for people, or all of it.

JSON Lines and Parquet are the frozen files themselves, so their hashes are those of the manifest.
"""

import json
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from tempfile import SpooledTemporaryFile
from typing import IO, Any

from apps.common.errors import Conflict, DomainError, Missing
from apps.snapshots.models import Snapshot
from apps.snapshots.spreadsheet import csv_lines
from apps.snapshots.store import artifact_store
from workers.artifacts import MANIFEST

FORMATS = ("jsonl", "parquet", "csv", "zip")
_MEDIA = {
    "jsonl": "application/x-ndjson",
    "parquet": "application/vnd.apache.parquet",
    "csv": "text/csv; charset=utf-8",
    "zip": "application/zip",
}
_IN_MEMORY = 8_000_000  # bytes of a zip kept in memory; the rest goes to disk
_FIRST_DAY = (1980, 1, 1, 0, 0, 0)  # of zip: equal content, equal bytes


@dataclass(frozen=True, slots=True)
class Export:
    """A file to send. `content` is an open file or lines of text; the caller closes it."""

    name: str
    media_type: str
    content: IO[bytes] | Iterable[bytes]


def snapshot_splits(snapshot: Snapshot) -> list[str]:
    """The files there are, in the order of the counts."""
    return list(snapshot.counts.get("rows", {}))


def snapshot_export(*, snapshot: Snapshot, split: str = "", form: str = "jsonl") -> Export:
    """One split in one format, or (zip) the whole folder, which is a Hugging Face dataset.

    Errors: `Conflict` when not frozen, `DomainError` for an unknown format, `Missing` for a split
    that this snapshot does not have.
    """
    if snapshot.state != Snapshot.State.FROZEN:
        raise Conflict("Only a frozen dataset can be exported.", code="not_frozen")
    if form not in FORMATS:
        raise DomainError(f"The format is one of {', '.join(FORMATS)}.", field="format")
    stem = f"{snapshot.project.slug}-{snapshot.pk}"
    if form == "zip":
        return Export(f"{stem}.zip", _MEDIA[form], _zipped(snapshot, stem))
    if split not in snapshot_splits(snapshot):
        has = ", ".join(snapshot_splits(snapshot))
        raise Missing(f"This dataset has no split '{split}'; it has {has}.", field="split")
    store, name = artifact_store(), f"{stem}-{split}.{form}"
    if form == "csv":
        rows = store.lines(f"{snapshot.uri}/{split}.jsonl")
        return Export(name, _MEDIA[form], _table(rows))
    inner = f"parquet/{split}.parquet" if form == "parquet" else f"{split}.jsonl"
    return Export(name, _MEDIA[form], store.open(f"{snapshot.uri}/{inner}"))


def file_list(snapshot: Snapshot) -> list[dict[str, Any]]:
    """[{name, sha256}] of a frozen snapshot, from its manifest, whose own hash is checked."""
    text = artifact_store().read_bytes(f"{snapshot.uri}/{MANIFEST}", sha256=snapshot.sha256)
    return [{"name": name, "sha256": digest} for name, digest in json.loads(text).items()]


def _table(rows: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    """Conversations become plain text; everything else stays what it is."""
    first = next(rows, None)
    if first is None:
        return
    flat = (_flat(row) for row in _again(first, rows))
    for line in csv_lines(list(_flat(first)), flat):
        yield line.encode("utf-8")


def _again(first: dict[str, Any], rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    yield first
    yield from rows


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    return {name: _text(value) for name, value in row.items()}


def _text(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    if value and isinstance(value[0], dict):
        if len(value) == 1:
            return value[0]["content"]
        return "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in value)
    return " ".join(map(str, value))


def _zipped(snapshot: Snapshot, stem: str) -> IO[bytes]:
    store = artifact_store()
    file = SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 - the response closes it
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry in [*file_list(snapshot), {"name": MANIFEST}]:
            info = zipfile.ZipInfo(f"{stem}/{entry['name']}", _FIRST_DAY)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, store.read_bytes(f"{snapshot.uri}/{entry['name']}"))
    file.seek(0)
    return file

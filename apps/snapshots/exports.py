"""Giving a frozen snapshot to other programs: its own files, a table for people, or all of it.

JSON Lines and Parquet are the frozen files themselves, so their hashes are those of the manifest.
"""

import json
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from tempfile import SpooledTemporaryFile
from typing import IO, Any

from apps.common.errors import Conflict, DomainError, Missing
from apps.common.spreadsheet import csv_lines
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import in_order
from apps.snapshots.store import artifact_store
from workers.artifacts import MANIFEST, ArtifactError

SPLIT_FORMATS = ("jsonl", "parquet", "csv")
FORMATS = (*SPLIT_FORMATS, "zip")
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
    """The files there are, training first."""
    return list(in_order(snapshot.counts.get("rows", {})))


def snapshot_export(*, snapshot: Snapshot, split: str = "", form: str = "jsonl") -> Export:
    """One split in one format, or (zip) the whole folder, which is a Hugging Face dataset.

    Errors: `Conflict` when not frozen or damaged, `DomainError` for an unknown format, `Missing`
    for a split that this snapshot does not have.
    """
    if snapshot.state != Snapshot.State.FROZEN:
        raise Conflict("Only a frozen dataset can be exported.", code="not_frozen")
    if form not in FORMATS:
        raise DomainError(f"The format is one of {', '.join(FORMATS)}.", field="format")
    stem = f"{snapshot.project.slug}-{snapshot.pk}"
    if form != "zip" and split not in snapshot_splits(snapshot):
        has = ", ".join(snapshot_splits(snapshot))
        raise Missing(f"This dataset has no split '{split}'; it has {has}.", field="split")
    name = f"{stem}.zip" if form == "zip" else f"{stem}-{split}.{form}"
    try:
        return Export(name, _MEDIA[form], _content(snapshot, split, form, stem))
    except ArtifactError as error:
        raise Conflict(
            f"The files are not what was frozen: {error}.", code="damaged", details=str(error)
        ) from error


def _content(snapshot: Snapshot, split: str, form: str, stem: str) -> IO[bytes] | Iterable[bytes]:
    store = artifact_store()
    if form == "zip":
        return _zipped(snapshot, stem)
    if form == "csv":
        return _table(store.open(f"{snapshot.uri}/{split}.jsonl"))
    inner = f"parquet/{split}.parquet" if form == "parquet" else f"{split}.jsonl"
    return store.open(f"{snapshot.uri}/{inner}")


def file_list(snapshot: Snapshot) -> list[dict[str, Any]]:
    """[{name, sha256}] of a frozen snapshot, from its manifest, whose own hash is checked."""
    text = artifact_store().read_bytes(f"{snapshot.uri}/{MANIFEST}", sha256=snapshot.sha256)
    return [{"name": name, "sha256": digest} for name, digest in json.loads(text).items()]


def file_list_or_none(snapshot: Snapshot) -> list[dict[str, Any]] | None:
    """For a page: None when the files are gone or changed, which Verify then explains."""
    if snapshot.state != Snapshot.State.FROZEN:
        return []
    try:
        return file_list(snapshot)
    except ArtifactError:
        return None


def _table(file: IO[bytes]) -> Iterator[bytes]:
    """Conversations become plain text; everything else stays what it is."""
    with file:
        rows = (_flat(json.loads(line)) for line in file)
        first = next(rows, None)
        if first is not None:
            for line in csv_lines(list(first), chain([first], rows)):
                yield line.encode("utf-8")


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
    names = [*(entry["name"] for entry in file_list(snapshot)), MANIFEST]
    with ExitStack() as closing:
        file = closing.enter_context(SpooledTemporaryFile(max_size=_IN_MEMORY))
        with zipfile.ZipFile(file, "w") as archive:
            for name in names:
                info = zipfile.ZipInfo(f"{stem}/{name}", _FIRST_DAY)
                info.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(info, store.read_bytes(f"{snapshot.uri}/{name}"))
        file.seek(0)
        closing.pop_all()  # whoever sends it closes it
    return file

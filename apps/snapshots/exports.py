"""Giving a frozen snapshot to other programs: a form, a split, a kind of file, or all as a folder.

In its frozen form JSON Lines and Parquet are the frozen files themselves, so their hashes are those
of the manifest. Every other form is computed from them when it is asked for, and the same each
time.
"""

import json
import weakref
from collections.abc import Iterable
from functools import partial
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
from django.core.cache import cache
from django.db import transaction

from apps.accounts.models import User
from apps.common.errors import Conflict, DomainError, Missing, Unavailable
from apps.common.row_files import MEDIA, ROW_FORMATS, Export, first_and_all, rows_content
from apps.labeling.personal_data import scrubbed
from apps.snapshots import formats
from apps.snapshots.assembling.rows import Row
from apps.snapshots.formats import Shape, SourceFiles
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import SOFT, public
from apps.snapshots.services.looks import splits_read
from apps.snapshots.services.writing import folder_zipped, frozen_zipped
from apps.snapshots.storage import artifact_open, artifact_store
from workers.artifacts import MANIFEST, ArtifactError, ArtifactMissing, StoreUnreachable

FORMATS = (*ROW_FORMATS, "zip")


def snapshot_splits(snapshot: Snapshot) -> list[str]:
    """The files there are, training first. The private ones are never given out."""
    return list(public(snapshot.counts.get("rows", {})))


def snapshot_export(
    *,
    snapshot: Snapshot,
    split: str = "",
    form: str = "jsonl",
    shape: str = "",
    user: User | None = None,
    scrub: bool = False,
) -> Export:
    """One split as one kind of file, or (zip) everything as a Hugging Face dataset folder.

    scrub: with what looks like personal data in texts taken out; a folder's card counts it.
    shape: a key of `apps.snapshots.formats.SHAPES`; empty for the frozen form. What `user` reads of
    held-out splits is a look at each. Errors: `Conflict` when not frozen or damaged, or beyond a
    split's budget, `DomainError` for an unknown form or file, `Missing` for a split that this
    snapshot does not have or that has no row in this form.
    """
    if snapshot.state != Snapshot.State.FROZEN:
        raise Conflict("Only a frozen dataset can be exported.", code="not_frozen")
    if form not in FORMATS:
        raise DomainError(f"The format is one of {', '.join(FORMATS)}.", field="format")
    chosen = formats.shape_get(shape or formats.FROZEN_SHAPE.key, kind=snapshot.kind)
    if form != "zip" and split not in snapshot_splits(snapshot):
        has = ", ".join(snapshot_splits(snapshot))
        raise Missing(f"This dataset has no split '{split}'; it has {has}.", field="split")
    stem = f"{snapshot.project.slug}-{snapshot.pk}"
    if chosen is not formats.FROZEN_SHAPE:
        stem = f"{stem}-{chosen.key}"
    if scrub:
        stem = f"{stem}-scrubbed"
    name = f"{stem}.zip" if form == "zip" else f"{stem}-{split}.{form}"
    try:
        with transaction.atomic():  # what could not be opened was not read
            splits = snapshot_splits(snapshot) if form == "zip" else [split]
            splits_read(snapshot=snapshot, splits=splits, purpose="export", person=user)
            return Export(name, MEDIA[form], _content(snapshot, split, form, chosen, stem, scrub))
    except StoreUnreachable as error:
        raise Unavailable(f"{error}.") from error
    except ArtifactError as error:
        raise Conflict(
            f"The files are not what was frozen: {error}.", code="damaged", details=str(error)
        ) from error


def form_rows(*, snapshot: Snapshot) -> dict[str, dict[str, int]]:
    """{shape: {split: rows}} of a frozen snapshot, for the page that offers them.

    Rankings and votes have to be counted; a frozen dataset never changes, so that is done once.
    """
    if snapshot.state != Snapshot.State.FROZEN:
        return {}
    frozen = public(snapshot.counts.get("rows", {}))
    found = {}
    for shape in formats.shapes_for(snapshot.kind):
        ties = snapshot.recipe.get("ties") == SOFT and shape.key == "kto"  # these give no row
        if shape.per_row is not None and not ties:
            found[shape.key] = {split: n * shape.per_row for split, n in frozen.items()}
            continue
        key = f"export-rows:{snapshot.sha256}:{snapshot.pk}:{shape.key}"
        found[shape.key] = cache.get_or_set(key, partial(_counted, snapshot, shape), timeout=None)
    return found


def _counted(snapshot: Snapshot, shape: Shape) -> dict[str, int]:
    try:
        return {
            split: sum(1 for _ in _shaped(snapshot, split, shape))
            for split in snapshot_splits(snapshot)
        }
    except ArtifactError:
        return {}


def _content(
    snapshot: Snapshot, split: str, form: str, shape: Shape, stem: str, scrub: bool
) -> IO[bytes] | Iterable[bytes]:
    frozen = shape.rows_of is None and not scrub
    removed: dict[str, int] = {}
    read = partial(_scrubbed, removed) if scrub else _shaped
    if form == "zip":
        if frozen:
            return frozen_zipped(snapshot, file_list(snapshot), stem)
        return folder_zipped(
            snapshot,
            shape,
            stem,
            splits=snapshot_splits(snapshot),
            read=read,
            schema=_schema,
            removed=removed if scrub else None,
        )
    if frozen and form != "csv":
        inner = f"parquet/{split}.parquet" if form == "parquet" else f"{split}.jsonl"
        return _frozen(snapshot, inner)
    if shape.binary and form != "parquet":
        raise DomainError(
            f"This form ({shape.title}) is sent as Parquet or as a folder.", field="format"
        )
    rows = first_and_all(read(snapshot, split, shape))
    if rows is None:
        raise Missing(
            f"The split '{split}' has no row in this form ({shape.title}).",
            code="empty_export",
            field="split",
        )
    return rows_content(rows, _schema(snapshot, split, shape), form)


def _shaped(snapshot: Snapshot, split: str, shape: Shape) -> Iterable[Row]:
    """Rows of a split in a form. Opens the file at once, so that a missing one is said at once."""
    source = SourceFiles(snapshot, split, _frozen_rows(snapshot, split))
    return source.rows if shape.rows_of is None else shape.rows_of(source)


_TEXTS = ("prompt", "chosen", "rejected", "completion", "messages", "responses", "metadata")


def _scrubbed(
    removed: dict[str, int], snapshot: Snapshot, split: str, shape: Shape
) -> Iterable[Row]:
    """The same rows without what looks like personal data, counted by split."""
    for row in _shaped(snapshot, split, shape):
        texts = {}
        for name in row.keys() & set(_TEXTS):
            texts[name], n = _without(row[name])
            removed[split] = removed.get(split, 0) + n
        yield row | texts


def _without(value: Any) -> tuple[Any, int]:
    if isinstance(value, str):
        return scrubbed(value)
    if isinstance(value, list):
        parts = [_without(one) for one in value]
        return [one for one, _ in parts], sum(n for _, n in parts)
    if isinstance(value, dict):
        named = {name: _without(one) for name, one in value.items()}
        return {name: one for name, (one, _) in named.items()}, sum(n for _, n in named.values())
    return value, 0


def _frozen_rows(snapshot: Snapshot, split: str) -> Iterable[Row]:
    file = _frozen(snapshot, f"{split}.jsonl")

    def read() -> Iterable[Row]:
        with file:
            for line in file:
                yield formats.with_own(json.loads(line))

    rows = read()
    weakref.finalize(rows, file.close)  # a form that needs no row leaves it untouched
    return rows


def _schema(snapshot: Snapshot, split: str, shape: Shape) -> pa.Schema:
    with _frozen(snapshot, f"parquet/{split}.parquet") as file:
        return shape.schema(pq.read_schema(file))


def _frozen(snapshot: Snapshot, name: str) -> IO[bytes]:
    """A file of the snapshot as it was frozen; `ArtifactError` when it is not that any more."""
    hashes = {entry["name"]: entry["sha256"] for entry in file_list(snapshot)}
    if name not in hashes:
        raise ArtifactMissing(f"artifact '{snapshot.uri}/{name}' is missing")
    return artifact_open(f"{snapshot.uri}/{name}", sha256=hashes[name])


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
